use super::*;
use vlinder_format::chunk::ChunkFault;
use vlinder_format::superblock::SuperblockFault;

fn open(device: &Arc<Faulty>) -> Result<Opened, VolumeError> {
    let devices = vec![Arc::clone(device) as Arc<dyn Device>];
    Volume::open(devices, SuperblockChoice::Automatic, Access::ReadWrite)
}

fn fault(result: Result<Opened, VolumeError>) -> (SuperblockFault, Option<(SuperblockMirror, Generation)>) {
    match result {
        Err(VolumeError::Superblock { fault, usable_copy, .. }) => (fault, usable_copy),
        other => panic!("{other:?}"),
    }
}

#[test]
fn the_primary_wins_even_over_a_newer_copy() {
    let device = Faulty::new(LENGTH);
    put(&*device, &superblock(5), SuperblockMirror::Primary);
    put(&*device, &superblock(6), SuperblockMirror::Second);
    let opened = open(&device).unwrap();
    assert_eq!(opened.superblock.generation, Generation(5));
    assert_eq!(opened.mirror, SuperblockMirror::Primary);
    assert_eq!(opened.volume.chunks().len(), 1, "the system chunk is known");
    assert_eq!(opened.volume.members().total_bytes(), LENGTH);
}

#[test]
fn a_valid_copy_beside_no_primary_is_named_but_not_taken() {
    let device = Faulty::new(LENGTH);
    assert_eq!(fault(open(&device)), (SuperblockFault::Magic { found: 0 }, None));
    put(&*device, &superblock(6), SuperblockMirror::Second);
    let usable = Some((SuperblockMirror::Second, Generation(6)));
    assert_eq!(fault(open(&device)), (SuperblockFault::Magic { found: 0 }, usable));
    let message = open(&device).unwrap_err().to_string();
    assert!(message.contains("67108864") && message.contains("generation 6"), "{message}");
    let devices = vec![Arc::clone(&device) as Arc<dyn Device>];
    let choice = SuperblockChoice::Mirror(SuperblockMirror::Second);
    let opened = Volume::open(devices, choice, Access::ReadOnly).unwrap();
    assert_eq!(opened.mirror, SuperblockMirror::Second);
    device.fail_reads_of(SuperblockMirror::Primary.offset().0);
    assert_eq!(fault(open(&device)), (SuperblockFault::Magic { found: 0 }, usable));
    device.fail_reads_of(SuperblockMirror::Second.offset().0);
    assert!(matches!(open(&device), Err(VolumeError::Device(_))));
    device.heal();
}

#[test]
fn a_primary_with_another_checksum_is_named() {
    let device = Faulty::new(LENGTH);
    put(&*device, &superblock(5), SuperblockMirror::Primary);
    open(&device).unwrap();
    let unused = SuperblockMirror::Primary.offset().0 + 4000;
    device.inner.write_at(Physical(unused), vec![1]).unwrap();
    assert_eq!(fault(open(&device)), (SuperblockFault::Checksum, None));
}

#[test]
fn devices_that_do_not_fit_are_named() {
    let device = Faulty::new(LENGTH);
    let mut own = superblock(5);
    own.device_item.total_bytes = LENGTH + 4096;
    put(&*device, &own, SuperblockMirror::Primary);
    let expected = LENGTH + 4096;
    assert!(
        matches!(open(&device), Err(VolumeError::DeviceTooShort { found: LENGTH, expected: e, .. }) if e == expected)
    );
    let mut own = superblock(5);
    own.device_count = 2;
    put(&*device, &own, SuperblockMirror::Primary);
    assert_eq!(open(&device).unwrap_err(), VolumeError::DeviceCount { found: 1, expected: 2 });
    assert!(matches!(
        Volume::open(Vec::new(), SuperblockChoice::Automatic, Access::ReadOnly),
        Err(VolumeError::NoDevice)
    ));
}

#[test]
fn several_devices_are_told_apart() {
    let (first, second) = (Faulty::new(LENGTH), Faulty::new(LENGTH));
    let both = || vec![Arc::clone(&first) as Arc<dyn Device>, Arc::clone(&second) as Arc<dyn Device>];
    put(&*first, &superblock(5), SuperblockMirror::Primary);
    let mut foreign = superblock(4);
    foreign.fsid = Uuid([8; 16]);
    foreign.device_item.fsid = Uuid([8; 16]);
    put(&*second, &foreign, SuperblockMirror::Primary);
    let open = || Volume::open(both(), SuperblockChoice::Automatic, Access::ReadOnly);
    assert!(matches!(open(), Err(VolumeError::ForeignDevice { found: Uuid([8, ..]), .. })));
    put(&*second, &superblock(5), SuperblockMirror::Primary);
    assert!(matches!(open(), Err(VolumeError::DuplicateDevice { device: DeviceId(1) })));
    let mut own = superblock(5);
    own.device_count = 2;
    put(&*first, &own, SuperblockMirror::Primary);
    own.device_item.device = DeviceId(2);
    put(&*second, &own, SuperblockMirror::Primary);
    let opened = open().unwrap();
    assert_eq!(opened.volume.members().iter().map(|member| member.id.0).collect::<Vec<_>>(), [1, 2]);
}

