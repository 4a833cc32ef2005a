//! Walking a tree that is damaged: what can't be read is told with the keys that it held, and the walk goes on behind it.
//!
//! Invariant: what the walk gives, items and losses, is in ascending order of keys and overlaps nowhere. A child counts only
//! if all its keys lie between the pointer to it and the next one. So no block is entered twice in one walk, however the
//! pointers of a damaged tree lead back or aside, and the walk costs no more than the tree's blocks.

use std::ops::RangeInclusive;

use vlinder_base::sync::Arc;
use vlinder_format::block::BlockFault;
use vlinder_format::{Block, Damage, Key, Level, Place, RootId};

use crate::root::Root;
use crate::search::{Position, child_block};
use crate::{TreeError, Trees, WantedBlock};

/// Part of a tree that can't be read.
#[derive(Debug)]
pub struct Lost {
    /// Every item that was lost has one of these keys.
    pub keys: RangeInclusive<Key>,
    /// Why.
    pub error: Box<TreeError>,
}

/// A node on the way down.
struct Step {
    node: Arc<Block>,
    /// Of the child that comes next.
    slot: usize,
    /// No key below the node may be above this one.
    last: Key,
}

/// A walk over part of a tree. See [`Trees::salvage`].
pub struct Salvage<'a> {
    trees: &'a Trees,
    tree: RootId,
    /// What is to be entered next, with the last key that may be in it.
    pending: Option<(WantedBlock, Key)>,
    range: RangeInclusive<Key>,
    path: Vec<Step>,
    leaf: Option<Position>,
}

impl Trees {
    /// The items of a tree with keys in a range, in order, and the parts of it that can't be read.
    pub fn salvage(&self, root: &Root, range: RangeInclusive<Key>) -> Salvage<'_> {
        let path = Vec::with_capacity(Level::COUNT);
        let pending = Some((WantedBlock::root(root), Key::MAX));
        Salvage { trees: self, tree: root.id(), pending, range, path, leaf: None }
    }
}

impl Salvage<'_> {
    /// Takes a block whose keys must not be above `last`.
    fn enter(&mut self, wanted: &WantedBlock, last: Key) -> Result<(), Lost> {
        let first = wanted.first_key.unwrap_or(Key::MIN);
        let lost = |error: TreeError| {
            let keys = first.max(*self.range.start())..=last.min(*self.range.end());
            Lost { keys, error: Box::new(error) }
        };
        let block = self.trees.block(wanted).map_err(lost)?;
        let highest = block.len().checked_sub(1).map(|slot| block.key(slot));
        if let Some(key) = highest.filter(|highest| *highest > last) {
            let place = Place { tree: Some(wanted.tree), block: Some(wanted.logical), slot: None, key: None };
            return Err(lost(Damage::new(BlockFault::KeyOrder { key, next: last }, place).into()));
        }
        if block.is_leaf() {
            let slot = block.search(self.range.start()).unwrap_or_else(|slot| slot);
            self.leaf = (slot < block.len()).then(|| Position::new(block, slot));
        } else {
            let slot = block.child_slot(self.range.start());
            self.path.push(Step { node: block, slot, last });
        }
        Ok(())
    }

    /// What is to be entered after all that was; none at the end.
    fn next_block(&mut self) -> Option<(WantedBlock, Key)> {
        if let Some(pending) = self.pending.take() {
            return Some(pending);
        }
        loop {
            let step = self.path.last_mut()?;
            let slot = step.slot;
            if slot >= step.node.len() || step.node.key(slot) > *self.range.end() {
                self.path.pop();
                continue;
            }
            step.slot = slot.saturating_add(1);
            let next = (step.slot < step.node.len()).then(|| step.node.key(step.slot));
            let last = next.and_then(Key::previous).unwrap_or(step.last).min(step.last);
            return Some((child_block(self.tree, &step.node, slot), last));
        }
    }
}

impl Iterator for Salvage<'_> {
    type Item = Result<Position, Lost>;

    fn next(&mut self) -> Option<Self::Item> {
        loop {
            if let Some(position) = &mut self.leaf {
                let found = position.clone();
                if !position.advance_in_leaf() {
                    self.leaf = None;
                }
                if found.key() > *self.range.end() {
                    self.leaf = None;
                    self.path.clear();
                    return None;
                }
                return Some(Ok(found));
            }
            let (wanted, last) = self.next_block()?;
            if let Err(lost) = self.enter(&wanted, last) {
                return Some(Err(lost));
            }
        }
    }
}
