//! Tables of every kind, sound, damaged and hostile. What sfdisk and sgdisk write is tested with the command.

use proptest::prelude::*;
use vlinder_base::units::Physical;
use vlinder_device::{Device, DeviceExt, MemoryDevice};

use crate::choice::{ChoiceError, choose};
use crate::error::PartitionErrorKind;
use crate::name::NamedPart;
use crate::partition::PartitionFault;
use crate::table::{PartitionTable, TableFormat, TableRead};

const MIB: u64 = 1 << 20;
const DISK: u64 = 64 * MIB;
const LINUX: [u8; 16] = 0x0fc6_3daf_8483_4772_8e79_3d69_d847_7de4_u128.to_le_bytes();

/// A GPT to be written, right unless it is changed.
#[derive(Clone)]
struct Gpt {
    sector: u64,
    /// First and last sector.
    entries: Vec<(u64, u64)>,
    count: u32,
    entry_bytes: u32,
    header_bytes: u32,
}

impl Gpt {
    fn new(sector: u64, entries: &[(u64, u64)]) -> Self {
        let entries = entries.iter().map(|(start, end)| (start / sector, end / sector - 1)).collect();
        Self { sector, entries, count: 128, entry_bytes: 128, header_bytes: 92 }
    }

    fn write(&self, disk: &MemoryDevice) {
        disk.write_at(Physical(0), mbr(&[(0xee, 1, u32::MAX)])).unwrap();
        let last = disk.length() / self.sector - 1;
        let table_sectors = (128 * 128_u64).div_ceil(self.sector);
        self.write_copy(disk, 1, 2, last);
        self.write_copy(disk, last, last - table_sectors, 1);
    }

    fn write_copy(&self, disk: &MemoryDevice, own: u64, entries_at: u64, other: u64) {
        let mut entries = vec![0; 128 * 128];
        for (entry, (first, last)) in entries.chunks_mut(128).zip(&self.entries) {
            entry[..16].copy_from_slice(&LINUX);
            entry[16] = 1;
            entry[32..40].copy_from_slice(&first.to_le_bytes());
            entry[40..48].copy_from_slice(&last.to_le_bytes());
        }
        let mut header = vec![0; self.sector as usize];
        header[..8].copy_from_slice(b"EFI PART");
        header[8..12].copy_from_slice(&[0, 0, 1, 0]);
        header[12..16].copy_from_slice(&self.header_bytes.to_le_bytes());
        header[24..32].copy_from_slice(&own.to_le_bytes());
        header[32..40].copy_from_slice(&other.to_le_bytes());
        header[72..80].copy_from_slice(&entries_at.to_le_bytes());
        header[80..84].copy_from_slice(&self.count.to_le_bytes());
        header[84..88].copy_from_slice(&self.entry_bytes.to_le_bytes());
        header[88..92].copy_from_slice(&crc_fast::crc32_iso_hdlc(&entries).to_le_bytes());
        let judged = (self.header_bytes as usize).min(header.len());
        let checksum = crc_fast::crc32_iso_hdlc(&header[..judged]);
        header[16..20].copy_from_slice(&checksum.to_le_bytes());
        disk.write_at(Physical(own * self.sector), header).unwrap();
        disk.write_at(Physical(entries_at * self.sector), entries).unwrap();
    }
}

/// A sector with a table of these types, first sectors and numbers of sectors.
fn mbr(entries: &[(u8, u32, u32)]) -> Vec<u8> {
    let mut sector = vec![0; 512];
    for (index, (kind, start, sectors)) in entries.iter().enumerate() {
        let entry = &mut sector[446 + 16 * index..462 + 16 * index];
        entry[4] = *kind;
        entry[8..12].copy_from_slice(&start.to_le_bytes());
        entry[12..16].copy_from_slice(&sectors.to_le_bytes());
    }
    sector[510..].copy_from_slice(&[0x55, 0xaa]);
    sector
}

fn superblock(disk: &MemoryDevice, start: u64, offset: u64) {
    let mut bytes = vec![0; 4096];
    bytes[48..56].copy_from_slice(&offset.to_le_bytes());
    bytes[64..72].copy_from_slice(b"_BHRfS_M");
    disk.write_at(Physical(start + offset), bytes).unwrap();
}

