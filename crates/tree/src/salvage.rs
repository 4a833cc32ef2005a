//! Walking a tree that is damaged: what can't be read is told with the keys that it held, and the walk goes
//! on behind it.
//!
//! Invariant: what the walk gives, items and losses, is in ascending order of keys and overlaps nowhere. A
//! child counts only if all its keys lie between the pointer to it and the next one. So no block is entered
//! twice in one walk, however the pointers of a damaged tree lead back or aside, and the walk costs no more
//! than the tree's blocks. An item that was left out of a leaf comes in its place, as a loss that ends where
//! the next item begins.

use std::ops::RangeInclusive;

use vlinder_base::sync::Arc;
use vlinder_format::block::BlockFault;
use vlinder_format::validate::ItemFault;
use vlinder_format::{Block, Damage, Key, Level, Place, RootId};

use crate::root::Root;
use crate::search::Position;
use crate::tree_blocks::TreeBlocks;
use crate::wanted::child_block;
use crate::{TreeError, WantedBlock};

/// Part of a tree that can't be read.
#[derive(Debug)]
pub struct Lost {
    /// Every item that was lost has one of these keys. Of an item alone it is the first, and the next item's
    /// key follows the last: what the item described may reach so far.
    pub keys: RangeInclusive<Key>,
    /// Why.
    pub error: Box<TreeError>,
    /// One item alone was lost, for it was left out of its leaf. The error is then a [`Damage`] with its
    /// place.
    pub is_item: bool,
}

/// A leaf, and what comes next of it.
struct LeafStep {
    leaf: Arc<Block>,
    slot: usize,
    /// The items that the leaf lacks, and how many of them came.
    left_out: Arc<[ItemFault]>,
    came: usize,
    /// No key in the leaf may be above this one.
    last: Key,
}

/// A node on the way down.
struct Step {
    node: Arc<Block>,
    /// Of the child that comes next.
    slot: usize,
    /// No key below the node may be above this one.
    last: Key,
}

/// A walk over part of a tree. See [`Trees::salvage`](crate::Trees::salvage).
pub struct Salvage<'a> {
    blocks: &'a TreeBlocks,
    tree: RootId,
    /// What is to be entered next, with the last key that may be in it.
    pending: Option<(WantedBlock, Key)>,
    range: RangeInclusive<Key>,
    path: Vec<Step>,
    leaf: Option<LeafStep>,
}

impl<'a> Salvage<'a> {
    /// A walk over the items of a tree with keys in a range.
    pub(crate) fn new(blocks: &'a TreeBlocks, root: &Root, range: RangeInclusive<Key>) -> Self {
        let path = Vec::with_capacity(Level::COUNT);
        let pending = Some((WantedBlock::root(root), Key::MAX));
        Self { blocks, tree: root.id(), pending, range, path, leaf: None }
    }
}

impl Salvage<'_> {
    /// Takes a block whose keys must not be above `last`.
    fn enter(&mut self, wanted: &WantedBlock, last: Key) -> Result<(), Lost> {
        let first = wanted.first_key.unwrap_or(Key::MIN);
        let lost = |error: TreeError| {
            let keys = first.max(*self.range.start())..=last.min(*self.range.end());
            Lost { keys, error: Box::new(error), is_item: false }
        };
        let block = self.blocks.block(wanted).map_err(lost)?;
        let highest = self.blocks.span(&block).map(|(_, highest)| highest);
        if let Some(key) = highest.filter(|highest| *highest > last) {
            let place = Place { tree: Some(wanted.tree), block: Some(wanted.logical), slot: None, key: None };
            return Err(lost(Damage::new(BlockFault::KeyOrder { key, next: last }, place).into()));
        }
        if block.is_leaf() {
            let slot = block.search(self.range.start()).unwrap_or_else(|slot| slot);
            let left_out = self.blocks.left_out().map(|left_out| left_out.of(&block)).unwrap_or_default();
            let came = left_out.partition_point(|item| item.key < *self.range.start());
            self.leaf = Some(LeafStep { leaf: block, slot, left_out, came, last });
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

impl LeafStep {
    fn key(&self) -> Option<Key> {
        (self.slot < self.leaf.len()).then(|| self.leaf.key(self.slot))
    }

    /// The next item, or what is lost before it; none at the end of the leaf or of the range.
    fn next(&mut self, tree: RootId, range_end: Key) -> Option<Result<Position, Lost>> {
        let (key, lost) = (self.key(), self.left_out.get(self.came));
        let lost = lost.filter(|lost| key.is_none_or(|key| lost.key < key));
        let at = lost.map(|lost| lost.key).or(key).filter(|at| *at <= range_end)?;
        let Some(lost) = lost.cloned() else {
            let position = Position::new(Arc::clone(&self.leaf), self.slot);
            self.slot = self.slot.saturating_add(1);
            return Some(Ok(position));
        };
        self.came = self.came.saturating_add(1);
        let beside = self.left_out.get(self.came).map(|next| next.key);
        let next = [key, beside].into_iter().flatten().min();
        let end = next.and_then(Key::previous).unwrap_or(self.last).min(range_end);
        let damage = lost.into_damage(Some(tree), self.leaf.logical());
        Some(Err(Lost { keys: at..=end.max(at), error: Box::new(damage.into()), is_item: true }))
    }
}

impl Iterator for Salvage<'_> {
    type Item = Result<Position, Lost>;

    fn next(&mut self) -> Option<Self::Item> {
        loop {
            if let Some(leaf) = &mut self.leaf {
                let found = leaf.next(self.tree, *self.range.end());
                if found.is_some() {
                    return found;
                }
                // What comes next is behind the leaf, whose pointer may have been the last one inside the
                // range.
                self.leaf = None;
            }
            let (wanted, last) = self.next_block()?;
            if let Err(lost) = self.enter(&wanted, last) {
                return Some(Err(lost));
            }
        }
    }
}
