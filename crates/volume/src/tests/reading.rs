use super::*;
use vlinder_device::Data;
use vlinder_format::block::BlockFault;
use vlinder_format::{Damage, Place};

const AT: Logical = Logical(CHUNK.0 + 65536);
const REQUEST: ReadRequest = ReadRequest { logical: AT, length: 16384 };

fn good_block(bytes: Vec<u8>) -> Result<Vec<u8>, Damage> {
    if bytes.iter().all(|byte| *byte == 7) {
        Ok(bytes)
    } else {
        Err(Damage::new(BlockFault::Checksum, Place { block: Some(AT), ..Place::default() }))
    }
}

/// A device whose chunk holds sevens at [`AT`].
fn sevens(access: Access) -> (Arc<Faulty>, Volume) {
    let device = Faulty::new(LENGTH);
    let volume = dup_volume(&device, Access::ReadWrite);
    volume.write(vec![WriteRequest { logical: AT, data: Data::from(vec![7; 16384]) }]).unwrap();
    if access == Access::ReadOnly {
        volume.make_read_only();
    }
    (device, volume)
}

fn spoil(device: &Faulty, mirror: u64, distance: u64) {
    device.inner.write_at(Physical(place_of(AT, mirror) + distance), vec![9]).unwrap();
}

#[test]
fn a_good_first_copy_is_enough() {
    let (device, volume) = sevens(Access::ReadWrite);
    spoil(&device, 1, 0);
    let found = volume.read_verified(REQUEST, &mut good_block).unwrap();
    assert_eq!((found.value.len(), found.bad_copies.len()), (16384, 0));
}

#[test]
fn a_bad_first_copy_is_replaced_counted_and_rewritten() {
    let (device, volume) = sevens(Access::ReadWrite);
    spoil(&device, 0, 100);
    let found = volume.read_verified(REQUEST, &mut good_block).unwrap();
    assert_eq!(found.value, vec![7; 16384]);
    let bad = &found.bad_copies[0];
    assert!(bad.repaired);
    assert_eq!((bad.failure.mirror, bad.failure.device), (0, DeviceId(1)));
    assert_eq!(bad.failure.physical, Physical(place_of(AT, 0)));
    assert_eq!(copy_of(&device, AT, 0, 16384), vec![7; 16384]);
    assert_eq!(volume.member(DeviceId(1)).unwrap().statistics().corruption_errors, 1);
    assert!(volume.read_verified(REQUEST, &mut good_block).unwrap().bad_copies.is_empty());
}

#[test]
fn an_unreadable_first_copy_is_replaced_and_rewritten() {
    let (device, volume) = sevens(Access::ReadWrite);
    device.fail_reads_of(place_of(AT, 0) + 5000);
    let found = volume.read_verified(REQUEST, &mut good_block).unwrap();
    assert!(matches!(found.bad_copies[0].failure.fault, CopyFault::Device(_)));
    assert!(found.bad_copies[0].repaired, "a sector that can't be read often can be written");
    assert!(volume.member(DeviceId(1)).unwrap().statistics().read_errors >= 1);
}

#[test]
fn a_read_only_volume_repairs_nothing() {
    let (device, volume) = sevens(Access::ReadOnly);
    spoil(&device, 0, 100);
    device.take_log();
    let found = volume.read_verified(REQUEST, &mut good_block).unwrap();
    assert!(!found.bad_copies[0].repaired);
    assert_eq!(device.take_log(), []);
}

#[test]
fn nothing_is_repaired_while_a_write_is_in_flight() {
    let (device, volume) = sevens(Access::ReadWrite);
    spoil(&device, 0, 100);
    let other = WriteRequest { logical: CHUNK, data: Data::from(vec![1; 4096]) };
    let pending = volume.submit_writes(vec![other]).unwrap();
    assert!(!volume.read_verified(REQUEST, &mut good_block).unwrap().bad_copies[0].repaired);
    pending.wait().unwrap();
    assert!(volume.read_verified(REQUEST, &mut good_block).unwrap().bad_copies[0].repaired);
}

#[test]
fn no_good_copy_is_an_error_that_names_each() {
    let (device, volume) = sevens(Access::ReadWrite);
    spoil(&device, 0, 0);
    device.fail_reads_of(place_of(AT, 1));
    let error = volume.read_verified(REQUEST, &mut good_block).unwrap_err();
    let VolumeError::NoGoodCopy { logical, length, failures } = error else { panic!("{error}") };
    assert_eq!((logical, length, failures.len()), (AT, 16384, 2));
    assert!(matches!(failures[0].fault, CopyFault::Damage(_)));
    assert!(matches!(failures[1].fault, CopyFault::Device(_)));
}

#[test]
fn a_wrong_generation_is_counted_apart() {
    let (_, volume) = sevens(Access::ReadOnly);
    let fault = BlockFault::Generation { found: Generation(1), expected: Generation(2) };
    let refused =
        volume.read_verified::<()>(REQUEST, &mut |_| Err(Damage::new(fault.clone(), Place::default())));
    assert!(refused.is_err());
    let counted = volume.member(DeviceId(1)).unwrap().statistics();
    assert_eq!((counted.generation_errors, counted.corruption_errors), (2, 0));
}

