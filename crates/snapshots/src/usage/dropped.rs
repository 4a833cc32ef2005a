//! Counts by address, gathered in any order and read in the order of addresses.
//!
//! Entries are appended, and put together where the list has doubled since: two compact lists at most, where
//! a map would take three times the memory and a search for each entry.

/// An entry that is put together with others of its address.
pub(super) trait Gathered: Copy {
    /// Where what is counted lies.
    fn address(&self) -> u64;
}

/// Fewer entries are not put together before they are read.
const MIN_COMPACTED: usize = 1 << 15;

/// A list of entries.
pub(super) struct Gathering<T> {
    entries: Vec<T>,
    /// The length from which on the list is put together again.
    compact_at: usize,
}

impl<T> Default for Gathering<T> {
    fn default() -> Self {
        Self { entries: Vec::new(), compact_at: MIN_COMPACTED }
    }
}

impl<T: Gathered> Gathering<T> {
    /// Adds an entry. `merge` takes another entry of an address into the one before it.
    pub(super) fn push(&mut self, entry: T, merge: impl FnMut(&mut T, &T)) {
        if self.entries.len() >= self.compact_at {
            self.compact(merge);
            self.compact_at = self.entries.len().saturating_mul(2).max(MIN_COMPACTED);
        }
        self.entries.push(entry);
    }

    /// One entry for each address, in order.
    pub(super) fn take_sorted(&mut self, merge: impl FnMut(&mut T, &T)) -> Vec<T> {
        self.compact(merge);
        std::mem::take(self).entries
    }

    fn compact(&mut self, mut merge: impl FnMut(&mut T, &T)) {
        self.entries.sort_unstable_by_key(Gathered::address);
        self.entries.dedup_by(|entry, kept| {
            let same = entry.address() == kept.address();
            if same {
                merge(kept, entry);
            }
            same
        });
    }
}

/// References to a data extent that go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct DroppedReferences {
    /// Where the extent begins.
    pub address: u64,
    /// References.
    pub count: u64,
}

impl Gathered for DroppedReferences {
    fn address(&self) -> u64 {
        self.address
    }
}

impl DroppedReferences {
    /// Takes in another entry of the same extent.
    pub(super) fn merge(&mut self, other: &Self) {
        self.count = self.count.saturating_add(other.count);
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn counts_are_those_of_a_map(addresses in prop::collection::vec(0..50_u64, 0..200), repeat in 1..400_usize) {
            let mut gathering = Gathering::default();
            let mut map = BTreeMap::new();
            for address in addresses.iter().cycle().take(addresses.len() * repeat) {
                gathering.push(DroppedReferences { address: *address, count: 1 }, DroppedReferences::merge);
                *map.entry(*address).or_insert(0) += 1;
            }
            let sorted = gathering.take_sorted(DroppedReferences::merge);
            let sorted: Vec<_> = sorted.iter().map(|entry| (entry.address, entry.count)).collect();
            prop_assert_eq!(sorted, map.into_iter().collect::<Vec<_>>());
        }
    }
}
