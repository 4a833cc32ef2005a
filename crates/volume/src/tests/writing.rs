use super::*;
use crate::known_primaries::KnownPrimaries;
use crate::profile::plan_write;
use vlinder_device::Data;
use vlinder_format::superblock::SuperblockFault;

fn request(logical: u64, byte: u8) -> WriteRequest {
    WriteRequest { logical: Logical(CHUNK.0 + logical), data: Data::from(vec![byte; 4096]) }
}

#[test]
fn all_copies_are_written_in_address_order() {
    let device = Faulty::new(LENGTH);
    let volume = dup_volume(&device, Access::ReadWrite);
    volume.write(vec![request(8192, 3), request(0, 1), request(4096, 2)]).unwrap();
    let starts: Vec<u64> = device.take_log().into_iter().map(|(_, offset)| offset).collect();
    let expected: Vec<u64> =
        [32, 48].iter().flat_map(|start| (0..3).map(move |n| start * MEBIBYTE + n * 4096)).collect();
    assert_eq!(starts, expected);
    for mirror in 0..2 {
        let found = copy_of(&device, CHUNK, mirror, 3 * 4096);
        assert_eq!(found, [vec![1; 4096], vec![2; 4096], vec![3; 4096]].concat());
    }
}

#[test]
fn a_copy_that_fails_is_an_error_and_counted() {
    let device = Faulty::new(LENGTH);
    let volume = dup_volume(&device, Access::ReadWrite);
    device.fail_writes_of(place_of(CHUNK, 1));
    let error = volume.write(vec![request(0, 1)]).unwrap_err();
    let VolumeError::WriteFailed { failures } = error else { panic!("{error}") };
    assert_eq!((failures.len(), failures[0].mirror), (1, 1));
    assert_eq!(volume.member(DeviceId(1)).unwrap().statistics().write_errors, 1);
    assert_eq!(volume.members().take_changed_statistics().len(), 1);
    assert_eq!(volume.members().take_changed_statistics().len(), 0);
}

#[test]
fn a_range_is_written_while_its_plan_tolerates_the_failures() {
    let device = Faulty::new(LENGTH);
    let volume = dup_volume(&device, Access::ReadWrite);
    let planned = |logical: u64, tolerated_failures| {
        let (chunk, request) = (volume.chunk(CHUNK, 4096).unwrap(), request(logical, 1));
        let plan = plan_write(&chunk, request.logical, 4096).unwrap();
        assert_eq!(plan.tolerated_failures, 0, "DUP lies on one device");
        (WritePlan { tolerated_failures, ..plan }, request.data)
    };
    let errors = || volume.member(DeviceId(1)).unwrap().statistics().write_errors;
    device.fail_writes_of(place_of(CHUNK, 1));
    PendingWrites::submit(&volume, vec![planned(0, 1), planned(4096, 1)]).wait().unwrap();
    assert_eq!(errors(), 1, "told to the health of its device all the same");
    device.fail_writes_of(place_of(CHUNK, 0));
    let failed = PendingWrites::submit(&volume, vec![planned(4096, 0), planned(0, 1)]).wait();
    let VolumeError::WriteFailed { failures } = failed.unwrap_err() else { panic!("another error") };
    assert_eq!(failures.iter().map(|failure| failure.mirror).collect::<Vec<_>>(), [0, 1]);
    assert_eq!(errors(), 3);
}

#[test]
fn nothing_is_written_where_anything_is_refused() {
    let device = Faulty::new(LENGTH);
    let volume = dup_volume(&device, Access::ReadWrite);
    assert!(volume.write(vec![request(0, 1), request(8 * MEBIBYTE, 2)]).is_err());
    volume.make_read_only();
    assert_eq!(volume.write(vec![request(0, 1)]), Err(VolumeError::ReadOnly));
    assert_eq!(volume.discard(CHUNK, 4096), Err(VolumeError::ReadOnly));
    let superblock = superblock(5);
    let refused = volume.write_superblocks(&superblock, &[superblock.device_item]);
    assert_eq!(refused, Err(VolumeError::ReadOnly));
    assert_eq!(device.take_log(), []);
}

