//! Choices from a seed.

use vlinder_base::random::{Random, SeededRandom};

/// Draws from a sequence that its seed replays.
#[derive(Debug)]
pub struct Choice {
    random: SeededRandom,
}

impl Choice {
    /// The sequence of this seed.
    pub const fn new(seed: u64) -> Self {
        Self { random: SeededRandom::new(seed) }
    }

    /// Any number.
    pub fn any(&self) -> u64 {
        self.random.next_u64()
    }

    /// A number below `bound`, 0 if that is 0.
    pub fn below(&self, bound: u64) -> u64 {
        self.any().checked_rem(bound).unwrap_or(0)
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

    /// A length in bytes: any order of magnitude up to `most` is as likely as another, and so are the borders that
    /// matter (sectors, 128 KiB) and their neighbours.
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
