//! Every profile on as many devices as it may have, with every set of missing, failing and lying devices: what the profile
//! can bear is read right, what it cannot is an error, and nothing wrong is ever accepted.

use std::collections::BTreeMap;

use vlinder_codec::checksum::{Checksum, ChecksumKind, checksum};
use vlinder_device::{DeviceExt, MemoryDevice};
use vlinder_format::chunk::{BlockGroupFlags, Chunk, STRIPE_LENGTH, Stripe};
use vlinder_format::{RootId, Uuid};

use super::*;
use crate::profile::Profile;
use crate::{ReadRequest, Volume};

const SECTOR: usize = 4096;
const START: u64 = 1 << 20;
/// Where each device's stripe begins; so that one device's bytes are no other's.
const PHYSICAL: u64 = 2 << 20;
/// Rows of stripes: more than any number of devices, so that parity comes round.
const ROWS: u64 = 7;

fn random(seed: u64, length: usize) -> Vec<u8> {
    let mut state = seed;
    (0..length)
        .map(|_| {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (state >> 56) as u8
        })
        .collect()
}

/// How many stripes of data a row has, and copies of each.
fn shape(profile: Profile, devices: u64) -> Option<(u64, u64)> {
    let shape = match profile {
        Profile::Single if devices == 1 => (1, 1),
        Profile::Raid0 => (devices, 1),
        Profile::Raid1 if devices == 2 => (1, 2),
        Profile::Raid1c3 if devices == 3 => (1, 3),
        Profile::Raid1c4 if devices == 4 => (1, 4),
        Profile::Raid10 if devices.is_multiple_of(2) => (devices / 2, 2),
        Profile::Raid5 if devices >= 2 => (devices - 1, 1),
        Profile::Raid6 if devices >= 3 => (devices - 2, 1),
        _ => return None,
    };
    Some(shape)
}

/// By shifting and reducing: 2 to the power times the byte.
fn times_power(mut byte: u8, power: u64) -> u8 {
    for _ in 0..power {
        byte = (byte << 1) ^ if byte & 0x80 != 0 { 0x1d } else { 0 };
    }
    byte
}

/// Lays content out on devices as the format says, independently of the plans.
fn lay_out(profile: Profile, devices: u64, content: &[u8]) -> Vec<Vec<u8>> {
    let (columns, copies) = shape(profile, devices).unwrap();
    let stripe = STRIPE_LENGTH as usize;
    let mut laid = vec![vec![0; (ROWS * STRIPE_LENGTH) as usize]; devices as usize];
    for (number, bytes) in content.chunks(stripe).enumerate() {
        let (row, column) = (number as u64 / columns, number as u64 % columns);
        let place = (row * STRIPE_LENGTH) as usize..(row * STRIPE_LENGTH) as usize + stripe;
        let rotated = |column: u64| ((column + row) % devices) as usize;
        if matches!(profile, Profile::Raid5 | Profile::Raid6) {
            laid[rotated(column)][place.clone()].copy_from_slice(bytes);
            for (inside, byte) in bytes.iter().enumerate() {
                laid[rotated(columns)][place.start + inside] ^= byte;
                if profile == Profile::Raid6 {
                    laid[rotated(columns + 1)][place.start + inside] ^= times_power(*byte, column);
                }
            }
        } else {
            for copy in 0..copies {
                laid[(column * copies + copy) as usize][place.clone()].copy_from_slice(bytes);
            }
        }
    }
    laid
}

/// What a device does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Good,
    Missing,
    Lying,
}

/// Whether every byte can be had with the devices in these states.
fn is_bearable(profile: Profile, states: &[State]) -> bool {
    let bad = states.iter().filter(|state| **state != State::Good).count();
    match profile {
        Profile::Raid5 => bad <= 1,
        Profile::Raid6 => bad <= 2,
        Profile::Raid10 => states.chunks(2).all(|pair| pair.contains(&State::Good)),
        Profile::Single | Profile::Raid0 => bad == 0,
        _ => bad < states.len(),
    }
}

fn volume(profile: Profile, laid: &[Vec<u8>], states: &[State]) -> Volume {
    volume_for(Access::ReadOnly, profile, laid, states)
}

fn volume_for(access: Access, profile: Profile, laid: &[Vec<u8>], states: &[State]) -> Volume {
    let devices = laid.len() as u64;
    let (columns, _) = shape(profile, devices).unwrap();
    let members = laid
        .iter()
        .zip(states)
        .zip(1..)
        .filter(|((_, state), _)| **state != State::Missing)
        .map(|((bytes, state), number)| {
            let device = MemoryDevice::new(PHYSICAL + ROWS * STRIPE_LENGTH);
            let bytes = if *state == State::Lying { random(number, bytes.len()) } else { bytes.clone() };
            device.write_at(Physical(PHYSICAL), bytes).unwrap();
            Member::new(DeviceId(number), Uuid::NIL, device.length(), Arc::new(device))
        })
        .collect();
    let geometry = Geometry {
        sector_size: SECTOR as u32,
        node_size: 16384,
        checksum_kind: ChecksumKind::Crc32c,
        mixed_groups: false,
    };
    let volume = Volume::new(members, geometry, access);
    let stripes = (1..=devices).map(|number| Stripe {
        device: DeviceId(number),
        physical: Physical(PHYSICAL),
        device_uuid: Uuid::NIL,
    });
    let chunk = Chunk {
        length: columns * ROWS * STRIPE_LENGTH,
        owner: RootId::EXTENT_TREE,
        stripe_length: STRIPE_LENGTH,
        flags: BlockGroupFlags::DATA.with(profile.flags()),
        io_align: 65536,
        io_width: 65536,
        sector_size: SECTOR as u32,
        sub_stripes: if profile == Profile::Raid10 { 2 } else { 1 },
        stripes: stripes.collect(),
    };
    volume.chunks.insert(crate::MappedChunk { logical: Logical(START), chunk, profile }).unwrap();
    volume
}

