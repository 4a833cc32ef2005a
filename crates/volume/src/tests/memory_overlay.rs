//! Writes that stay in memory.

use super::*;

const IN_MEMORY: Access = Access::InMemory { most_bytes: 8 * 4096 };

fn request(sector: u64, bytes: Vec<u8>) -> WriteRequest {
    WriteRequest { logical: Logical(CHUNK.0 + sector * 4096), data: vlinder_device::Data::from(bytes) }
}

/// Bytes of the chunk as a caller reads them who takes whatever the first copy has.
fn read(volume: &Volume, first: u64, length: usize) -> Result<Vec<u8>, VolumeError> {
    let request = ReadRequest { logical: Logical(CHUNK.0 + first), length };
    volume.read_verified(request, &mut Ok).map(|read| read.value)
}

/// A device whose chunk copies are filled with 7.
fn filled() -> Arc<Faulty> {
    let device = Faulty::new(LENGTH);
    for start in [32, 48] {
        device.inner.write_at(Physical(start * MEBIBYTE), vec![7; 1 << 16]).unwrap();
    }
    device
}

#[test]
fn what_is_written_is_read_back_and_no_device_hears_of_it() {
    let device = filled();
    let volume = dup_volume(&device, IN_MEMORY);
    volume.write(vec![request(1, vec![1; 8192]), request(4, vec![2; 4096])]).unwrap();
    volume.write(vec![request(2, vec![3; 4096])]).unwrap();
    let mut expected = vec![7; 1 << 16];
    expected[4096..8192].fill(1);
    expected[8192..12288].fill(3);
    expected[16384..20480].fill(2);
    // From memory alone, from both, from the device alone; from the middle of a sector to the middle of
    // another.
    for (first, length) in
        [(4096, 8192), (0, 1 << 16), (0, 4096), (12288, 4096), (5000, 6000), (3000, 2000), (9000, 9000)]
    {
        let found = read(&volume, first, length).unwrap();
        assert_eq!(found, expected[first as usize..first as usize + length], "{first}+{length}");
    }
    let superblock = superblock(5);
    volume.flush_all().unwrap();
    volume.write_superblocks(&superblock, &[superblock.device_item]).unwrap();
    let discarded = volume.discard(CHUNK, 4096).unwrap();
    assert_eq!((discarded.told_bytes, discarded.refused_bytes), (0, 4096));
    assert_eq!(device.take_log(), []);
    assert_eq!(volume.published_superblocks(), [], "what is on the devices is what was committed");
}

#[test]
fn a_bad_copy_is_not_repaired_from_memory() {
    let device = filled();
    let volume = dup_volume(&device, IN_MEMORY);
    volume.write(vec![request(0, vec![1; 4096])]).unwrap();
    device.inner.write_at(Physical(place_of(Logical(CHUNK.0 + 4096), 0)), vec![8; 4096]).unwrap();
    let wanted = [vec![1; 4096], vec![7; 4096]].concat();
    let mut is_good = |sector: usize, bytes: &[u8]| bytes == &wanted[sector * 4096..][..4096];
    let read = volume.read_data(ReadRequest { logical: CHUNK, length: 8192 }, &mut is_good).unwrap();
    assert_eq!(read.value, wanted);
    assert_eq!(read.bad_copies.iter().map(|copy| copy.repaired).collect::<Vec<_>>(), [false]);
    assert_eq!(device.take_log(), []);
}

#[test]
fn what_is_kept_is_bounded_and_refused_whole() {
    let volume = dup_volume(&filled(), IN_MEMORY);
    volume.write(vec![request(0, vec![1; 6 * 4096])]).unwrap();
    let refused = Err(VolumeError::TooMuchKept { most_bytes: 8 * 4096 });
    assert_eq!(volume.write(vec![request(5, vec![2; 4 * 4096])]), refused);
    assert_eq!(read(&volume, 5 * 4096, 8192).unwrap(), [vec![1; 4096], vec![7; 4096]].concat());
    volume.write(vec![request(5, vec![2; 3 * 4096])]).unwrap();
    assert_eq!(read(&volume, 5 * 4096, 3 * 4096).unwrap(), vec![2; 3 * 4096]);
    // Half a sector, and what no chunk covers.
    assert!(matches!(volume.write(vec![request(0, vec![1; 2048])]), Err(VolumeError::Request { .. })));
    assert!(matches!(volume.write(vec![request(1 << 20, vec![1; 4096])]), Err(VolumeError::Unmapped { .. })));
    volume.make_read_only();
    assert_eq!(volume.write(vec![request(0, vec![1; 4096])]), Err(VolumeError::ReadOnly));
    assert_eq!(read(&volume, 0, 4096).unwrap(), vec![1; 4096]);
}