#[test]
fn a_scan_sorts_devices_by_file_system() {
    let devices: Vec<Arc<Faulty>> = (0..4).map(|_| Faulty::new(LENGTH)).collect();
    let mut own = superblock(5);
    own.device_count = 2;
    own.device_item.device = DeviceId(2);
    put(&*devices[0], &own, SuperblockMirror::Primary);
    own.device_item.device = DeviceId(1);
    put(&*devices[1], &own, SuperblockMirror::Primary);
    let mut other = superblock(9);
    other.fsid = Uuid([1; 16]);
    other.device_item.fsid = Uuid([1; 16]);
    put(&*devices[2], &other, SuperblockMirror::Primary);
    let found = scan(devices.iter().map(|device| Arc::clone(device) as Arc<dyn Device>).collect());
    assert_eq!(found.refused.len(), 1);
    let shape: Vec<_> = found
        .file_systems
        .iter()
        .map(|known| {
            let members: Vec<u64> = known.members.iter().map(|(_, own)| own.device_item.device.0).collect();
            (known.fsid.0[0], members)
        })
        .collect();
    assert_eq!(shape, [(1, vec![1]), (7, vec![1, 2])]);
}

#[test]
fn chunks_keep_to_their_rules_and_to_the_devices() {
    let device = Faulty::new(LENGTH);
    let volume = dup_volume(&device, Access::ReadWrite);
    let data = |physical| chunk(BlockGroupFlags::DATA, &[physical]);
    let next = Logical(CHUNK.0 + 8 * MEBIBYTE);
    assert_eq!(volume.chunks().next_logical(), next);
    volume.add_chunk(next, data(64 * MEBIBYTE)).unwrap();
    volume.add_chunk(next, data(64 * MEBIBYTE)).unwrap();
    // As a file system of an old mkfs.btrfs has it in one of two places.
    let of_old_mkfs = Chunk { sub_stripes: 0, ..data(64 * MEBIBYTE) };
    assert_ne!(of_old_mkfs, data(64 * MEBIBYTE));
    volume.add_chunk(next, of_old_mkfs).unwrap();
    let overlap = |logical, other| Err(VolumeError::ChunkOverlap { logical, other });
    assert_eq!(volume.add_chunk(next, data(72 * MEBIBYTE)), overlap(next, next));
    let inside = Logical(next.0 + 4096);
    assert_eq!(volume.add_chunk(inside, data(72 * MEBIBYTE)), overlap(inside, next));
    let before = Logical(CHUNK.0 - 4096);
    assert_eq!(volume.add_chunk(before, data(72 * MEBIBYTE)), overlap(before, CHUNK));
    let far = Logical(100 * MEBIBYTE);
    let (physical, length) = (Physical(LENGTH - 8 * MEBIBYTE + 4096), 8 * MEBIBYTE);
    let place = VolumeError::ChunkPlace { logical: far, device: DeviceId(1), physical, length };
    assert_eq!(volume.add_chunk(far, data(physical.0)), Err(place));
    volume.add_chunk(far, data(physical.0 - 4096)).unwrap();
    let mut stranger = data(72 * MEBIBYTE);
    stranger.stripes[0].device = DeviceId(3);
    assert!(matches!(
        volume.add_chunk(Logical(200 * MEBIBYTE), stranger),
        Err(VolumeError::ChunkPlace { device: DeviceId(3), .. })
    ));
    let mut broken = data(72 * MEBIBYTE);
    broken.stripe_length = 5;
    let source = ChunkFault::StripeLength { found: 5 };
    let logical = Logical(200 * MEBIBYTE);
    assert_eq!(volume.add_chunk(logical, broken), Err(VolumeError::Chunk { logical, source }));
    assert!(volume.remove_chunk(next) && !volume.remove_chunk(next));
    assert!(volume.chunks().get(next).is_none());
    assert_eq!(volume.chunks().get(Logical(next.0 - 1)).unwrap().logical, CHUNK);
    assert_eq!(volume.chunks().snapshot().last().unwrap().logical, far);
}