/// Every way to give so many devices a state.
fn all_states(devices: usize) -> Vec<Vec<State>> {
    let mut all = vec![Vec::new()];
    for _ in 0..devices {
        all = all
            .into_iter()
            .flat_map(|states| {
                [State::Good, State::Missing, State::Lying].map(|state| {
                    let mut states = states.clone();
                    states.push(state);
                    states
                })
            })
            .collect();
    }
    all
}

fn judge(profile: Profile, devices: u64, counts: &mut BTreeMap<&'static str, (u64, u64)>) {
    let Some((columns, _)) = shape(profile, devices) else { return };
    let content = random(devices, (columns * ROWS * STRIPE_LENGTH) as usize);
    let laid = lay_out(profile, devices, &content);
    let sums: Vec<Checksum> =
        content.chunks(SECTOR).map(|sector| checksum(ChecksumKind::Crc32c, sector)).collect();
    // Ranges that begin and end inside stripes, at their borders, and over several rows.
    let stripe = STRIPE_LENGTH as usize;
    let ranges = [
        (0, content.len()),
        (stripe - SECTOR, 2 * SECTOR),
        (3 * SECTOR, SECTOR),
        (stripe / 2, content.len() - stripe),
    ];
    for states in all_states(devices as usize) {
        // With many devices only as many bad ones as can make a difference.
        if states.iter().filter(|state| **state != State::Good).count() > 3 {
            continue;
        }
        let volume = volume(profile, &laid, &states);
        let count = counts.entry(profile.name()).or_default();
        for (start, length) in ranges {
            let Some(expected) = content.get(start..start + length) else { continue };
            let request = ReadRequest { logical: Logical(START + start as u64), length };
            let mut is_good = |sector: usize, bytes: &[u8]| {
                checksum(ChecksumKind::Crc32c, bytes)
                    .matches(&sums[start / SECTOR + sector], ChecksumKind::Crc32c)
            };
            match volume.read_data(request, &mut is_good) {
                Ok(read) => {
                    assert_eq!(read.value, expected, "{profile} {states:?} {start}+{length}");
                    count.0 += 1;
                }
                Err(error) => {
                    assert!(!is_bearable(profile, &states), "{profile} {states:?} {start}+{length}: {error}");
                    count.1 += 1;
                }
            }
        }
    }
}

#[test]
fn what_a_profile_bears_is_read_right_with_any_devices_missing_or_lying() {
    let mut counts = BTreeMap::new();
    for profile in Profile::ALL.into_iter().filter(|profile| *profile != Profile::Dup) {
        for devices in 1..=6 {
            judge(profile, devices, &mut counts);
        }
    }
    println!("reads that succeeded, and that were refused: {counts:?}");
    assert_eq!(counts.len(), 8);
    assert!(counts.iter().all(|(name, (good, _))| *good > 0 || *name == "single"));
}

#[test]
fn what_is_written_in_memory_is_read_back_under_every_profile_whichever_devices_are_missing() {
    for profile in Profile::ALL.into_iter().filter(|profile| *profile != Profile::Dup) {
        for devices in 1..=6 {
            let Some((columns, _)) = shape(profile, devices) else { continue };
            let content = random(devices, (columns * ROWS * STRIPE_LENGTH) as usize);
            let laid = lay_out(profile, devices, &content);
            let (start, length) = (STRIPE_LENGTH as usize - SECTOR, 2 * SECTOR);
            if start + length > content.len() {
                continue;
            }
            for missing in 0..=devices as usize {
                let mut states = vec![State::Good; devices as usize];
                states[..missing].fill(State::Missing);
                let access = Access::InMemory { most_bytes: 1 << 20 };
                let volume = volume_for(access, profile, &laid, &states);
                let logical = Logical(START + start as u64);
                let data = vlinder_device::Data::from(vec![0xA5; length]);
                volume.write(vec![WriteRequest { logical, data }]).unwrap();
                let read = volume.read_verified(ReadRequest { logical, length }, &mut Ok).unwrap();
                assert_eq!(read.value, vec![0xA5; length], "{profile}, {missing} of {devices} missing");
                if missing == 0 {
                    let all = ReadRequest { logical: Logical(START), length: content.len() };
                    let mut expected = content.clone();
                    expected[start..start + length].fill(0xA5);
                    assert_eq!(volume.read_verified(all, &mut Ok).unwrap().value, expected, "{profile}");
                }
            }
        }
    }
}
