//! Every profile on as many devices as it may have, with every set of missing, failing and lying devices:
//! what the profile can bear is read right, what it cannot is an error, and nothing wrong is ever accepted.

use std::collections::BTreeMap;

use vlinder_base::thread;
use vlinder_codec::checksum::{Checksum, ChecksumKind, checksum};
use vlinder_device::{Completer, DeviceExt, MemoryDevice};
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
    volume_on(access, profile, laid, states, &|_, device| Arc::new(device))
}

/// A device between the volume and the memory of a member.
type Between<'a> = &'a dyn Fn(DeviceId, MemoryDevice) -> Arc<dyn Device>;

fn volume_on(
    access: Access,
    profile: Profile,
    laid: &[Vec<u8>],
    states: &[State],
    between: Between<'_>,
) -> Volume {
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
            let length = device.length();
            Member::new(DeviceId(number), Uuid::NIL, length, between(DeviceId(number), device))
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
    volume.chunks().insert(crate::MappedChunk { logical: Logical(START), chunk, profile }).unwrap();
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
fn what_a_profile_bears_is_read_with_devices_missing_or_lying() {
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
fn what_is_written_in_memory_is_read_under_every_profile() {
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

/// A submitted batch that is not answered yet.
struct Unanswered {
    device: DeviceId,
    memory: MemoryDevice,
    batch: Vec<Request>,
    completer: Completer,
}

/// Answers batches only when as many devices have one as are expected: what asks one device after the other
/// waits for ever.
#[derive(Default)]
struct Rounds {
    waiting: Mutex<Vec<Unanswered>>,
    /// Devices that are to be asked together, by round.
    expected: Mutex<Vec<usize>>,
    /// Devices that were asked together.
    done: Mutex<Vec<Vec<u64>>>,
}

impl Rounds {
    fn expecting(counts: &[usize]) -> Arc<Self> {
        let expected = Mutex::new(counts.iter().rev().copied().collect());
        Arc::new(Self { expected, ..Self::default() })
    }

    fn enter(&self, unanswered: Unanswered) {
        let mut waiting = self.waiting.lock();
        waiting.push(unanswered);
        let is_full = self.expected.lock().last().is_none_or(|count| waiting.len() >= *count);
        drop(waiting);
        if is_full {
            self.answer();
        }
    }

    fn answer(&self) {
        let waiting = std::mem::take(&mut *self.waiting.lock());
        self.expected.lock().pop();
        let mut devices: Vec<u64> = waiting.iter().map(|one| one.device.0).collect();
        devices.sort_unstable();
        self.done.lock().push(devices);
        for Unanswered { memory, batch, completer, .. } in waiting {
            for (position, completion) in memory.submit(batch).wait().into_iter().enumerate() {
                completer.complete(position, completion);
            }
        }
    }
}

struct Slow {
    device: DeviceId,
    memory: MemoryDevice,
    rounds: Arc<Rounds>,
}

impl Device for Slow {
    fn describe(&self) -> Description {
        self.memory.describe()
    }
    fn length(&self) -> u64 {
        self.memory.length()
    }
    fn submit(&self, batch: Vec<Request>) -> Ticket {
        let (ticket, completer) = Ticket::pending(&self.describe().name, &batch);
        let (device, memory) = (self.device, self.memory.clone());
        self.rounds.enter(Unanswered { device, memory, batch, completer });
        ticket
    }
    fn flush(&self) -> Result<(), DeviceError> {
        self.memory.flush()
    }
    fn discard(&self, offset: Physical, length_bytes: u64) -> Result<(), DeviceError> {
        self.memory.discard(offset, length_bytes)
    }
}

/// Reads all of a chunk whose devices answer only together.
fn read_in_rounds(profile: Profile, states: &[State], expected: &[usize]) -> Vec<Vec<u64>> {
    let devices = states.len() as u64;
    let (columns, _) = shape(profile, devices).unwrap();
    let content = random(devices, (columns * ROWS * STRIPE_LENGTH) as usize);
    let laid = lay_out(profile, devices, &content);
    let sums: Vec<Checksum> =
        content.chunks(SECTOR).map(|sector| checksum(ChecksumKind::Crc32c, sector)).collect();
    let rounds = Rounds::expecting(expected);
    let between = |device, memory| -> Arc<dyn Device> {
        Arc::new(Slow { device, memory, rounds: Arc::clone(&rounds) })
    };
    let volume = volume_on(Access::ReadOnly, profile, &laid, states, &between);
    let read = || {
        let mut is_good = |sector: usize, bytes: &[u8]| {
            checksum(ChecksumKind::Crc32c, bytes).matches(&sums[sector], ChecksumKind::Crc32c)
        };
        let request = ReadRequest { logical: Logical(START), length: content.len() };
        volume.read_data(request, &mut is_good).unwrap().value
    };
    let found = thread::scope(|scope| {
        let reader = scope.spawn(read);
        // Where less is asked together than is expected, the reader is helped on, and the rounds tell.
        for turn in 0_u64.. {
            if reader.is_finished() {
                break;
            }
            thread::sleep(std::time::Duration::from_millis(2));
            if turn > 5000 && !rounds.waiting.lock().is_empty() {
                rounds.answer();
            }
        }
        reader.join().unwrap()
    });
    assert!(found == content, "{profile} {states:?}");
    std::mem::take(&mut *rounds.done.lock())
}

/// A profile, what its devices do, and which are to be asked together, by round.
type RoundsCase = (Profile, &'static [State], &'static [&'static [u64]]);

#[test]
fn stripes_and_their_sources_are_read_from_devices_at_once() {
    use State::{Good, Lying, Missing};
    let cases: &[RoundsCase] = &[
        (Profile::Raid0, &[Good, Good, Good], &[&[1, 2, 3]]),
        (Profile::Raid10, &[Lying, Good, Good, Good], &[&[1, 3], &[2]]),
        (Profile::Raid5, &[Good, Missing, Good], &[&[1, 3], &[1, 3]]),
        (Profile::Raid5, &[Good, Good, Lying, Good], &[&[1, 2, 3, 4], &[1, 2, 4]]),
        // Directly, by P, by Q, and by both with each of the others left out.
        (
            Profile::Raid6,
            &[Good, Missing, Good, Missing, Good],
            &[&[1, 3, 5], &[1, 3, 5], &[1, 3, 5], &[1, 3, 5], &[1, 3, 5]],
        ),
    ];
    for (profile, states, expected) in cases {
        let counts: Vec<usize> = expected.iter().map(|devices| devices.len()).collect();
        assert_eq!(read_in_rounds(*profile, states, &counts), *expected, "{profile} {states:?}");
    }
}

#[test]
fn what_was_healed_and_by_what_is_counted_for_each_device() {
    use State::{Good, Lying};
    let cases: &[(Profile, &[State], &[u64])] = &[
        (Profile::Raid1, &[Lying, Good], &[2]),
        (Profile::Raid1c3, &[Lying, Lying, Good], &[3]),
        (Profile::Raid10, &[Good, Good, Lying, Good], &[4]),
        (Profile::Raid5, &[Good, Lying, Good], &[1, 3]),
    ];
    for (profile, states, helpers) in cases {
        let devices = states.len() as u64;
        let (columns, _) = shape(*profile, devices).unwrap();
        let content = random(devices, (columns * ROWS * STRIPE_LENGTH) as usize);
        let laid = lay_out(*profile, devices, &content);
        let sums: Vec<Checksum> =
            content.chunks(SECTOR).map(|sector| checksum(ChecksumKind::Crc32c, sector)).collect();
        // None of these profiles is written, so nothing is rewritten.
        for access in [Access::ReadOnly, Access::ReadWrite] {
            let volume = volume_for(access, *profile, &laid, states);
            let mut is_good = |sector: usize, bytes: &[u8]| {
                checksum(ChecksumKind::Crc32c, bytes).matches(&sums[sector], ChecksumKind::Crc32c)
            };
            let request = ReadRequest { logical: Logical(START), length: content.len() };
            let read = volume.read_data(request, &mut is_good).unwrap();
            for number in 1..=devices {
                let healing = volume.member(DeviceId(number)).unwrap().healing();
                let bad = read.bad_copies.iter().filter(|bad| bad.failure.device == DeviceId(number));
                let bad = bad.count() as u64;
                let is_lying = states[number as usize - 1] == Lying;
                assert_eq!((healing.healed, bad > 0), (bad, is_lying), "{profile} device {number}");
                assert_eq!(healing.rewritten, 0, "{profile} device {number}");
                let healed_elsewhere = read.bad_copies.len() as u64 / lying_copies(states);
                let stood_in = if helpers.contains(&number) { healed_elsewhere } else { 0 };
                assert_eq!(healing.stood_in, stood_in, "{profile} device {number}");
            }
        }
    }
    // One device holds both copies of DUP, and is written.
    let device = Faulty::new(LENGTH);
    let volume = dup_volume(&device, Access::ReadWrite);
    volume
        .write(vec![WriteRequest { logical: CHUNK, data: vlinder_device::Data::from(vec![7; 4096]) }])
        .unwrap();
    device.inner.write_at(Physical(place_of(CHUNK, 0)), vec![8; 4096]).unwrap();
    let mut is_good = |_: usize, bytes: &[u8]| bytes == vec![7; 4096];
    volume.read_data(ReadRequest { logical: CHUNK, length: 4096 }, &mut is_good).unwrap();
    assert_eq!(
        volume.member(DeviceId(1)).as_deref().map(Member::healing),
        Some(Healing { healed: 1, rewritten: 1, stood_in: 1 })
    );
}

#[test]
fn what_parity_gives_is_compared_with_what_was_read_directly() {
    for (profile, devices, count) in [(Profile::Raid5, 3, 2), (Profile::Raid6, 4, 4)] {
        let (columns, _) = shape(profile, devices).unwrap();
        let content = random(devices, (columns * ROWS * STRIPE_LENGTH) as usize);
        let mut laid = lay_out(profile, devices, &content);
        let request = ReadRequest { logical: Logical(START), length: content.len() };
        let of = |volume| Reconstructions::of(volume, request).unwrap();
        let sound = volume(profile, &laid, &[State::Good; 4][..devices as usize]);
        assert_eq!(of(&sound).count(), count, "{profile}");
        for number in 0..count {
            assert_eq!(of(&sound).compare(number, &content), Ok(vec![]), "{profile}");
        }
        // The first sector of P of the first row.
        laid[columns as usize][0] ^= 1;
        let damaged = volume(profile, &laid, &[State::Good; 4][..devices as usize]);
        assert_eq!(of(&damaged).compare(0, &content), Ok(vec![]), "{profile}");
        let wrong = of(&damaged).compare(1, &content).unwrap();
        let behind = |column| Logical(START + column * STRIPE_LENGTH);
        assert_eq!(wrong, (0..columns).map(behind).collect::<Vec<_>>(), "{profile}");
        let states = [State::Good; 4];
        let writable = volume_for(Access::ReadWrite, profile, &laid, &states[..devices as usize]);
        let replacement = crate::Replacement {
            bad: 0,
            fault: CopyFault::MissingDevice { device: DeviceId(1) },
            good: 1,
            bytes: &content,
        };
        let rewritten = of(&writable).rewrite(replacement, &mut |_| true);
        assert_eq!(rewritten, Err(VolumeError::UnsupportedProfile { profile, operation: "writing" }));
    }
}

/// How many bad copies a sector has that has any.
fn lying_copies(states: &[State]) -> u64 {
    states.iter().filter(|state| **state == State::Lying).count() as u64
}
