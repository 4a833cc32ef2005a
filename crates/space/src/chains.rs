//! How far changes of the extent tree go: each copy of one of its leaves moves that leaf, which changes the
//! leaf that tells of its place, and so on. In most file systems these chains end at once, because blocks lie
//! close together. Where they lie all over, as in mixed groups, a bound by all leaves is more than a full
//! file system has room for; so the chains themselves are looked at.

use std::collections::BTreeMap;

use vlinder_format::{ItemType, Key, Logical, ObjectId};

/// Powers of two that [`Chains::longest`] has sums for.
const SUMS: usize = 32;

/// A leaf of the extent tree.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ExtentLeaf {
    /// The first key, as the node above has it.
    pub first: Key,
    /// Where the leaf lies.
    pub at: Logical,
}

/// The leaves of the extent tree, in order.
pub struct ExtentLeaves(Vec<ExtentLeaf>);

/// How many leaves change at most, with how many nodes no one says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Chains {
    /// Leaves that may change in every commit.
    pub closed: u64,
    /// Of the others, how many change at most when 1, 2, 4 … of them are touched.
    longest: [u64; SUMS],
}

impl Chains {
    /// How many leaves beside [`closed`](Self::closed) change at most when so many are touched, anywhere.
    pub fn longest(&self, touched: u64) -> u64 {
        let Some(power) = touched.checked_ilog2() else { return 0 };
        let power = usize::try_from(power).unwrap_or(SUMS).min(SUMS - 1);
        let below = self.longest[power];
        // Each further chain is no longer than the ones before: so the sums grow by no more than in
        // proportion, and not beyond the next of them.
        let in_proportion = (u128::from(below) * u128::from(touched)) >> power;
        let next = self.longest.get(power + 1).copied().unwrap_or(self.longest[SUMS - 1]);
        u64::try_from(in_proportion).unwrap_or(u64::MAX).min(next)
    }
}

impl ExtentLeaves {
    /// Of all leaves of the extent tree, in any order.
    pub fn new(mut leaves: Vec<ExtentLeaf>) -> Self {
        leaves.sort_unstable_by_key(|leaf| leaf.first);
        Self(leaves)
    }

    /// The leaf that an item of this key lies in, or would.
    pub fn leaf_of(&self, key: &Key) -> usize {
        self.0.partition_point(|leaf| leaf.first <= *key).saturating_sub(1)
    }

    /// The leaf that tells of a tree block's place: both kinds of items of one come before references by
    /// keys.
    pub fn leaf_about(&self, place: Logical) -> usize {
        self.leaf_of(&Key::new(ObjectId(place.0), ItemType::METADATA_ITEM, u64::MAX))
    }

    /// Follows the chains. `always` are leaves that every commit may change.
    pub fn chains(&self, always: impl IntoIterator<Item = usize>) -> Chains {
        let next: Vec<usize> = self.0.iter().map(|leaf| self.leaf_about(leaf.at)).collect();
        let mut is_closed = vec![false; next.len()];
        let mut close = |mut leaf: usize| {
            while let Some(closed @ false) = is_closed.get_mut(leaf) {
                *closed = true;
                leaf = next[leaf];
            }
        };
        always.into_iter().for_each(&mut close);
        for leaf in on_circles(&next) {
            close(leaf);
        }
        let closed = is_closed.iter().filter(|closed| **closed).count();
        let mut lengths = paths(&next, &is_closed);
        lengths.sort_unstable_by(|one, other| other.cmp(one));
        let mut longest = [0; SUMS];
        for (power, sum) in longest.iter_mut().enumerate() {
            let count = 1_usize.checked_shl(u32::try_from(power).unwrap_or(u32::MAX)).unwrap_or(usize::MAX);
            *sum = lengths.iter().take(count).sum();
        }
        Chains { closed: u64::try_from(closed).unwrap_or(u64::MAX), longest }
    }
}

/// One leaf of each circle that chains run into.
fn on_circles(next: &[usize]) -> Vec<usize> {
    let mut seen_from = vec![usize::MAX; next.len()];
    let mut found = Vec::new();
    for start in 0..next.len() {
        let mut leaf = start;
        while seen_from[leaf] == usize::MAX {
            seen_from[leaf] = start;
            leaf = next[leaf];
        }
        if seen_from[leaf] == start {
            found.push(leaf);
        }
    }
    found
}