const PRIMARY: u64 = 64 << 10;

fn sound(disk: &MemoryDevice) -> PartitionTable {
    match PartitionTable::read(disk).unwrap() {
        TableRead::Sound(table) => table,
        other => panic!("{other:?}"),
    }
}

fn chosen(disk: &MemoryDevice, part: NamedPart) -> Result<Option<std::ops::Range<u64>>, PartitionErrorKind> {
    match choose(disk, part) {
        Ok(chosen) => Ok(chosen.map(|chosen| chosen.range)),
        Err(ChoiceError::Part(kind)) => Err(kind),
        Err(ChoiceError::Device(error)) => panic!("{error}"),
    }
}

fn faults(table: &PartitionTable) -> Vec<Option<PartitionFault>> {
    table.partitions.iter().map(|partition| partition.fault).collect()
}

#[test]
fn a_gpt_of_either_sector_size_is_read_and_told() {
    for sector in [512, 4096] {
        let disk = MemoryDevice::new(DISK);
        Gpt::new(sector, &[(MIB, 4 * MIB), (4 * MIB, 32 * MIB)]).write(&disk);
        superblock(&disk, 4 * MIB, PRIMARY);
        let table = sound(&disk);
        assert_eq!(table.format, TableFormat::Gpt { sector_bytes: sector, is_backup: false });
        assert_eq!(chosen(&disk, NamedPart::Partition(1)), Ok(Some(MIB..4 * MIB)));
        assert_eq!(chosen(&disk, NamedPart::Unsaid), Ok(Some(4 * MIB..32 * MIB)));
        let told = table.to_string();
        assert!(told.contains("with 2 partitions: 1 type"), "{told}");
        assert!(told.ends_with("2 Btrfs at 4194304, 28 MiB"), "{told}");
    }
}

/// A copy may say anything of where the first header lies.
#[test]
fn no_partition_lies_where_the_first_header_does() {
    for sector in [512, 4096] {
        for start in [0, sector] {
            let disk = MemoryDevice::new(DISK);
            let last = DISK / sector - 1;
            let partitions = [(start, start + sector), (MIB, 2 * MIB)];
            Gpt::new(sector, &partitions).write_copy(&disk, last, last - 32, last);
            let table = sound(&disk);
            assert_eq!(table.format, TableFormat::Gpt { sector_bytes: sector, is_backup: true });
            assert_eq!(faults(&table), [Some(PartitionFault::InTable), None], "{sector} {start}");
        }
    }
}

#[test]
fn the_copy_is_used_where_the_first_is_damaged() {
    for sector in [512, 4096] {
        // The header, an entry of it, and all of the disk's beginning.
        for (damaged, length) in [(sector + 40, 1), (2 * sector + 130, 1), (0, 64 << 10)] {
            let disk = MemoryDevice::new(DISK);
            Gpt::new(sector, &[(MIB, 32 * MIB)]).write(&disk);
            disk.write_at(Physical(damaged), vec![0xa5; length]).unwrap();
            let table = sound(&disk);
            let backup = TableFormat::Gpt { sector_bytes: sector, is_backup: true };
            assert_eq!((table.format, table.partitions.len()), (backup, 1), "{sector} {damaged}");
            assert!(table.to_string().contains("the first one is damaged"));
        }
    }
}

#[test]
fn a_gpt_without_a_sound_copy_is_an_error() {
    let disk = MemoryDevice::new(DISK);
    Gpt::new(512, &[(MIB, 32 * MIB)]).write(&disk);
    disk.write_at(Physical(512 + 40), vec![0xa5]).unwrap();
    disk.write_at(Physical(DISK - 512 + 40), vec![0xa5]).unwrap();
    let why = "its header does not match its checksum";
    assert_eq!(chosen(&disk, NamedPart::Partition(1)), Err(PartitionErrorKind::DamagedTable { why }));
    assert_eq!(chosen(&disk, NamedPart::Unsaid), Err(PartitionErrorKind::DamagedTable { why }));
    // The first superblock speaks for the whole, whatever lies before it.
    superblock(&disk, 0, PRIMARY);
    assert_eq!(chosen(&disk, NamedPart::Unsaid), Ok(None));
    let disk = MemoryDevice::new(DISK);
    disk.write_at(Physical(0), mbr(&[(0xee, 1, u32::MAX)])).unwrap();
    assert!(matches!(PartitionTable::read(&disk), Ok(TableRead::Damaged(_))));
}

