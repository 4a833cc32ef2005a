//! Items that were left out of leaves: where every copy of a leaf has its checksum and an item that breaks a
//! rule, who salvages gets the leaf without that item, and is told of it.
//!
//! Invariant: a leaf in memory from which an item was left out is known here, with that item. It was made
//! known before the leaf was given out, and is never forgotten. So nobody takes what was left out for
//! something that was never there.

use std::collections::BTreeMap;

use vlinder_base::sync::{Arc, Mutex};
use vlinder_format::validate::{ItemFault, LeafRules, faulty_items};
use vlinder_format::{Block, Damage, Generation, Key, Logical, RootId};

/// Items that are remembered, at some 150 bytes each. A leaf with more than what is left of them is lost
/// whole.
const MAX_ITEMS: usize = 1 << 16;

/// What was left out of which leaf.
#[derive(Debug)]
pub struct LeftOut {
    known: Mutex<Known>,
    most_items: usize,
}

#[derive(Debug, Default)]
struct Known {
    /// A reused address is another block.
    leaves: BTreeMap<(Logical, Generation), Leaf>,
    items: usize,
}

#[derive(Debug)]
struct Leaf {
    /// That was being read when the leaf was met first.
    tree: RootId,
    /// In ascending order.
    items: Arc<[ItemFault]>,
}

impl Default for LeftOut {
    fn default() -> Self {
        Self { known: Mutex::default(), most_items: MAX_ITEMS }
    }
}

impl LeftOut {
    /// A leaf without the items that break a rule, once those are remembered. None where nothing would be
    /// left, where too much is remembered already, or where something else was left out when the leaf was
    /// read before.
    pub(crate) fn leave_out(&self, mut leaf: Block, tree: RootId, rules: &LeafRules) -> Option<Block> {
        let items = faulty_items(&leaf, rules);
        if items.len() >= leaf.len() || !self.remember(&leaf, tree, &items) {
            return None;
        }
        for item in items.iter().rev() {
            leaf.items_mut().remove(usize::try_from(item.slot).ok()?, 1);
        }
        Some(leaf)
    }

    fn remember(&self, leaf: &Block, tree: RootId, items: &[ItemFault]) -> bool {
        let mut known = self.known.lock();
        let place = (leaf.logical(), leaf.generation());
        if let Some(known) = known.leaves.get(&place) {
            return *known.items == *items;
        }
        let count = known.items.saturating_add(items.len());
        if count > self.most_items {
            return false;
        }
        known.items = count;
        known.leaves.insert(place, Leaf { tree, items: items.into() });
        true
    }

    /// What a leaf lacks, in ascending order. The slots are those that the items have on disk.
    pub fn of(&self, leaf: &Block) -> Arc<[ItemFault]> {
        let known = self.known.lock();
        let Some(found) = known.leaves.get(&(leaf.logical(), leaf.generation())) else {
            return Arc::default();
        };
        // A copy that was read at another time may be whole.
        let is_missing = |item: &&ItemFault| leaf.search(&item.key).is_err();
        if found.items.iter().all(|item| is_missing(&item)) {
            return Arc::clone(&found.items);
        }
        found.items.iter().filter(is_missing).cloned().collect()
    }

    /// The first and the last key that a leaf has on disk; none if it is empty.
    pub(crate) fn span(&self, leaf: &Block) -> Option<(Key, Key)> {
        let (first, last) = (leaf.first_key()?, leaf.last_key()?);
        let left_out = self.of(leaf);
        let lowest = left_out.first().map_or(first, |item| item.key.min(first));
        let highest = left_out.last().map_or(last, |item| item.key.max(last));
        Some((lowest, highest))
    }

    /// The last item that was left out of a leaf between two keys, the first of which counts no more, and the
    /// second does.
    pub(crate) fn between(&self, leaf: &Block, behind: Option<Key>, upto: &Key) -> Option<ItemFault> {
        let left_out = self.of(leaf);
        let found = left_out.iter().rev().find(|item| item.key <= *upto)?;
        behind.is_none_or(|behind| found.key > behind).then(|| found.clone())
    }

    /// Everything that was left out so far, with the tree that was being read.
    pub fn all(&self) -> Vec<Damage> {
        let known = self.known.lock();
        let damages = known.leaves.iter().flat_map(|((logical, _), leaf)| {
            leaf.items.iter().map(|item| item.clone().into_damage(Some(leaf.tree), *logical))
        });
        damages.collect()
    }
}

#[cfg(test)]
mod tests;