/// The chains that are not closed form trees, in which each leaf leads towards what is closed. Cuts them into
/// paths, the longest first: so many of these cover as many leaves as so many chains can.
fn paths(next: &[usize], is_closed: &[bool]) -> Vec<u64> {
    let mut incoming = vec![0_usize; next.len()];
    for (leaf, towards) in next.iter().enumerate() {
        incoming[*towards] += usize::from(!is_closed[leaf]);
    }
    let mut ready: Vec<usize> =
        (0..next.len()).filter(|leaf| !is_closed[*leaf] && incoming[*leaf] == 0).collect();
    // The longest path that comes into a leaf so far.
    let mut longest: BTreeMap<usize, u64> = BTreeMap::new();
    let mut ended = Vec::new();
    while let Some(leaf) = ready.pop() {
        let length = longest.remove(&leaf).unwrap_or(0) + 1;
        let towards = next[leaf];
        if is_closed[towards] {
            ended.push(length);
            continue;
        }
        let before = longest.entry(towards).or_insert(0);
        if length > *before {
            ended.extend((*before > 0).then_some(*before));
            *before = length;
        } else {
            ended.push(length);
        }
        incoming[towards] -= 1;
        if incoming[towards] == 0 {
            ready.push(towards);
        }
    }
    ended
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Leaves of 100 addresses each, of which number `n` lies at an address that the leaf `next[n]` tells of.
    fn leaves(next: &[u64]) -> ExtentLeaves {
        let leaf = |(number, next): (u64, &u64)| ExtentLeaf {
            first: Key::new(ObjectId(number * 100), ItemType::EXTENT_ITEM, 0),
            at: Logical(next * 100 + number),
        };
        ExtentLeaves::new((0..).zip(next).map(leaf).collect())
    }

    #[test]
    fn the_leaf_about_a_place_is_found() {
        let leaves = leaves(&[0, 0, 0]);
        assert_eq!([0, 99, 100, 250, 999].map(|at| leaves.leaf_about(Logical(at))), [0, 0, 1, 2, 2]);
        let late = ExtentLeaves::new(vec![ExtentLeaf {
            first: Key::new(ObjectId(500), ItemType::METADATA_ITEM, 0),
            at: Logical(0),
        }]);
        assert_eq!(late.leaf_about(Logical(3)), 0, "before the first");
    }

    #[test]
    fn what_always_changes_is_closed_with_all_that_it_leads_to() {
        // 0 → 1 → 2 → 2, 3 → 2, 4 → 5 → 4, 6 → 6
        let leaves = leaves(&[1, 2, 2, 2, 5, 4, 6]);
        let none = leaves.chains([]);
        assert_eq!(none.closed, 4, "circles: 2, 4 with 5, 6");
        assert_eq!([0, 1, 2, 3, 1000].map(|count| none.longest(count)), [0, 2, 3, 3, 3]);
        let some = leaves.chains([0]);
        assert_eq!((some.closed, some.longest(1), some.longest(9)), (6, 1, 1));
    }

    #[test]
    fn few_chains_cover_what_the_longest_paths_do() {
        // Two long chains that meet in 1, and short ones: 9 → 8 → 7 → 1 → 0, 6 → 5 → 1, 4 → 0, 3 → 0, 2 → 0.
        let leaves = leaves(&[0, 0, 0, 0, 0, 1, 5, 1, 7, 8]);
        let chains = leaves.chains([0]);
        assert_eq!(chains.closed, 1);
        assert_eq!([1, 2, 4].map(|count| chains.longest(count)), [4, 6, 8]);
        assert_eq!(chains.longest(3), 8, "no more than in proportion, and than the next sum");
        assert_eq!(chains.longest(u64::MAX), 9);
    }

    /// Against all sets of starting leaves, over maps of eight leaves.
    #[test]
    fn no_set_of_chains_covers_more() {
        for seed in 0..400_u64 {
            let next: Vec<u64> =
                (0..8).map(|leaf| (seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> (leaf * 7)) % 8).collect();
            let leaves = leaves(&next);
            let always = usize::try_from(seed % 8).unwrap();
            let chains = leaves.chains([always]);
            for set in 0_u32..256 {
                let mut covered = 0_u32;
                let starts = (0..8).filter(|leaf| set >> leaf & 1 == 1);
                for start in starts.chain([always]) {
                    let mut leaf = start;
                    while covered >> leaf & 1 == 0 {
                        covered |= 1 << leaf;
                        leaf = usize::try_from(next[leaf]).unwrap();
                    }
                }
                let bound = chains.closed + chains.longest(u64::from(set.count_ones()));
                assert!(u64::from(covered.count_ones()) <= bound, "{next:?} {always} {set:b}: {chains:?}");
            }
        }
    }
}