#[test]
fn a_batch_gives_each_request_its_own_bytes_or_error() {
    let device = Faulty::new(LENGTH);
    let volume = dup_volume(&device, Access::ReadWrite);
    let at = |number: u64| Logical(CHUNK.0 + (63 - number) * 16384);
    let data = |number: u64| Data::from(vec![number as u8; 16384]);
    let writes = (0..64).map(|number| WriteRequest { logical: at(number), data: data(number) }).collect();
    volume.write(writes).unwrap();
    let mut requests: Vec<_> =
        (0..64).map(|number| ReadRequest { logical: at(number), length: 16384 }).collect();
    requests[5].logical = Logical(0);
    let results = volume.submit_reads(&requests).wait(&mut |number, bytes| {
        assert_eq!(bytes, vec![number as u8; 16384]);
        Ok(number)
    });
    for (number, result) in results.into_iter().enumerate() {
        match result {
            Ok(found) => assert_eq!(found.value, number),
            Err(error) => {
                assert_eq!(
                    (number, error),
                    (5, VolumeError::Unmapped { logical: Logical(0), length: 16384 })
                );
            }
        }
    }
}

/// Sectors of 4 KiB that must be all 7.
fn good_sector(_: usize, bytes: &[u8]) -> bool {
    bytes.iter().all(|byte| *byte == 7)
}

#[test]
fn data_are_put_together_from_the_good_sectors_of_both_copies() {
    let (device, volume) = sevens(Access::ReadWrite);
    spoil(&device, 0, 4096);
    spoil(&device, 0, 3 * 4096);
    spoil(&device, 1, 0);
    let found = volume.read_data(REQUEST, &mut good_sector).unwrap();
    assert_eq!(found.value, vec![7; 16384]);
    let repaired: Vec<_> =
        found.bad_copies.iter().map(|bad| (bad.failure.physical.0, bad.repaired)).collect();
    assert_eq!(repaired, [(place_of(AT, 0) + 4096, true), (place_of(AT, 0) + 3 * 4096, true)]);
    assert_eq!(copy_of(&device, AT, 0, 16384), vec![7; 16384]);
}

#[test]
fn reads_into_used_buffers_show_nothing_of_old_content() {
    let (device, volume) = sevens(Access::ReadOnly);
    let submit = |buffers: &mut Vec<Vec<u8>>| {
        volume.submit_reads_into([(REQUEST, MappedBy::AnyChunk)].into_iter(), buffers).keep()
    };
    let finish = |in_flight: ReadsInFlight| {
        let mut results =
            volume.attend(in_flight).wait_data(&mut |_, sector, bytes| good_sector(sector, bytes));
        results.pop().unwrap()
    };
    for length in [4096, 16384, 20_000] {
        let mut buffers = vec![vec![0xee; 16384], vec![0xee; length]];
        let place = buffers[1].as_ptr();
        let found = finish(submit(&mut buffers)).unwrap().value;
        assert_eq!((found.len(), buffers.len()), (16384, 1));
        assert_eq!(found, vec![7; 16384]);
        assert!(found.as_ptr() == place || length < 16384);
    }
    // The memory of a much larger one would be kept for nothing.
    let large = vec![0xee; 1 << 20];
    assert!(finish(submit(&mut vec![large])).unwrap().value.capacity() < 1 << 20);
    device.fail_reads_of(place_of(AT, 0));
    assert_eq!(finish(submit(&mut vec![vec![7; 16384]])).unwrap().value, vec![7; 16384]);
    device.fail_reads_of(place_of(AT, 1));
    // The buffers are full of what is looked for, and still nothing was read.
    assert!(matches!(finish(submit(&mut vec![vec![7; 16384]])), Err(VolumeError::NoGoodCopy { .. })));
}

#[test]
fn an_unreadable_sector_spoils_only_itself() {
    let (device, volume) = sevens(Access::ReadOnly);
    device.fail_reads_of(place_of(AT, 0));
    device.fail_reads_of(place_of(AT, 1) + 4096);
    assert_eq!(volume.read_data(REQUEST, &mut good_sector).unwrap().value, vec![7; 16384]);
    device.fail_reads_of(place_of(AT, 1));
    let error = volume.read_data(REQUEST, &mut good_sector).unwrap_err();
    assert!(
        matches!(error, VolumeError::NoGoodCopy { logical: AT, length: 4096, failures } if failures.len() == 2)
    );
}

#[test]
fn a_sector_that_no_copy_has_is_named() {
    let (device, volume) = sevens(Access::ReadWrite);
    spoil(&device, 0, 8192);
    spoil(&device, 1, 8192 + 7);
    let error = volume.read_data(REQUEST, &mut good_sector).unwrap_err();
    let VolumeError::NoGoodCopy { logical, length, failures } = error else { panic!("{error}") };
    assert_eq!((logical, length, failures.len()), (Logical(AT.0 + 8192), 4096, 2));
}

#[test]
fn data_may_end_inside_a_sector() {
    let (device, volume) = sevens(Access::ReadWrite);
    spoil(&device, 0, 4096);
    let request = ReadRequest { logical: AT, length: 5000 };
    let mut lengths = Vec::new();
    let found = volume.read_data(request, &mut |sector, bytes| {
        lengths.push((sector, bytes.len()));
        good_sector(sector, bytes)
    });
    assert_eq!(found.unwrap().value, vec![7; 5000]);
    assert_eq!(lengths[..2], [(0, 4096), (1, 904)]);
}

#[test]
fn requests_outside_chunks_are_errors() {
    let (_, volume) = sevens(Access::ReadWrite);
    let end = Logical(CHUNK.0 + 8 * MEBIBYTE - 4096);
    for (logical, length) in [(Logical(0), 4096), (end, 8192), (Logical(u64::MAX - 4095), 8192)] {
        let refused = volume.read_data(ReadRequest { logical, length }, &mut good_sector).unwrap_err();
        assert_eq!(refused, VolumeError::Unmapped { logical, length: length as u64 });
    }
    let empty = volume.read_data(ReadRequest { logical: AT, length: 0 }, &mut good_sector);
    assert_eq!(empty.unwrap_err(), VolumeError::Request { logical: AT, length: 0 });
}
