//! Partition tables of MBRs: four entries in the first sector, of which one may be an extended partition, the
//! room of a chain of sectors that name a logical one each. What Linux makes of them
//! (block/partitions/msdos.c) is made of them here. Sectors have 512 bytes.

use vlinder_device::{Device, DeviceError};

use crate::bytes::{array, read, u32_at};
use crate::kind::PartitionKind;
use crate::partition::RawPartition;

const SECTOR: u64 = 512;
const ENTRIES_AT: usize = 446;
const ENTRY_BYTES: usize = 16;
/// Linux names no more partitions of a disk (`DISK_MAX_PARTS`).
const MAX_LINKS: u32 = 256;

/// An entry of a table.
#[derive(Debug, Clone, Copy)]
struct Entry {
    kind: PartitionKind,
    /// In sectors, from where the entry's kind counts.
    start: u64,
    sectors: u64,
}

/// A table in the first sector.
#[derive(Debug)]
pub(crate) struct SectorTable {
    entries: [Entry; 4],
}

/// The partitions of a table, or what is wrong with it.
#[derive(Debug, Default)]
pub(crate) struct SectorPartitions {
    pub partitions: Vec<RawPartition>,
    /// Bytes that the table itself takes: first and end.
    pub reserved: Vec<(u64, u64)>,
    /// Where the chain of logical partitions stopped being one.
    pub broken: Option<&'static str>,
}

impl SectorTable {
    /// The table in the first sector of a disk; none where there is no mark of one, no partition, or what a
    /// file system's boot sector has in its place.
    ///
    /// # Errors
    /// The device's.
    pub(crate) fn find(device: &dyn Device) -> Result<Option<Self>, DeviceError> {
        let Some(sector) = read(device, 0, SECTOR)? else { return Ok(None) };
        if !is_marked(&sector) {
            return Ok(None);
        }
        let flags = [0, 1, 2, 3].map(|index| array::<1>(&sector, place(index)));
        let entries = entries(&sector);
        let is_table = flags.iter().all(|[flag]| matches!(flag, 0 | 0x80));
        Ok((is_table && entries.iter().any(Entry::is_used)).then_some(Self { entries }))
    }

    /// Whether it only keeps tools away that know no GPT.
    pub(crate) fn is_protective(&self) -> bool {
        self.entries.iter().any(|entry| entry.kind == PartitionKind::Number(0xee))
    }

    /// All partitions, logical ones too.
    ///
    /// # Errors
    /// The device's.
    pub(crate) fn partitions(&self, device: &dyn Device) -> Result<SectorPartitions, DeviceError> {
        let mut found = SectorPartitions { reserved: vec![(0, SECTOR)], ..SectorPartitions::default() };
        let mut next_logical = 5;
        for (number, entry) in (1..).zip(self.entries).filter(|(_, entry)| entry.is_used()) {
            found.partitions.push(entry.partition(number, 0));
            if entry.kind.is_extended() {
                add_logical(device, entry, &mut next_logical, &mut found)?;
            }
        }
        Ok(found)
    }
}

impl Entry {
    fn is_used(&self) -> bool {
        self.kind != PartitionKind::Number(0) && self.sectors > 0
    }

    /// `base` is the sector that its start counts from.
    fn partition(self, number: u32, base: u64) -> RawPartition {
        let start = base.saturating_add(self.start);
        RawPartition {
            number,
            start: start.saturating_mul(SECTOR),
            end: start.saturating_add(self.sectors).saturating_mul(SECTOR),
            kind: self.kind,
        }
    }
}

/// Follows the chain of an extended partition. The chain may lead anywhere, also back: its length is bounded,
/// so it ends.
fn add_logical(
    device: &dyn Device,
    extended: Entry,
    next_number: &mut u32,
    found: &mut SectorPartitions,
) -> Result<(), DeviceError> {
    let mut at = extended.start;
    for _ in 0..MAX_LINKS {
        let place = at.saturating_mul(SECTOR);
        let Some(sector) = read(device, place, SECTOR)? else {
            found.broken = Some("a table of its logical partitions lies behind the end of the disk");
            return Ok(());
        };
        if !is_marked(&sector) {
            // An extended partition that nothing was made in yet has no table.
            if at != extended.start {
                found.broken = Some("a table of its logical partitions is damaged");
            }
            return Ok(());
        }
        found.reserved.push((place, place.saturating_add(SECTOR)));
        let entries = entries(&sector);
        // The last two entries mean nothing.
        let both = entries.iter().take(2).filter(|entry| entry.is_used());
        for entry in both.clone().filter(|entry| !entry.kind.is_extended()) {
            found.partitions.push(entry.partition(*next_number, at));
            *next_number = next_number.saturating_add(1);
        }
        match both.clone().find(|entry| entry.kind.is_extended()) {
            Some(link) => at = extended.start.saturating_add(link.start),
            None => return Ok(()),
        }
    }
    found.broken = Some("the chain of its logical partitions does not end");
    Ok(())
}

fn is_marked(sector: &[u8]) -> bool {
    array(sector, 510) == [0x55, 0xaa]
}

fn place(index: usize) -> usize {
    ENTRIES_AT.saturating_add(index.saturating_mul(ENTRY_BYTES))
}

fn entries(sector: &[u8]) -> [Entry; 4] {
    [0, 1, 2, 3].map(|index| {
        let at = place(index);
        let [kind] = array(sector, at.saturating_add(4));
        Entry {
            kind: PartitionKind::Number(kind),
            start: u32_at(sector, at.saturating_add(8)).into(),
            sectors: u32_at(sector, at.saturating_add(12)).into(),
        }
    })
}
