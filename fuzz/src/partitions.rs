//! Partition tables: a sound one with changes, and its checksums made right again or not.

use vlinder_device::{Device, DeviceExt, MemoryDevice};
use vlinder_format::Physical;
use vlinder_partitions::{Partition, PartitionTable, TableRead};

use crate::input::Input;

const DISK_BYTES: u64 = 1 << 20;
/// Entries of the tables that are changed.
const ENTRIES_BYTES: usize = 128 * 128;
/// Changes lie in so many bytes from the disk's beginning: the first header and its entries.
const CHANGED_BYTES: u64 = 24 << 10;

/// A table with changes: each a position, a length of at most 16 and the bytes.
///
/// # Panics
/// Where a law is broken.
pub fn table(input: &[u8]) {
    let mut input = Input(input);
    let disk = MemoryDevice::new(DISK_BYTES);
    // 0: an MBR.
    let sector = input.of(&[0, 512, 4096]);
    let seals = input.u8() % 2 == 0;
    write(&disk, 0, &protective(sector == 0));
    let mut ends = Vec::new();
    if let Some(sectors) = DISK_BYTES.checked_div(sector) {
        let last = sectors - 1;
        let behind = last - (ENTRIES_BYTES as u64).div_ceil(sector);
        for (own, entries) in [(1, 2), (last, behind)] {
            write(&disk, own * sector, &header(own, entries));
            write(&disk, entries * sector, &entries_of(sector));
            ends.push((own, entries));
        }
    }
    while !input.is_empty() {
        let at = u64::from(input.u16()) % CHANGED_BYTES;
        let place = if input.u8() % 4 == 0 { DISK_BYTES - CHANGED_BYTES + at } else { at };
        let length = usize::from(input.u8() % 17);
        write(&disk, place, input.take(length));
    }
    for (own, _) in ends.iter().filter(|_| seals) {
        seal(&disk, own * sector, sector);
    }
    let found = PartitionTable::read(&disk).unwrap_or_else(|error| panic!("memory can be read: {error}"));
    if let TableRead::Sound(table) = found {
        judge(&table.partitions);
        assert!(table.to_string().len() < 8192);
    }
}

fn judge(partitions: &[Partition]) {
    let usable: Vec<_> = partitions.iter().filter(|partition| partition.fault.is_none()).collect();
    let end = |partition: &Partition| partition.start.checked_add(partition.length_bytes);
    for (index, partition) in usable.iter().enumerate() {
        assert!(partition.length_bytes > 0 && partition.start >= 512, "{partition:?}");
        assert!(end(partition).is_some_and(|end| end <= DISK_BYTES), "{partition:?}");
        for other in usable.iter().take(index) {
            let is_apart = end(partition) <= Some(other.start) || end(other) <= Some(partition.start);
            assert!(is_apart, "{partition:?} {other:?}");
        }
    }
}

fn write(disk: &MemoryDevice, place: u64, bytes: &[u8]) {
    let fitting = usize::try_from(disk.length() - place).map_or(bytes.len(), |rest| rest.min(bytes.len()));
    disk.write_at(Physical(place), bytes[..fitting].to_vec()).unwrap_or_else(|error| panic!("{error}"));
}

fn read(disk: &MemoryDevice, place: u64, length: usize) -> Vec<u8> {
    disk.read_at(Physical(place), length).unwrap_or_default()
}