#[test]
fn headers_that_ask_for_much_are_refused() {
    let right = Gpt::new(512, &[(MIB, 32 * MIB)]);
    for (changed, why) in [
        (Gpt { count: u32::MAX, ..right.clone() }, "more than 4096"),
        (Gpt { entry_bytes: 1 << 31, ..right.clone() }, "128 bytes"),
        (Gpt { entry_bytes: 256, ..right.clone() }, "128 bytes"),
        (Gpt { entry_bytes: 0, ..right.clone() }, "128 bytes"),
        (Gpt { header_bytes: u32::MAX, ..right.clone() }, "impossible length"),
        (Gpt { header_bytes: 8, ..right.clone() }, "impossible length"),
        (Gpt { count: 4096, ..right.clone() }, "checksum"),
    ] {
        let disk = MemoryDevice::new(DISK);
        changed.write(&disk);
        match PartitionTable::read(&disk).unwrap() {
            TableRead::Damaged(told) => assert!(told.contains(why), "{told}: {why}"),
            other => panic!("{why}: {other:?}"),
        }
    }
}

#[test]
fn partitions_that_are_not_their_own_cannot_be_used() {
    let disk = MemoryDevice::new(DISK);
    let mut table = Gpt::new(
        512,
        &[
            (MIB, 8 * MIB),
            (4 * MIB, 12 * MIB),
            (16 * MIB, DISK + MIB),
            (1024, 2 * MIB - MIB),
            (DISK - 4096, DISK),
        ],
    );
    table.entries.extend([(100, 99), (u64::MAX, u64::MAX), (0, u64::MAX - 1)]);
    table.write(&disk);
    for start in [MIB, 4 * MIB, 16 * MIB] {
        superblock(&disk, start, PRIMARY);
    }
    let found = sound(&disk);
    let is = |index: usize| found.partitions[index].fault.unwrap();
    assert!(matches!(is(0), PartitionFault::Overlaps { .. }), "{found:?}");
    assert!(matches!(is(1), PartitionFault::Overlaps { .. }), "{found:?}");
    assert_eq!(is(2), PartitionFault::OutsideOfDisk { end: DISK + MIB, disk_bytes: DISK });
    assert_eq!(is(3), PartitionFault::InTable);
    assert_eq!(is(4), PartitionFault::InTable, "the copy's header");
    assert!(matches!(is(5), PartitionFault::Empty));
    assert!(matches!(is(6), PartitionFault::Empty | PartitionFault::OutsideOfDisk { .. }));
    assert!(matches!(is(7), PartitionFault::OutsideOfDisk { .. }));
    for number in 1..=8 {
        let refused = chosen(&disk, NamedPart::Partition(number));
        let is_expected = matches!(refused, Err(PartitionErrorKind::Unusable { .. }));
        assert!(is_expected, "{number}: {refused:?}");
    }
    assert!(matches!(chosen(&disk, NamedPart::Unsaid), Err(PartitionErrorKind::NoBtrfs { .. })));
    assert!(matches!(
        chosen(&disk, NamedPart::Partition(9)),
        Err(PartitionErrorKind::NoSuchPartition { number: 9, .. })
    ));
}

#[test]
fn neighbours_do_not_overlap() {
    let disk = MemoryDevice::new(DISK);
    let between: Vec<(u64, u64)> = (1..40).rev().map(|index| (index * MIB, (index + 1) * MIB)).collect();
    Gpt::new(512, &between).write(&disk);
    assert!(faults(&sound(&disk)).iter().all(Option::is_none));
    // One inside another, and the ones behind both.
    let nested = [(MIB, 30 * MIB), (4 * MIB, 8 * MIB), (16 * MIB, 20 * MIB), (30 * MIB, 31 * MIB)];
    Gpt::new(512, &nested).write(&disk);
    let found = faults(&sound(&disk));
    assert_eq!(found.iter().map(Option::is_some).collect::<Vec<_>>(), [true, true, true, false]);
}

