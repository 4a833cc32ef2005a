//! Choices from a seed, or from bytes that somebody else chose.

use std::collections::VecDeque;

use vlinder_base::random::{Random, SeededRandom};
use vlinder_base::sync::Mutex;

/// Draws from a sequence that its seed replays, after the bytes of a script where there is one.
#[derive(Debug)]
pub struct Choice {
    random: SeededRandom,
    script: Mutex<VecDeque<u8>>,
}

impl Choice {
    /// The sequence of this seed.
    pub const fn new(seed: u64) -> Self {
        Self { random: SeededRandom::new(seed), script: Mutex::new(VecDeque::new()) }
    }

    /// The choices that these bytes make, each from as few of them as it needs, so that a change of one byte
    /// changes one choice; then the sequence of seed 0.
    pub fn scripted(script: &[u8]) -> Self {
        Self { random: SeededRandom::new(0), script: Mutex::new(script.iter().copied().collect()) }
    }

    /// Whether no byte of a script is left.
    pub fn is_over(&self) -> bool {
        self.script.lock().is_empty()
    }

    /// Any number.
    pub fn any(&self) -> u64 {
        self.drawn(8)
    }

    /// A number below `bound`, 0 if that is 0.
    pub fn below(&self, bound: u64) -> u64 {
        let bytes = (64 - bound.saturating_sub(1).leading_zeros()).div_ceil(8);
        self.drawn(bytes).checked_rem(bound).unwrap_or(0)
    }

    /// The next number of so many bytes of the script, or any number.
    fn drawn(&self, bytes: u32) -> u64 {
        let mut script = self.script.lock();
        if script.is_empty() {
            return self.random.next_u64();
        }
        let mut number = 0;
        for _ in 0..bytes {
            number = number << 8 | u64::from(script.pop_front().unwrap_or(0));
        }
        number
    }

    /// True in `part` of `whole` cases.
    pub fn chance(&self, part: u64, whole: u64) -> bool {
        self.below(whole) < part
    }

    /// One of these; none of nothing.
    pub fn of<'a, T>(&self, from: &'a [T]) -> Option<&'a T> {
        from.get(usize::try_from(self.below(from.len() as u64)).unwrap_or(0))
    }

    /// One of these by weight.
    ///
    /// # Panics
    /// If there is none with a weight.
    pub fn weighted<T: Copy>(&self, from: &[(u32, T)]) -> T {
        let total: u64 = from.iter().map(|(weight, _)| u64::from(*weight)).sum();
        let mut left = self.below(total);
        for (weight, value) in from {
            match left.checked_sub(u64::from(*weight)) {
                Some(rest) => left = rest,
                None => return *value,
            }
        }
        unreachable!("the weights add up to nothing")
    }

    /// A length in bytes: any order of magnitude up to `most` is as likely as another, and so are the borders
    /// that matter (sectors, 128 KiB) and their neighbours.
    pub fn size(&self, most: u64) -> u64 {
        let magnitude = self.below(u64::from(most.max(2).ilog2()) + 1);
        let base = 1_u64 << magnitude;
        let size = match self.below(6) {
            0 => base,
            1 => base - 1,
            2 => base + 1,
            3 => (base + self.below(base)) / 4096 * 4096,
            _ => base + self.below(base),
        };
        size.min(most)
    }
}
