//! Random numbers, injected: the system's, or a sequence that a seed replays.

use crate::sync::Mutex;

/// Where random bytes come from.
pub trait Random: Send + Sync {
    /// Fills the slice.
    fn fill(&self, bytes: &mut [u8]);

    /// A random version 4 UUID (RFC 9562), as its 16 bytes.
    fn uuid(&self) -> [u8; 16] {
        let mut bytes = [0; 16];
        self.fill(&mut bytes);
        as_version_4(bytes)
    }

    /// A random number.
    fn next_u64(&self) -> u64 {
        let mut bytes = [0; 8];
        self.fill(&mut bytes);
        u64::from_le_bytes(bytes)
    }
}

/// Sets the bits of a UUID that say "version 4, variant 10".
fn as_version_4(mut bytes: [u8; 16]) -> [u8; 16] {
    bytes[6] = (bytes[6] & 0x0f) | 0x40;
    bytes[8] = (bytes[8] & 0x3f) | 0x80;
    bytes
}

/// The system's random numbers (getrandom(2)).
#[derive(Clone, Copy, Debug, Default)]
pub struct OsRandom;

impl Random for OsRandom {
    /// # Panics
    /// Where the system has no random numbers at all: a file system with guessable or equal UUIDs is worse
    /// than none.
    fn fill(&self, bytes: &mut [u8]) {
        let mut filled = 0;
        while filled < bytes.len() {
            match rustix::rand::getrandom(&mut bytes[filled..], rustix::rand::GetRandomFlags::empty()) {
                Ok(count) => filled += count,
                Err(rustix::io::Errno::INTR) => {}
                Err(error) => panic!("getrandom(2) failed: {error}; the system gives no random numbers"),
            }
        }
    }
}

/// A sequence that depends on its seed alone: splitmix64 (Steele, Lea, Flood 2014). Not for secrets.
#[derive(Debug)]
pub struct SeededRandom {
    state: Mutex<u64>,
}

impl SeededRandom {
    /// The sequence of this seed, from its start.
    pub const fn new(seed: u64) -> Self {
        Self { state: Mutex::new(seed) }
    }
}

impl Random for SeededRandom {
    fn fill(&self, bytes: &mut [u8]) {
        let mut state = self.state.lock();
        for part in bytes.chunks_mut(8) {
            *state = state.wrapping_add(GOLDEN_GAMMA);
            part.copy_from_slice(&mix(*state).to_le_bytes()[..part.len()]);
        }
    }
}

const GOLDEN_GAMMA: u64 = 0x9e37_79b9_7f4a_7c15;

/// The finaliser of splitmix64: a bijection in which every input bit changes half of the output bits.
const fn mix(mut value: u64) -> u64 {
    value = (value ^ (value >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    value = (value ^ (value >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    value ^ (value >> 31)
}

/// The UUID (version 4 in shape) that belongs to `label` under `seed`: the same on every machine and in every
/// version, which is what makes `mkfs -U` reproducible.
pub fn derive(seed: [u8; 16], label: &str) -> [u8; 16] {
    let seed = u128::from_le_bytes(seed);
    let (low, high) = (seed as u64, (seed >> 64) as u64);
    // Two lanes that absorb the same words from different starts and see each other after each word.
    let mut lanes = [mix(low ^ GOLDEN_GAMMA), mix(high.wrapping_add(GOLDEN_GAMMA))];
    let mut absorb = |word: u64| {
        let first = mix(lanes[0] ^ word);
        let second = mix(lanes[1].wrapping_add(word).rotate_left(23) ^ first);
        lanes = [first.wrapping_add(second), second];
    };
    for part in label.as_bytes().chunks(8) {
        let mut word = [0; 8];
        word[..part.len()].copy_from_slice(part);
        absorb(u64::from_le_bytes(word));
    }
    // The length tells labels apart that differ only in trailing zeros.
    absorb(label.len() as u64);
    absorb(!low);
    absorb(!high);
    let mut bytes = [0; 16];
    bytes[..8].copy_from_slice(&lanes[0].to_le_bytes());
    bytes[8..].copy_from_slice(&lanes[1].to_le_bytes());
    as_version_4(bytes)
}

#[cfg(all(test, not(feature = "shuttle")))]
mod tests {
    use super::*;
    use std::collections::HashSet;

    #[test]
    fn a_seed_replays_its_sequence_however_it_is_cut() {
        // splitmix64's published first outputs for seed 1234567.
        let random = SeededRandom::new(1_234_567);
        assert_eq!(random.next_u64(), 6_457_827_717_110_365_317);
        assert_eq!(random.next_u64(), 3_203_168_211_198_807_973);
        let (mut whole, mut parts) = ([0; 24], [0; 24]);
        SeededRandom::new(9).fill(&mut whole);
        let random = SeededRandom::new(9);
        parts.chunks_mut(8).for_each(|part| random.fill(part));
        assert_eq!(whole, parts);
    }

    #[test]
    fn uuids_say_version_4_and_differ() {
        let uuids: HashSet<_> = (0..1000).map(|_| OsRandom.uuid()).collect();
        assert_eq!(uuids.len(), 1000);
        assert!(uuids.iter().all(|uuid| uuid[6] >> 4 == 4 && uuid[8] >> 6 == 2));
    }

    #[test]
    fn derived_uuids_depend_on_seed_and_label_alone() {
        let mut seen = HashSet::new();
        for seed in 0..64_u8 {
            for label in ["", "chunk", "device", "device\0", "subvolume 5", "subvolume 256"] {
                assert!(seen.insert(derive([seed; 16], label)));
            }
        }
        // Pinned: changing it changes every image that `mkfs -U` makes.
        let pinned = derive(*b"0123456789abcdef", "device 1");
        assert_eq!(pinned, PINNED, "{pinned:02x?}");
    }

    const PINNED: [u8; 16] =
        [0x80, 0x3f, 0x9b, 0xd4, 0x19, 0xc0, 0x42, 0xcc, 0xa1, 0x18, 0x66, 0x46, 0xdc, 0x8a, 0xfa, 0xa9];
}