#[test]
fn an_mbr_has_primary_and_logical_partitions() {
    let disk = MemoryDevice::new(DISK);
    let extended = 16384;
    disk.write_at(Physical(0), mbr(&[(0x83, 2048, 8192), (0x0f, extended, 65536)])).unwrap();
    let link = |at: u32, table: &[(u8, u32, u32)]| {
        disk.write_at(Physical(u64::from(at) * 512), mbr(table)).unwrap();
    };
    link(extended, &[(0x83, 2048, 4096), (0x05, 8192, 16384)]);
    link(extended + 8192, &[(0x82, 2048, 4096), (0x05, 24576, 16384)]);
    link(extended + 24576, &[(0x83, 2048, 8192)]);
    let table = sound(&disk);
    assert_eq!(table.format, TableFormat::Mbr);
    let starts: Vec<(u32, u64)> = table.partitions.iter().map(|one| (one.number, one.start / 512)).collect();
    assert_eq!(starts, [(1, 2048), (2, 16384), (5, 18432), (6, 26624), (7, 43008)]);
    assert_eq!(faults(&table), [None, Some(PartitionFault::Extended), None, None, None]);
    superblock(&disk, 43008 * 512, PRIMARY);
    assert_eq!(chosen(&disk, NamedPart::Unsaid), Ok(Some(43008 * 512..(43008 + 8192) * 512)));
    let told = sound(&disk).to_string();
    assert!(
        told.contains("2 extended at") && told.contains("6 Linux swap at") && told.contains("7 Btrfs at")
    );
    assert!(matches!(
        chosen(&disk, NamedPart::Partition(2)),
        Err(PartitionErrorKind::Unusable { fault: PartitionFault::Extended, .. })
    ));
}

#[test]
fn chains_that_loop_or_lead_astray_end() {
    for (next, why) in
        [(0, "does not end"), (1 << 30, "behind the end"), (8192, "damaged"), (1, "does not end")]
    {
        let disk = MemoryDevice::new(DISK);
        disk.write_at(Physical(0), mbr(&[(0x05, 16384, 65536), (0x83, 2048, 1024)])).unwrap();
        for at in 16384..=16385_u64 {
            disk.write_at(Physical(at * 512), mbr(&[(0x83, 2048, 4096), (0x05, next, 8192)])).unwrap();
        }
        let table = sound(&disk);
        assert!(table.broken.is_some_and(|told| told.contains(why)), "{next}: {table:?}");
        assert!(table.partitions.len() <= 258);
        assert_eq!(table.partition(2).unwrap().fault, None, "the sound one can be used");
    }
}

#[test]
fn boot_sectors_of_file_systems_are_no_tables() {
    let disk = MemoryDevice::new(DISK);
    assert_eq!(PartitionTable::read(&disk).unwrap(), TableRead::Absent);
    disk.write_at(Physical(0), mbr(&[])).unwrap();
    assert_eq!(PartitionTable::read(&disk).unwrap(), TableRead::Absent);
    let mut code = mbr(&[(0x61, 0x7262_7a6f, 0x6974)]);
    code[446] = b'm';
    disk.write_at(Physical(0), code).unwrap();
    assert_eq!(PartitionTable::read(&disk).unwrap(), TableRead::Absent);
    assert_eq!(chosen(&disk, NamedPart::Unsaid), Ok(None));
    assert_eq!(chosen(&disk, NamedPart::Partition(1)), Err(PartitionErrorKind::NoTable { number: 1 }));
    for length in [0, 1, 511, 512, 1024, 4096] {
        assert_eq!(PartitionTable::read(&MemoryDevice::new(length)).unwrap(), TableRead::Absent);
    }
}

#[test]
fn an_mbr_with_real_entries_wins_over_an_old_gpt() {
    let disk = MemoryDevice::new(DISK);
    Gpt::new(512, &[(MIB, 4 * MIB)]).write(&disk);
    disk.write_at(Physical(0), mbr(&[(0x83, 4096, 8192)])).unwrap();
    assert_eq!(chosen(&disk, NamedPart::Partition(1)), Ok(Some(2 * MIB..6 * MIB)));
}

