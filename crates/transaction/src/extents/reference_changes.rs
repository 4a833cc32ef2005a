//! The pending changes of one extent's references: mostly one, so that it takes no memory of its own.

use std::collections::BTreeMap;

use vlinder_forest::Referrer;

/// How many references of each referrer came (or went, if negative), in the order of the referrers; none of
/// them 0.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ReferenceChanges {
    /// Of the least referrer.
    first: Option<(Referrer, i64)>,
    /// Of all others.
    others: BTreeMap<Referrer, i64>,
}

impl ReferenceChanges {
    /// A referrer has so many more; what cancels out is gone.
    pub fn add(&mut self, referrer: Referrer, by: i64) {
        match &mut self.first {
            Some((first, count)) if *first == referrer => {
                *count += by;
                if *count == 0 {
                    self.first = self.others.pop_first();
                }
            }
            Some((first, _)) if *first < referrer => {
                let count = self.others.entry(referrer).or_default();
                *count += by;
                if *count == 0 {
                    self.others.remove(&referrer);
                }
            }
            _ if by == 0 => {}
            _ => {
                let before = self.first.replace((referrer, by));
                self.others.extend(before);
            }
        }
    }

    /// Whether nothing changed.
    pub fn is_empty(&self) -> bool {
        self.first.is_none()
    }

    /// How many referrers have more references or fewer.
    pub(crate) fn len(&self) -> u64 {
        u64::from(self.first.is_some()) + u64::try_from(self.others.len()).unwrap_or(u64::MAX)
    }

    /// How many referrers have more.
    pub(crate) fn added(&self) -> u64 {
        // Mostly there is one.
        u64::try_from(self.iter().filter(|(_, count)| *count > 0).count()).unwrap_or(u64::MAX)
    }

    /// Each referrer and how many references it has more.
    pub fn iter(&self) -> impl Iterator<Item = (Referrer, i64)> {
        let others = self.others.iter().map(|(referrer, count)| (*referrer, *count));
        self.first.into_iter().chain(others)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use vlinder_format::RootId;

    /// All sequences of five changes among three referrers, against a map.
    #[test]
    fn changes_are_a_map_without_zeros() {
        let step =
            |number: u64| (Referrer::Root(RootId(256 + number % 3)), [-1, 1, 2][(number / 3 % 3) as usize]);
        for sequence in 0..9_u64.pow(5) {
            let (mut changes, mut map) = (ReferenceChanges::default(), BTreeMap::<Referrer, i64>::new());
            let mut rest = sequence;
            for _ in 0..5 {
                let (referrer, by) = step(rest % 9);
                rest /= 9;
                changes.add(referrer, by);
                *map.entry(referrer).or_default() += by;
                map.retain(|_, count| *count != 0);
                assert!(changes.iter().eq(map.iter().map(|(referrer, count)| (*referrer, *count))));
                assert_eq!(changes.is_empty(), map.is_empty());
            }
        }
    }
}
