use super::*;
use vlinder_device::Data;
use vlinder_format::block::BlockFault;
use vlinder_format::{Damage, Place};

/// Two sectors of the test chunk.
const REQUEST: ReadRequest = ReadRequest { logical: CHUNK, length: 8192 };

/// A volume whose test chunk begins with sectors of 1 and 2, in both copies.
fn written(device: &Arc<Faulty>) -> Volume {
    let volume = dup_volume(device, Access::ReadWrite);
    volume.write(vec![WriteRequest { logical: CHUNK, data: Data::from(content()) }]).unwrap();
    volume
}

fn of(volume: &Volume) -> Reconstructions<'_> {
    Reconstructions::of(volume, REQUEST).unwrap()
}

fn content() -> Vec<u8> {
    [vec![1; 4096], vec![2; 4096]].concat()
}

fn wrong() -> CopyFault {
    CopyFault::Damage(Damage::new(BlockFault::Checksum, Place { block: Some(CHUNK), ..Place::default() }))
}

fn statistics(volume: &Volume) -> vlinder_format::device_statistics::DeviceStatistics {
    volume.member(DeviceId(1)).unwrap().statistics()
}

#[test]
fn each_copy_is_read_by_itself() {
    let device = Faulty::new(LENGTH);
    let volume = written(&device);
    assert_eq!(of(&volume).count(), 2);
    device.inner.write_at(Physical(place_of(CHUNK, 1)), vec![9; 4096]).unwrap();
    assert_eq!(of(&volume).read(0), Ok(content()));
    assert_eq!(of(&volume).read(1), Ok([vec![9; 4096], vec![2; 4096]].concat()));
    let unmapped = VolumeError::Unmapped { logical: CHUNK, length: 8192 };
    assert_eq!(of(&volume).read(2), Err(unmapped));
    device.fail_reads_of(place_of(CHUNK, 0));
    let Err(VolumeError::Copy(failure)) = of(&volume).read(0) else { panic!("it was read") };
    assert_eq!((failure.mirror, failure.device), (0, DeviceId(1)));
    assert_eq!(failure.physical, Physical(place_of(CHUNK, 0)));
    assert_eq!(statistics(&volume).read_errors, 1);
}

#[test]
fn a_comparison_names_the_sectors_that_differ() {
    let device = Faulty::new(LENGTH);
    let volume = written(&device);
    assert_eq!(of(&volume).compare(1, &content()), Ok(vec![]));
    device.inner.write_at(Physical(place_of(CHUNK, 1) + 4096), vec![9]).unwrap();
    let second = Logical(CHUNK.0 + 4096);
    assert_eq!(of(&volume).compare(1, &content()), Ok(vec![second]));
    assert_eq!(of(&volume).compare(0, &content()[..4096]), Ok(vec![second]), "too short");
    assert_eq!(statistics(&volume), Default::default(), "a difference does not say which is wrong");
}

#[test]
fn a_bad_copy_is_rewritten_with_the_good_one() {
    let device = Faulty::new(LENGTH);
    let volume = written(&device);
    device.inner.write_at(Physical(place_of(CHUNK, 1)), vec![9; 4096]).unwrap();
    let good = content();
    let rewrite = || {
        let replacement = Replacement { bad: 1, fault: wrong(), good: 0, bytes: &good };
        of(&volume).rewrite(replacement, &mut |bytes| bytes == good).unwrap()
    };
    let in_flight = volume.submit_writes(Vec::new()).unwrap();
    assert!(!rewrite().repaired, "writes are in flight");
    in_flight.wait().unwrap();
    let bad = rewrite();
    assert_eq!((bad.repaired, bad.failure.mirror), (true, 1));
    assert_eq!(copy_of(&device, CHUNK, 1, 8192), good);
    assert!(!rewrite().repaired, "it is good by now");
    assert_eq!(statistics(&volume).corruption_errors, 3);
    let healing = volume.member(DeviceId(1)).unwrap().healing();
    assert_eq!((healing.healed, healing.rewritten), (3, 1));
}

#[test]
fn nothing_is_rewritten_that_changed_or_may_not_be() {
    let device = Faulty::new(LENGTH);
    let volume = written(&device);
    let other = [vec![3; 4096], vec![4; 4096]].concat();
    device.take_log();
    let rewrite = |volume: &Volume| {
        let replacement = Replacement { bad: 1, fault: wrong(), good: 0, bytes: &other };
        of(volume).rewrite(replacement, &mut |bytes| bytes == other)
    };
    assert!(!rewrite(&volume).unwrap().repaired, "the good copy has other bytes");
    volume.make_read_only();
    assert_eq!(rewrite(&volume), Err(VolumeError::ReadOnly));
    let in_memory = dup_volume(&device, Access::InMemory { most_bytes: 1 << 20 });
    assert_eq!(rewrite(&in_memory), Err(VolumeError::ReadOnly));
    assert_eq!(device.take_log(), []);
}
