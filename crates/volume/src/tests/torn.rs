//! The table of superblock::choice, over every way in which the write of a superblock can be cut.

use super::*;

/// Sectors of a superblock.
const SECTORS: usize = 8;

/// The state of a device after a cut in [`Volume::write_superblocks`]: the sectors of the primary that are
/// new, and whether the copy is.
fn cut(old: &Superblock, new: &Superblock, new_sectors: u32, copy_is_new: bool) -> Arc<Faulty> {
    let device = Faulty::new(LENGTH);
    let primary = SuperblockMirror::Primary;
    let mut bytes = encode(old, primary);
    let newer = encode(new, primary);
    for sector in (0..SECTORS).filter(|sector| new_sectors & (1 << sector) != 0) {
        let range = sector * 512..(sector + 1) * 512;
        bytes[range.clone()].copy_from_slice(&newer[range]);
    }
    device.write_at(primary.offset(), bytes.to_vec()).unwrap();
    put(&*device, if copy_is_new { new } else { old }, SuperblockMirror::Second);
    device
}

fn found(device: &Faulty) -> Result<Generation, VolumeError> {
    superblock::find(device, SuperblockChoice::Automatic).map(|found| found.superblock.generation)
}

#[test]
fn every_cut_of_a_commit_opens_with_the_old_or_the_new_one() {
    let (old, new) = (superblock(5), superblock(6));
    let (mut torn, mut olds, mut news) = (0, 0, 0);
    for new_sectors in 0..1 << SECTORS {
        for copy_is_new in [false, true] {
            let device = cut(&old, &new, new_sectors, copy_is_new);
            torn += usize::from(!matches!(
                superblock::copy::read_copy(&*device, SuperblockMirror::Primary, false),
                superblock::copy::Copy::Valid(_)
            ));
            let found =
                found(&device).unwrap_or_else(|error| panic!("{new_sectors:08b} {copy_is_new}: {error}"));
            match found.0 {
                5 => olds += 1,
                6 => news += 1,
                other => panic!("generation {other}"),
            }
            if new_sectors == 0 {
                assert_eq!(found, Generation(5), "the primary is the old one, whole");
            }
            if new_sectors == (1 << SECTORS) - 1 {
                assert_eq!(found, Generation(6), "the primary is the new one, whole");
            }
        }
    }
    // Sectors 0, 1, 5 (or 6) differ; of their 8 mixtures 6 are torn.
    assert_eq!((torn, olds, news), (384, 256, 256));
}

#[test]
fn a_commit_of_a_rare_field_has_its_copy_durable_first() {
    let old = superblock(5);
    let mut new = superblock(6);
    new.label = vlinder_format::superblock::Label::new(b"another").unwrap();
    let system = chunk(BlockGroupFlags::SYSTEM, &[9 * MEBIBYTE]);
    let array = SystemChunkArray::of([(Logical(MEBIBYTE), &system)]).unwrap();
    (new.system_chunk_array, new.system_array_size) = array;
    let device = Faulty::new(LENGTH);
    let volume = dup_volume(&device, Access::ReadWrite);
    volume.write_superblocks(&old, &[old.device_item]).unwrap();
    device.take_log();
    volume.write_superblocks(&new, &[new.device_item]).unwrap();
    assert_eq!(device.take_log()[1].0, "flush");
    for new_sectors in 0..1 << SECTORS {
        let device = cut(&old, &new, new_sectors, true);
        let untouched = device.read_at(SuperblockMirror::Primary.offset(), 4096).unwrap()
            == encode(&old, SuperblockMirror::Primary);
        let expected = Generation(if untouched { 5 } else { 6 });
        assert_eq!(found(&device), Ok(expected), "{new_sectors:08b}");
    }
}

/// The verdict over a damaged primary and a copy.
fn verdict(damage: impl FnOnce(&mut Superblock), copy: &Superblock) -> Result<Generation, VolumeError> {
    let device = Faulty::new(LENGTH);
    let mut primary = superblock(6);
    damage(&mut primary);
    let mut bytes = encode(&primary, SuperblockMirror::Primary);
    bytes[4000] ^= 1;
    device.write_at(SuperblockMirror::Primary.offset(), bytes.to_vec()).unwrap();
    put(&*device, copy, SuperblockMirror::Second);
    found(&device)
}

#[test]
fn a_damaged_primary_is_replaced_only_by_a_newer_commit() {
    assert_eq!(verdict(|_| {}, &superblock(6)), Ok(Generation(6)));
    assert_eq!(verdict(|_| {}, &superblock(9)), Ok(Generation(9)));
    assert!(
        verdict(|_| {}, &superblock(5)).is_err(),
        "generation 6 was published whole, so 5 may be overwritten"
    );
    assert!(verdict(|_| {}, &superblock(3)).is_err());
    let with_log = |primary: &mut Superblock| primary.log_root = Logical(4 * MEBIBYTE);
    assert!(verdict(with_log, &superblock(6)).is_err(), "the copy would lose the log");
    assert_eq!(verdict(with_log, &superblock(7)), Ok(Generation(7)));
    assert!(verdict(|primary| primary.fsid = Uuid([1; 16]), &superblock(6)).is_err());
    assert!(verdict(|primary| primary.device_count = 2, &superblock(6)).is_err());
    assert!(verdict(|primary| primary.magic = 0, &superblock(6)).is_err());
}

#[test]
fn a_primary_that_breaks_a_rule_is_no_torn_one() {
    let device = Faulty::new(LENGTH);
    let mut primary = superblock(6);
    primary.stripe_size = 3;
    put(&*device, &primary, SuperblockMirror::Primary);
    put(&*device, &superblock(6), SuperblockMirror::Second);
    assert!(found(&device).is_err());
}