/// An MBR with a chain of logical partitions, or one that protects a GPT: sectors, in which of four places
/// each entry stands, its type, first sector and number of sectors.
fn protective(has_logical: bool) -> Vec<u8> {
    type Entry = (usize, usize, u8, u32, u32);
    let entries: &[Entry] = match has_logical {
        true => &[
            (0, 0, 0x83, 1040, 64),
            (0, 1, 0x05, 16, 1000),
            (16, 0, 0x83, 200, 100),
            (16, 1, 0x05, 1, 400),
            (17, 0, 0x83, 300, 100),
        ],
        false => &[(0, 0, 0xee, 1, u32::MAX)],
    };
    let count = if has_logical { 18 } else { 1 };
    let mut sectors = vec![0; count * 512];
    for (sector, place, kind, start, length) in entries {
        let table = &mut sectors[sector * 512..][..512];
        let entry = &mut table[446 + 16 * place..][..16];
        entry[4] = *kind;
        entry[8..12].copy_from_slice(&start.to_le_bytes());
        entry[12..16].copy_from_slice(&length.to_le_bytes());
        table[510..].copy_from_slice(&[0x55, 0xaa]);
    }
    sectors
}

fn header(own: u64, entries: u64) -> Vec<u8> {
    let mut header = vec![0; 92];
    header[..8].copy_from_slice(b"EFI PART");
    header[8..16].copy_from_slice(&[0, 0, 1, 0, 92, 0, 0, 0]);
    header[24..32].copy_from_slice(&own.to_le_bytes());
    header[72..80].copy_from_slice(&entries.to_le_bytes());
    header[80..84].copy_from_slice(&128_u32.to_le_bytes());
    header[84..88].copy_from_slice(&128_u32.to_le_bytes());
    header
}

fn entries_of(sector: u64) -> Vec<u8> {
    let mut entries = vec![0; ENTRIES_BYTES];
    for (index, (start, end)) in [(64 << 10, 128 << 10), (128 << 10, 512 << 10)].into_iter().enumerate() {
        let entry = &mut entries[index * 128..][..128];
        entry[..16].fill(7);
        entry[32..40].copy_from_slice(&(start / sector).to_le_bytes());
        entry[40..48].copy_from_slice(&(end / sector - 1).to_le_bytes());
    }
    entries
}

/// Makes the checksums of a header right, whatever it says.
fn seal(disk: &MemoryDevice, place: u64, sector: u64) {
    let mut header = read(disk, place, usize::try_from(sector).unwrap_or(512));
    let field = |header: &[u8], at: usize| {
        header[at..at + 4].iter().rev().fold(0_u64, |sum, byte| sum << 8 | u64::from(*byte))
    };
    let at = header[72..80].iter().rev().fold(0_u64, |sum, byte| sum << 8 | u64::from(*byte));
    let length = usize::try_from(field(&header, 80) * field(&header, 84)).unwrap_or(usize::MAX);
    if let Some(place) = at.checked_mul(sector).filter(|place| *place < DISK_BYTES)
        && length <= ENTRIES_BYTES * 2
    {
        let checksum = crc_fast::crc32_iso_hdlc(&read(disk, place, length));
        header[88..92].copy_from_slice(&checksum.to_le_bytes());
    }
    header[16..20].fill(0);
    let judged = usize::try_from(field(&header, 12)).unwrap_or(usize::MAX).min(header.len());
    let checksum = crc_fast::crc32_iso_hdlc(&header[..judged]);
    header[16..20].copy_from_slice(&checksum.to_le_bytes());
    write(disk, place, &header);
}

#[cfg(test)]
mod tests {
    use vlinder_base::random::{Random, SeededRandom};

    use super::*;

    #[test]
    fn random_changes_break_no_law() {
        let random = SeededRandom::new(24);
        for _ in 0..3000 {
            let length = random.next_u64() % 60;
            let bytes: Vec<u8> = (0..length).map(|_| random.next_u64().to_le_bytes()[0]).collect();
            table(&bytes);
        }
    }

    #[test]
    fn without_changes_the_tables_are_sound() {
        for kind in 0..3 {
            table(&[kind, 0]);
        }
        let disk = MemoryDevice::new(DISK_BYTES);
        write(&disk, 0, &protective(true));
        match PartitionTable::read(&disk) {
            Ok(TableRead::Sound(table)) => assert_eq!(table.partitions.len(), 4, "{table:?}"),
            other => panic!("{other:?}"),
        }
    }
}