#[test]
fn a_failed_flush_is_an_error_and_counted() {
    let device = Faulty::new(LENGTH);
    let volume = dup_volume(&device, Access::ReadWrite);
    volume.flush_all().unwrap();
    device.fail_flushes();
    assert!(matches!(volume.flush_all(), Err(VolumeError::Device(_))));
    assert_eq!(volume.member(DeviceId(1)).unwrap().statistics().flush_errors, 1);
}

#[test]
fn discards_reach_every_copy() {
    let device = Faulty::new(LENGTH);
    let volume = dup_volume(&device, Access::ReadWrite);
    volume.write(vec![request(0, 1), request(4096, 1)]).unwrap();
    let discarded = volume.discard(CHUNK, 4096).unwrap();
    assert_eq!((discarded.told_bytes, discarded.refused_bytes), (8192, 0));
    for mirror in 0..2 {
        let found = copy_of(&device, CHUNK, mirror, 8192);
        assert_eq!(found, [vec![0; 4096], vec![1; 4096]].concat());
    }
}

#[test]
fn the_primary_superblock_comes_last_and_durable() {
    let device = Faulty::new(LENGTH);
    let volume = dup_volume(&device, Access::ReadWrite);
    let first = superblock(5);
    volume.write_superblocks(&first, &[first.device_item]).unwrap();
    let (primary, second) = (SuperblockMirror::Primary.offset().0, SuperblockMirror::Second.offset().0);
    let log = device.take_log();
    assert_eq!(log, [("write", second), ("flush", 0), ("durable", primary)], "an unknown superblock before");
    let next = superblock(6);
    volume.write_superblocks(&next, &[next.device_item]).unwrap();
    assert_eq!(device.take_log(), [("write", second), ("durable", primary)]);
    for mirror in [SuperblockMirror::Primary, SuperblockMirror::Second] {
        let found = superblock::find(&*device, SuperblockChoice::Mirror(mirror)).unwrap().superblock;
        assert_eq!((found.location, found.generation), (mirror.offset(), Generation(6)));
    }
    volume.publish_log(Logical(4 * MEBIBYTE), Level::LEAF).unwrap();
    assert_eq!(device.take_log(), [("durable", primary)]);
    let find = |mirror| superblock::find(&*device, SuperblockChoice::Mirror(mirror)).unwrap().superblock;
    let (logged, copy) = (find(SuperblockMirror::Primary), find(SuperblockMirror::Second));
    assert_eq!((logged.log_root, logged.generation), (Logical(4 * MEBIBYTE), Generation(6)));
    assert_eq!((copy.log_root, copy.generation), (Logical(0), Generation(6)));
}

#[test]
fn superblocks_that_break_rules_are_refused() {
    let device = Faulty::new(LENGTH);
    let volume = dup_volume(&device, Access::ReadWrite);
    let mut broken = superblock(5);
    let item = broken.device_item;
    assert_eq!(
        volume.write_superblocks(&broken, &[]),
        Err(VolumeError::NoDeviceItem { device: DeviceId(1) })
    );
    broken.root = Logical(5);
    let fault = SuperblockFault::RootAlignment { root: "root tree", found: Logical(5) };
    assert_eq!(volume.write_superblocks(&broken, &[item]), Err(VolumeError::RefusedSuperblock(fault)));
    assert_eq!(device.take_log(), []);
}

#[test]
fn a_lost_copy_is_only_counted_but_a_lost_primary_is_an_error() {
    let device = Faulty::new(LENGTH);
    let volume = dup_volume(&device, Access::ReadWrite);
    let superblock = superblock(5);
    device.fail_writes_of(SuperblockMirror::Second.offset().0);
    volume.write_superblocks(&superblock, &[superblock.device_item]).unwrap();
    device.fail_writes_of(SuperblockMirror::Primary.offset().0);
    let failed = volume.write_superblocks(&superblock, &[superblock.device_item]);
    assert!(matches!(failed, Err(VolumeError::Device(_))));
    assert_eq!(volume.member(DeviceId(1)).unwrap().statistics().write_errors, 3);
}

