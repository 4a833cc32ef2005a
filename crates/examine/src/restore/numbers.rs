//! A set of numbers that lie close to each other, as those of inodes do.

use std::collections::BTreeMap;

/// Numbers as runs: each first one with the last one of its run. Runs neither touch nor overlap.
#[derive(Debug, Default)]
pub struct NumberSet {
    runs: BTreeMap<u64, u64>,
}

impl NumberSet {
    /// Whether a number is in the set.
    pub fn contains(&self, number: u64) -> bool {
        self.runs.range(..=number).next_back().is_some_and(|(_, last)| *last >= number)
    }

    /// Adds a number; false if it was there.
    pub fn insert(&mut self, number: u64) -> bool {
        if self.contains(number) {
            return false;
        }
        let mut last = number;
        if let Some(behind) = number.checked_add(1).and_then(|next| self.runs.remove(&next)) {
            last = behind;
        }
        match self.runs.range_mut(..number).next_back() {
            Some((_, end)) if end.checked_add(1) == Some(number) => *end = last,
            _ => {
                self.runs.insert(number, last);
            }
        }
        true
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn it_is_a_set(numbers in proptest::collection::vec(prop_oneof![0u64..40, Just(u64::MAX), Just(u64::MAX - 1)], 0..80)) {
            let (mut set, mut model) = (NumberSet::default(), BTreeSet::new());
            for number in numbers {
                prop_assert_eq!(set.insert(number), model.insert(number));
                for looked in (0..42).chain([u64::MAX - 2, u64::MAX - 1, u64::MAX]) {
                    prop_assert_eq!(set.contains(looked), model.contains(&looked));
                }
            }
            let runs = set.runs.iter().zip(set.runs.iter().skip(1));
            prop_assert!(runs.into_iter().all(|((_, end), (start, _))| end.saturating_add(1) < *start));
        }
    }
}
