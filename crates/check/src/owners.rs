//! What simple quotas count: bytes of extents by the subvolume that made them. Later users do not
//! matter.
//!
//! Counted are data by the owner reference of their extent item, and tree blocks by the owner in their
//! header, both of the generation that turned simple quotas on or later. Sources: Linux's
//! `btrfs_record_squota_delta`, `btrfs_get_extent_owner_root`; seen on Linux 6.18 with reflinks, snapshots,
//! balances and deleted subvolumes.

use std::collections::{BTreeMap, BTreeSet};

use vlinder_format::{Generation, RootId};

use crate::block_head::BlockHead;

/// Owners that are kept, at some 60 bytes each. Each has a group, and of these no more are kept.
const MAX_OWNERS: usize = 400_000;

/// Bytes by owner.
pub(crate) struct Owners {
    enabled: Generation,
    owned: BTreeMap<RootId, Owned>,
    /// Something could not be read, so that the sums are of no use.
    is_incomplete: bool,
}

/// What a subvolume has made.
#[derive(Clone, Copy, Default)]
struct Owned {
    /// Since simple quotas were turned on.
    after: u64,
    /// In the transaction that turned them on: before that, or after.
    meanwhile: u64,
}

impl Owners {
    /// For a file system whose simple quotas were turned on in the transaction `enabled`.
    pub(crate) fn new(enabled: Generation) -> Self {
        Self { enabled, owned: BTreeMap::new(), is_incomplete: false }
    }

    /// An extent that this tree has made.
    pub(crate) fn add(&mut self, owner: RootId, generation: Generation, bytes: u64) {
        // A number of a higher level is no subvolume's.
        if generation < self.enabled || !owner.is_subvolume() || owner.0 >> 48 != 0 {
            return;
        }
        if self.owned.len() >= MAX_OWNERS && !self.owned.contains_key(&owner) {
            return self.lose();
        }
        let owned = self.owned.entry(owner).or_default();
        let sum = if generation == self.enabled { &mut owned.meanwhile } else { &mut owned.after };
        *sum = sum.saturating_add(bytes);
    }

    /// A block that was reached.
    pub(crate) fn add_block(&mut self, head: &BlockHead, node_size: u64) {
        self.add(head.owner, head.generation, node_size);
    }

    /// Something could not be read.
    pub(crate) fn lose(&mut self) {
        self.is_incomplete = true;
    }

    /// What these subvolumes own, at least and at most; none where not all could be read.
    pub(crate) fn of(&self, subvolumes: &BTreeSet<RootId>) -> Option<(u64, u64)> {
        let owned = subvolumes.iter().filter_map(|subvolume| self.owned.get(subvolume));
        let (least, meanwhile) = owned.fold((0u64, 0u64), |(after, meanwhile), owned| {
            (after.saturating_add(owned.after), meanwhile.saturating_add(owned.meanwhile))
        });
        (!self.is_incomplete).then_some((least, least.saturating_add(meanwhile)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counted_are_subvolumes_made_since_and_those_of_meanwhile() {
        let mut owners = Owners::new(Generation(10));
        let (subvolume, higher) = (RootId(256), RootId(1 << 48 | 256));
        for (owner, generation, bytes) in [
            (subvolume, 9, 1),
            (subvolume, 10, 20),
            (subvolume, 11, 300),
            (subvolume, 12, 4000),
            (RootId::EXTENT_TREE, 11, 50_000),
            (higher, 11, 600_000),
        ] {
            owners.add(owner, Generation(generation), bytes);
        }
        assert_eq!(owners.of(&BTreeSet::from([subvolume])), Some((4300, 4320)));
        assert_eq!(owners.of(&BTreeSet::from([RootId::EXTENT_TREE, higher])), Some((0, 0)));
        owners.lose();
        assert_eq!(owners.of(&BTreeSet::from([subvolume])), None);
    }
}
