//! Sets of the subvolumes that lose files, each kept once and named by a number.

use std::collections::HashMap;

/// A set by its number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) struct RootSet(u32);

impl RootSet {
    /// No subvolume.
    pub(super) const NONE: Self = Self(0);
}

/// The sets that were met: few, since neighbouring blocks lie below the same subvolumes.
pub(super) struct RootSets {
    /// Bits of each set, by its number.
    all: Vec<Box<[u64]>>,
    numbers: HashMap<Box<[u64]>, RootSet>,
    /// Unions that were asked for.
    unions: HashMap<(RootSet, RootSet), RootSet>,
    words: usize,
}

impl RootSets {
    /// Sets of so many subvolumes.
    pub(super) fn new(subvolumes: usize) -> Self {
        let words = subvolumes.div_ceil(64);
        let none = vec![0; words].into_boxed_slice();
        let numbers = HashMap::from([(none.clone(), RootSet::NONE)]);
        Self { all: vec![none], numbers, unions: HashMap::new(), words }
    }

    /// The set of one subvolume, by its place in the list of those that take part.
    pub(super) fn one(&mut self, place: usize) -> RootSet {
        let mut bits = vec![0_u64; self.words];
        if let Some(word) = bits.get_mut(place / 64) {
            *word = 1 << (place % 64);
        }
        self.number(bits.into_boxed_slice())
    }

    /// What either has.
    pub(super) fn union(&mut self, left: RootSet, right: RootSet) -> RootSet {
        if left == right {
            return left;
        }
        let pair = (left.min(right), left.max(right));
        if let Some(known) = self.unions.get(&pair) {
            return *known;
        }
        let bits = self.bits(left).iter().zip(self.bits(right)).map(|(left, right)| left | right).collect();
        let union = self.number(bits);
        self.unions.insert(pair, union);
        union
    }

    /// The places of the subvolumes in a set.
    pub(super) fn places(&self, set: RootSet) -> Vec<usize> {
        let words = self.bits(set).iter().enumerate();
        let places = words.flat_map(|(index, word)| {
            (0..64)
                .filter(move |bit| word >> bit & 1 == 1)
                .map(move |bit| index.saturating_mul(64).saturating_add(bit))
        });
        places.collect()
    }

    fn bits(&self, set: RootSet) -> &[u64] {
        usize::try_from(set.0).ok().and_then(|index| self.all.get(index)).map_or(&[], |bits| &bits[..])
    }

    fn number(&mut self, bits: Box<[u64]>) -> RootSet {
        if let Some(known) = self.numbers.get(&bits) {
            return *known;
        }
        // There are fewer sets than blocks of a file system that fits an address space.
        let number = RootSet(u32::try_from(self.all.len()).unwrap_or(u32::MAX));
        self.all.push(bits.clone());
        self.numbers.insert(bits, number);
        number
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sets_are_kept_once() {
        let mut sets = RootSets::new(130);
        let (first, last) = (sets.one(0), sets.one(129));
        let both = sets.union(first, last);
        assert_eq!(sets.places(both), [0, 129]);
        assert_eq!(sets.union(last, first), both);
        assert_eq!(sets.union(both, last), both);
        assert_eq!(sets.union(RootSet::NONE, last), last);
        assert!(sets.places(RootSet::NONE).is_empty());
        assert_eq!(sets.all.len(), 4);
    }

    #[test]
    fn without_subvolumes_there_is_the_empty_set() {
        let mut sets = RootSets::new(0);
        assert_eq!(sets.union(RootSet::NONE, RootSet::NONE), RootSet::NONE);
    }
}
