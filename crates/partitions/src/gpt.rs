//! GUID partition tables, as the UEFI specification describes them (5.3, "GUID Partition Table Disk Layout"):
//! a header in the second sector, entries of 128 bytes that it points to, and a copy of both at the end of
//! the disk. What Linux refuses (block/partitions/efi.c) is refused here.

use vlinder_device::{Device, DeviceError};

use crate::bytes::{array, read, u32_at, u64_at};
use crate::kind::PartitionKind;
use crate::partition::RawPartition;

const SIGNATURE: &[u8; 8] = b"EFI PART";
/// Bytes of a header that are defined; more are allowed, up to a sector.
const MIN_HEADER_BYTES: u32 = 92;
/// Linux takes no other size, and no tool writes one.
const ENTRY_BYTES: u32 = 128;
/// Tools write 128 entries; this is a bound of memory (half a mebibyte).
const MAX_ENTRIES: u32 = 4096;

/// A header and entries that agree with their checksums.
#[derive(Debug)]
pub(crate) struct GuidTable {
    /// Bytes of a sector.
    pub sector_bytes: u64,
    /// The copy at the disk's end was used.
    pub is_backup: bool,
    /// The partitions, in the order of their numbers.
    pub partitions: Vec<RawPartition>,
    /// Bytes that the table itself takes: first and end.
    pub reserved: Vec<(u64, u64)>,
}

/// What lies where a table would.
#[derive(Debug)]
pub(crate) enum GuidRead {
    /// Nothing that looks like one.
    Absent,
    /// One that can't be used, and why.
    Damaged(&'static str),
    /// A table.
    Sound(GuidTable),
}

/// Looks for a table of sectors of 512 and of 4096 bytes, and for its copy where the first is damaged.
///
/// # Errors
/// The device's.
pub(crate) fn find(device: &dyn Device) -> Result<GuidRead, DeviceError> {
    let mut damaged = None;
    for is_backup in [false, true] {
        for sector_bytes in [512, 4096] {
            match read_at(device, sector_bytes, is_backup)? {
                GuidRead::Absent => {}
                GuidRead::Damaged(why) => damaged = damaged.or(Some(why)),
                sound @ GuidRead::Sound(_) => return Ok(sound),
            }
        }
    }
    Ok(damaged.map_or(GuidRead::Absent, GuidRead::Damaged))
}

fn read_at(device: &dyn Device, sector_bytes: u64, is_backup: bool) -> Result<GuidRead, DeviceError> {
    let sectors = device.length().checked_div(sector_bytes).unwrap_or(0);
    let Some(last) = sectors.checked_sub(1) else { return Ok(GuidRead::Absent) };
    let number = if is_backup { last } else { 1 };
    let place = number.saturating_mul(sector_bytes);
    let Some(header) = read(device, place, sector_bytes)? else { return Ok(GuidRead::Absent) };
    if array(&header, 0) != *SIGNATURE {
        return Ok(GuidRead::Absent);
    }
    if let Err(why) = judge_header(&header, number) {
        return Ok(GuidRead::Damaged(why));
    }
    // Both factors were judged: at most half a mebibyte.
    let length = u64::from(u32_at(&header, 80)).saturating_mul(u64::from(ENTRY_BYTES));
    let entries_at = u64_at(&header, 72).saturating_mul(sector_bytes);
    let Some(entries) = read(device, entries_at, length)? else {
        return Ok(GuidRead::Damaged("its entries lie behind the end of the disk"));
    };
    if crc_fast::crc32_iso_hdlc(&entries) != u32_at(&header, 88) {
        return Ok(GuidRead::Damaged("its entries do not match their checksum"));
    }
    let other = u64_at(&header, 32).saturating_mul(sector_bytes);
    let reserved = vec![
        // The protective MBR and the first header lie there, whatever the copy at the end says.
        (0, sector_bytes.saturating_mul(2)),
        (place, place.saturating_add(sector_bytes)),
        (entries_at, entries_at.saturating_add(length)),
        (other, other.saturating_add(sector_bytes)),
    ];
    let partitions = partitions(&entries, sector_bytes);
    Ok(GuidRead::Sound(GuidTable { sector_bytes, is_backup, partitions, reserved }))
}

/// Whether a header is whole, and one that can be used.
fn judge_header(header: &[u8], number: u64) -> Result<(), &'static str> {
    let header_bytes = u32_at(header, 12);
    let whole = usize::try_from(header_bytes).ok().and_then(|length| header.get(..length));
    let Some(whole) = whole.filter(|_| header_bytes >= MIN_HEADER_BYTES) else {
        return Err("its header has an impossible length");
    };
    let mut judged = whole.to_vec();
    if let Some(checksum) = judged.get_mut(16..20) {
        checksum.fill(0);
    }
    if crc_fast::crc32_iso_hdlc(&judged) != u32_at(header, 16) {
        return Err("its header does not match its checksum");
    }
    if u64_at(header, 24) != number {
        return Err("its header says that it lies elsewhere");
    }
    if u32_at(header, 84) != ENTRY_BYTES {
        return Err("its entries have not the 128 bytes that Linux takes");
    }
    if u32_at(header, 80) > MAX_ENTRIES {
        return Err("it has room for more than 4096 partitions");
    }
    Ok(())
}

fn partitions(entries: &[u8], sector_bytes: u64) -> Vec<RawPartition> {
    let length = usize::try_from(ENTRY_BYTES).unwrap_or(usize::MAX);
    let numbered = (1..).zip(entries.chunks_exact(length));
    let used = numbered.filter(|(_, entry)| array::<16>(entry, 0) != [0; 16]);
    used.map(|(number, entry)| {
        let (first, last) = (u64_at(entry, 32), u64_at(entry, 40));
        RawPartition {
            number,
            // What is more than 64 bits can say ends behind every disk.
            start: first.saturating_mul(sector_bytes),
            end: last.saturating_add(1).saturating_mul(sector_bytes),
            kind: PartitionKind::Guid(array(entry, 0)),
        }
    })
    .collect()
}