#[test]
fn several_filesystems_must_be_told_apart() {
    let disk = MemoryDevice::new(DISK);
    Gpt::new(512, &[(MIB, 4 * MIB), (4 * MIB, 8 * MIB), (8 * MIB, 16 * MIB)]).write(&disk);
    superblock(&disk, 4 * MIB, PRIMARY);
    superblock(&disk, 8 * MIB, PRIMARY);
    match chosen(&disk, NamedPart::Unsaid) {
        Err(kind @ PartitionErrorKind::SeveralBtrfs { .. }) => assert!(kind.advice().contains("IMAGE@2")),
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_copy_speaks_where_no_first_superblock_does() {
    let second = 64 * MIB;
    let disk = MemoryDevice::new(256 * MIB);
    Gpt::new(512, &[(MIB, 80 * MIB), (80 * MIB, 200 * MIB)]).write(&disk);
    // A copy that is another's first one, by its place on the disk, is none.
    superblock(&disk, 80 * MIB - PRIMARY, PRIMARY);
    superblock(&disk, 80 * MIB, second);
    assert_eq!(chosen(&disk, NamedPart::Unsaid), Ok(Some(80 * MIB..200 * MIB)));
    let disk = MemoryDevice::new(256 * MIB);
    Gpt::new(512, &[(MIB, 60 * MIB)]).write(&disk);
    superblock(&disk, 0, second);
    assert_eq!(chosen(&disk, NamedPart::Unsaid), Ok(None), "an old table before a damaged file system");
}

#[test]
fn ranges_lie_on_the_disk_in_whole_sectors() {
    let disk = MemoryDevice::new(DISK + 100);
    let range = |start, length_bytes| chosen(&disk, NamedPart::Bytes { start, length_bytes });
    assert_eq!(range(MIB, None), Ok(Some(MIB..DISK)));
    assert_eq!(range(0, Some(DISK)), Ok(Some(0..DISK)));
    for (start, length) in [(1, None), (0, Some(100)), (0, Some(0)), (100, Some(512))] {
        let refused = range(start, length);
        assert!(
            matches!(refused, Err(PartitionErrorKind::OddRange { .. })),
            "{start} {length:?} {refused:?}"
        );
    }
    for (start, length) in [(DISK, None), (DISK, Some(512)), (u64::MAX - 511, Some(512)), (512, Some(DISK))] {
        let refused = range(start, length);
        assert!(
            matches!(refused, Err(PartitionErrorKind::OutsideOfDisk { .. })),
            "{start} {length:?} {refused:?}"
        );
    }
}

proptest! {
    #[test]
    fn no_bytes_make_a_table_that_leads_outside(
        flips in proptest::collection::vec((0..40_960_usize, any::<u8>()), 0..40),
        sector in prop_oneof![Just(512_u64), Just(4096)],
        is_mbr in any::<bool>(),
        count in 0..5_u32,
        length in prop_oneof![Just(DISK), 1..DISK],
    ) {
        let disk = MemoryDevice::new(DISK);
        if is_mbr {
            disk.write_at(Physical(0), mbr(&[(0x83, 2048, 1024), (0x05, 32, 4096)])).unwrap();
            disk.write_at(Physical(32 * 512), mbr(&[(0x83, 1, 1024), (0x05, 33, 4096)])).unwrap();
        } else {
            let mut table = Gpt::new(sector, &[(MIB, 4 * MIB), (4 * MIB, 8 * MIB)]);
            table.entries.extend((0..count).map(|index| (u64::from(index) << 60, u64::MAX >> index)));
            table.write(&disk);
        }
        for (place, byte) in flips {
            disk.write_at(Physical(place as u64), vec![byte]).unwrap();
        }
        disk.resize(length);
        for part in (0..12).map(NamedPart::Partition).chain([NamedPart::Unsaid]) {
            if let Ok(Some(chosen)) = choose(&disk, part) {
                prop_assert!(chosen.range.start < chosen.range.end && chosen.range.end <= length);
                prop_assert!(chosen.range.start >= 512);
            }
        }
        if let Ok(TableRead::Sound(table)) = PartitionTable::read(&disk) {
            let usable: Vec<_> = table.partitions.iter().filter(|one| one.fault.is_none()).collect();
            for (index, one) in usable.iter().enumerate() {
                for other in &usable[..index] {
                    prop_assert!(one.end() <= other.start || other.end() <= one.start);
                }
            }
            prop_assert!(table.to_string().len() < 4096);
        }
    }
}