/// As the kernel does when it mounts the image through a loop device.
fn publish_behind(device: &Arc<Faulty>, generation: u64) {
    let superblock = superblock(generation);
    let other = dup_volume(device, Access::ReadWrite);
    other.write_superblocks(&superblock, &[superblock.device_item]).unwrap();
    device.take_log();
}

#[test]
fn nothing_is_published_over_the_superblock_of_another_writer() {
    let device = Faulty::new(LENGTH);
    let volume = dup_volume(&device, Access::ReadWrite);
    let [first, second] = [5, 6].map(superblock);
    volume.write_superblocks(&first, &[first.device_item]).unwrap();
    volume.check_sole_writer().unwrap();
    publish_behind(&device, 7);
    let is_refused = |result: Result<(), VolumeError>| {
        let Err(VolumeError::WrittenByAnother { expected, found, .. }) = result else { panic!("{result:?}") };
        assert_eq!((expected, found), (Generation(5), Generation(7)));
    };
    is_refused(volume.check_sole_writer());
    is_refused(volume.write_superblocks(&second, &[second.device_item]));
    is_refused(volume.publish_log(Logical(4 * MEBIBYTE), Level::LEAF));
    assert_eq!(device.take_log(), [], "neither copies nor the primary");
}

#[test]
fn the_same_generation_of_another_writer_is_told_from_our_own() {
    let device = Faulty::new(LENGTH);
    let volume = dup_volume(&device, Access::ReadWrite);
    let first = superblock(5);
    volume.write_superblocks(&first, &[first.device_item]).unwrap();
    volume.publish_log(Logical(4 * MEBIBYTE), Level::LEAF).unwrap();
    volume.check_sole_writer().unwrap();
    publish_behind(&device, 5);
    assert!(
        matches!(volume.check_sole_writer(), Err(VolumeError::WrittenByAnother { .. })),
        "the log is gone"
    );
}

#[test]
fn a_failed_publication_is_not_taken_for_another_writers() {
    let device = Faulty::new(LENGTH);
    let volume = dup_volume(&device, Access::ReadWrite);
    let [first, second] = [5, 6].map(superblock);
    volume.write_superblocks(&first, &[first.device_item]).unwrap();
    device.fail_writes_of(SuperblockMirror::Primary.offset().0);
    assert!(volume.write_superblocks(&second, &[second.device_item]).is_err());
    volume.check_sole_writer().unwrap();
    // The write failed, and yet the bytes are there.
    device.heal();
    let kind = ChecksumKind::Crc32c;
    let bytes = superblock::encode(&second, SuperblockMirror::Primary, kind);
    device.write_at(SuperblockMirror::Primary.offset(), bytes).unwrap();
    volume.check_sole_writer().unwrap();
}

#[test]
fn an_unanswered_publication_is_not_taken_for_another_writers() {
    let device = Faulty::new(LENGTH);
    let volume = dup_volume(&device, Access::ReadWrite);
    let [first, second] = [5, 6].map(superblock);
    volume.write_superblocks(&first, &[first.device_item]).unwrap();
    device.leave_writes_unanswered(SuperblockMirror::Primary.offset().0);
    assert!(volume.write_superblocks(&second, &[second.device_item]).is_err());
    volume.check_sole_writer().unwrap();
}

#[test]
fn another_writers_publication_during_opening_is_noticed() {
    let device = Faulty::new(LENGTH);
    let [read, published] = [5, 6].map(superblock);
    let primary =
        |superblock| superblock::encode(superblock, SuperblockMirror::Primary, ChecksumKind::Crc32c);
    let offset = SuperblockMirror::Primary.offset();
    let volume = dup_volume(&device, Access::ReadWrite);
    device.write_at(offset, primary(&published)).unwrap();
    let mut primaries = KnownPrimaries::read(&volume.members());
    primaries.believe(DeviceId(1), &read);
    assert!(matches!(primaries.check(&volume.members()), Err(VolumeError::WrittenByAnother { .. })));
    device.write_at(offset, primary(&read)).unwrap();
    let mut primaries = KnownPrimaries::read(&volume.members());
    primaries
        .believe(DeviceId(1), &superblock::find(&*device, SuperblockChoice::default()).unwrap().superblock);
    primaries.check(&volume.members()).unwrap();
}
