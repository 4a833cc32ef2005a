//! Sets of numbers that come in runs: inodes of a directory, mostly made one after the other.

use std::collections::BTreeMap;

/// A set, as runs that do not touch: a run takes about 25 bytes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct NumberSet {
    /// Last numbers by first ones.
    runs: BTreeMap<u64, u64>,
}

impl NumberSet {
    /// Every number.
    pub(super) fn all() -> Self {
        Self { runs: BTreeMap::from([(0, u64::MAX)]) }
    }

    /// Adds a number; tells whether it is new.
    pub(super) fn insert(&mut self, number: u64) -> bool {
        if self.contains(number) {
            return false;
        }
        let last = match number.checked_add(1).and_then(|next| self.runs.remove(&next)) {
            Some(last) => last,
            None => number,
        };
        let before = self.runs.range_mut(..number).next_back();
        match before.filter(|(_, end)| end.checked_add(1) == Some(number)) {
            Some((_, end)) => *end = last,
            None => {
                self.runs.insert(number, last);
            }
        }
        true
    }

    /// Takes a number out.
    pub(super) fn remove(&mut self, number: u64) {
        let Some((first, last)) = self.runs.range(..=number).next_back().map(|(first, last)| (*first, *last))
        else {
            return;
        };
        if last < number {
            return;
        }
        self.runs.remove(&first);
        if let Some(end) = number.checked_sub(1).filter(|end| *end >= first) {
            self.runs.insert(first, end);
        }
        if let Some(next) = number.checked_add(1).filter(|next| *next <= last) {
            self.runs.insert(next, last);
        }
    }

    /// Whether it has a number.
    pub(super) fn contains(&self, number: u64) -> bool {
        self.runs.range(..=number).next_back().is_some_and(|(_, last)| *last >= number)
    }

    /// Whether it has any number from `first` to `last`.
    pub(super) fn intersects(&self, first: u64, last: u64) -> bool {
        self.runs.range(..=last).next_back().is_some_and(|(_, end)| *end >= first)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn it_is_a_set(steps in prop::collection::vec((any::<bool>(), 0..40_u64), 0..100)) {
            let (mut set, mut model) = (NumberSet::default(), BTreeSet::new());
            for (inserts, number) in steps {
                if inserts {
                    prop_assert_eq!(set.insert(number), model.insert(number));
                } else {
                    set.remove(number);
                    model.remove(&number);
                }
            }
            for first in 0..42 {
                prop_assert_eq!(set.contains(first), model.contains(&first));
                for last in first..42 {
                    prop_assert_eq!(set.intersects(first, last), model.range(first..=last).next().is_some());
                }
            }
        }
    }

    #[test]
    fn all_has_the_ends() {
        let mut all = NumberSet::all();
        all.remove(0);
        all.remove(u64::MAX);
        assert!(!all.contains(0) && all.contains(1) && !all.contains(u64::MAX) && all.contains(u64::MAX - 1));
        assert!(all.insert(u64::MAX) && !all.insert(u64::MAX));
    }
}
