use std::collections::BTreeSet;

use vlinder_base::units::Physical;
use vlinder_device::{Device, DeviceExt};

use super::*;
use crate::SimulatedDevice;

const BLOCK: u64 = 4096;

/// A toy engine: writes a record of two blocks to new space, flushes, then points the head (block 0, durable)
/// at it.
fn commit(device: &SimulatedDevice, number: u8) {
    let place = 1 + 2 * u64::from(number);
    device.write_at(Physical(place * BLOCK), vec![number; BLOCK as usize]).unwrap();
    device.write_at(Physical((place + 1) * BLOCK), vec![number; BLOCK as usize]).unwrap();
    device.flush().unwrap();
    device.write_durable_at(Physical(0), vec![number; 512]).unwrap();
    device.mark(u64::from(number));
}

/// What the toy engine promises: the head's record is whole, and no older than the last mark.
fn holds(cut: &Cut) -> bool {
    let number = cut.image.read_at(Physical(0), 512).unwrap();
    let place = (1 + 2 * u64::from(number[0])) * BLOCK;
    let record = cut.image.read_at(Physical(place), 2 * BLOCK as usize).unwrap();
    let is_whole = number[0] == 0 || record.iter().all(|byte| *byte == number[0]);
    is_whole && u64::from(number[0]) >= cut.mark.unwrap_or(0)
}

fn workload() -> Recording {
    let device = SimulatedDevice::new(64 * BLOCK);
    for number in 1..=4 {
        commit(&device, number);
    }
    device.recording()
}

#[test]
fn an_engine_that_flushes_holds_in_every_state() {
    let mut cuts = PowerCuts::new(&workload(), CutOptions::default());
    for cut in cuts.by_ref() {
        assert!(holds(&cut), "{}", cut.description);
    }
    let summary = cuts.summary();
    assert_eq!(summary.changes, 12);
    assert!(summary.distinct_images > 30, "{summary:?}");
}

#[test]
fn leaving_out_any_flush_or_the_durable_write_is_found() {
    let recording = workload();
    assert_eq!(recording.flushes(), 4);
    for number in 0..4 {
        let broken = PowerCuts::new(&recording.without_flush(number), CutOptions::default());
        assert!(broken.into_iter().any(|cut| !holds(&cut)), "flush {number} is not missed");
    }
    assert!(
        PowerCuts::new(&recording.without_durable_writes(), CutOptions::default()).any(|cut| !holds(&cut))
    );
}

#[test]
fn a_small_epoch_gives_exactly_its_subsets() {
    let device = SimulatedDevice::new(64 * BLOCK);
    for place in 0..3 {
        device.write_at(Physical(place * BLOCK), vec![1; 512]).unwrap();
    }
    let options = CutOptions { torn: 0, ..CutOptions::default() };
    let mut cuts = PowerCuts::new(&device.recording(), options);
    let found: BTreeSet<Vec<bool>> = cuts
        .by_ref()
        .map(|cut| {
            (0..3).map(|place| cut.image.read_at(Physical(place * BLOCK), 1).unwrap() == [1]).collect()
        })
        .collect();
    assert_eq!(found.len(), 8);
    assert_eq!(cuts.summary().distinct_images, 8);
}

#[test]
fn a_large_epoch_is_sampled_the_same_for_the_same_seed() {
    let device = SimulatedDevice::new(1 << 20);
    for place in 0..40 {
        device.write_at(Physical(place * BLOCK), vec![7; BLOCK as usize]).unwrap();
    }
    let hashes = |seed| -> Vec<u128> {
        let options = CutOptions { seed, ..CutOptions::default() };
        PowerCuts::new(&device.recording(), options).map(|cut| cut.hash).collect()
    };
    assert_eq!(hashes(5), hashes(5));
    assert_ne!(hashes(5), hashes(6));
    assert!(hashes(5).len() > 500);
}

#[test]
fn torn_writes_of_both_units_appear() {
    let device = SimulatedDevice::new(1 << 20);
    device.write_at(Physical(0), vec![7; 16384]).unwrap();
    let options = CutOptions { torn: 40, ..CutOptions::default() };
    let mut sector_torn = false;
    let mut block_torn = false;
    for cut in PowerCuts::new(&device.recording(), options) {
        let bytes = cut.image.read_at(Physical(0), 16384).unwrap();
        let blocks: Vec<usize> =
            bytes.chunks(4096).map(|block| block.iter().filter(|byte| **byte == 7).count()).collect();
        sector_torn |= blocks.iter().any(|kept| kept % 4096 != 0);
        block_torn |= blocks.contains(&0) && blocks.contains(&4096);
    }
    assert!(sector_torn && block_torn);
}

#[test]
fn the_hash_knows_content_and_not_history() {
    let device = SimulatedDevice::new(1 << 20);
    device.write_at(Physical(0), vec![7; 512]).unwrap();
    device.flush().unwrap();
    device.write_at(Physical(0), vec![0; 512]).unwrap();
    let hashes: Vec<u128> =
        PowerCuts::new(&device.recording(), CutOptions::default()).map(|cut| cut.hash).collect();
    assert_eq!(hashes, [0, hashes[1]], "zeros, then 7; the zeros of the end are a known state");
    assert_ne!(hashes[1], 0);
}
