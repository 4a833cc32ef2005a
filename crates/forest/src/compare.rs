//! The difference of two trees, in one pass over both that reads nothing that they share.
//!
//! A snapshot and its source share all blocks that neither changed. Two pointers with the same address and
//! the same generation lead to the same block, and all that lies below it is equal, so both sides step over
//! it unread (Linux: `btrfs_compare_trees`). What is read grows with the difference and not with the trees.

use std::cmp::Ordering;
use std::ops::ControlFlow;

use vlinder_base::sync::Arc;
use vlinder_format::{Block, Generation, Key, Level, Logical, RootId};
use vlinder_tree::{LookAhead, Readahead, Root, Trees, WantedBlock};

use crate::ForestError;

/// An item that is not the same in both trees.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Difference<'a> {
    /// The old tree alone has the item.
    Removed(&'a [u8]),
    /// The new tree alone has it.
    Added(&'a [u8]),
    /// Both have the key, with other data.
    Changed {
        /// The data in the old tree.
        old: &'a [u8],
        /// The data in the new tree.
        new: &'a [u8],
    },
}

/// Shows the items that differ between two trees, in the order of their keys. Both trees must stand still:
/// trees of a committed or leased state, or read-only snapshots.
///
/// Readahead asks for blocks that are certain to be read: of the new tree those that are newer than the old
/// one, of the old tree those that the new one does not share.
///
/// # Errors
/// What reading met, or the error of `each`, which ends the comparison.
pub fn compare<E: From<ForestError>>(
    (old_trees, old): (&Trees, &Root),
    (new_trees, new): (&Trees, &Root),
    readahead: Readahead,
    mut each: impl FnMut(Key, Difference<'_>) -> Result<(), E>,
) -> Result<(), E> {
    let newest_of_old = WantedBlock::root(old).generation;
    let is_newer = |block: &WantedBlock| block.generation > newest_of_old;
    let (mut old, mut new) = (Side::new(old_trees, old, readahead), Side::new(new_trees, new, readahead));
    loop {
        match (old.current(), new.current()) {
            (None, None) => return Ok(()),
            (Some(_), None) => {
                let mut unshared = new.unshared();
                old.advance(|block| unshared(block), |key, data| each(key, Difference::Removed(data)))?;
            }
            (None, Some(_)) => new.advance(is_newer, |key, data| each(key, Difference::Added(data)))?,
            (Some(left), Some(right)) => match order(&left, &right) {
                Ordering::Less => {
                    let mut unshared = new.unshared();
                    old.advance(|block| unshared(block), |key, data| each(key, Difference::Removed(data)))?;
                }
                Ordering::Greater => {
                    new.advance(is_newer, |key, data| each(key, Difference::Added(data)))?;
                }
                Ordering::Equal if left.is_same_block(&right) => {
                    old.step_over();
                    new.step_over();
                }
                Ordering::Equal if left.is_item() => {
                    if let Some((key, is, becomes)) = old.item().zip(new.item()).and_then(changed) {
                        each(key, Difference::Changed { old: is, new: becomes })?;
                    }
                    old.step_over();
                    new.step_over();
                }
                // The new side first: then it is known what the blocks behind the old one share with it.
                Ordering::Equal => {
                    new.descend(is_newer)?;
                    old.descend(new.unshared())?;
                }
            },
        }
    }
}

/// Shows the items of all leaves that a transaction after `since` wrote, in the order of their keys, until
/// `each` breaks off: items that were changed since, and their neighbours (Linux: `btrfs_search_forward`).
/// What is read grows with what was changed and not with the tree, which must stand still.
///
/// # Errors
/// What reading met.
pub fn visit_leaves_since(
    (trees, tree): (&Trees, &Root),
    since: Generation,
    mut each: impl FnMut(Key, &[u8]) -> ControlFlow<()>,
) -> Result<(), ForestError> {
    let mut side = Side::new(trees, tree, Readahead::None);
    while let Some(current) = side.current() {
        match current.block {
            Some((_, generation)) if generation <= since => side.step_over(),
            Some(_) => side.descend(|_| false)?,
            None => {
                if side.item().is_some_and(|(key, data)| each(key, data).is_break()) {
                    return Ok(());
                }
                side.step_over();
            }
        }
    }
    Ok(())
}

/// Which side goes on first. A pointer stands for all from its key on, so the side whose key is lower goes
/// on. At equal keys the higher side does, since below its pointer there may be one to the block of the other
/// side.
fn order(left: &Current, right: &Current) -> Ordering {
    left.key.cmp(&right.key).then(right.level.cmp(&left.level))
}

/// An item of a leaf.
type Item<'a> = (Key, &'a [u8]);

fn changed<'a>(((key, old), (_, new)): (Item<'a>, Item<'a>)) -> Option<(Key, &'a [u8], &'a [u8])> {
    (old != new).then_some((key, old, new))
}

/// What a side stands at: an item of a leaf, or a pointer to a block.
struct Current {
    key: Key,
    /// Levels above the items: 0 for an item, 1 for a pointer to a leaf.
    level: u8,
    /// The block that a pointer leads to.
    block: Option<(Logical, Generation)>,
}

impl Current {
    fn is_item(&self) -> bool {
        self.block.is_none()
    }

    fn is_same_block(&self, other: &Self) -> bool {
        self.level == other.level && self.block.is_some() && self.block == other.block
    }
}

/// The node of a tree that points to the blocks of a level around a key, and the key that its last one ends
/// before; none if a node on the way is not in memory.
fn node_above(
    trees: &Trees,
    tree: RootId,
    top: &Arc<Block>,
    level: Level,
    key: &Key,
) -> Option<(Arc<Block>, Option<Key>)> {
    let (mut node, mut before) = (Arc::clone(top), None);
    while node.level() > level.above() {
        let child = WantedBlock::child(tree, &node, node.child_slot(key));
        before = child.before.or(before);
        node = trees.resident(&child)?;
    }
    (node.level() == level.above()).then_some((node, before))
}

/// One of the trees, with the path to where it stands.
struct Side<'a> {
    trees: &'a Trees,
    id: RootId,
    /// The root block while it is not read.
    root: Option<WantedBlock>,
    /// The blocks on the way down, each with the slot that is next.
    path: Vec<(Arc<Block>, usize)>,
    ahead: LookAhead,
}

impl<'a> Side<'a> {
    fn new(trees: &'a Trees, root: &Root, readahead: Readahead) -> Self {
        let (id, ahead) = (root.id(), LookAhead::new(readahead));
        Self { trees, id, root: Some(WantedBlock::root(root)), path: Vec::new(), ahead }
    }

    fn current(&self) -> Option<Current> {
        if let Some(root) = &self.root {
            let block = Some((root.logical, root.generation));
            return Some(Current { key: Key::MIN, level: root.level.0.saturating_add(1), block });
        }
        let (block, slot) = self.path.last()?;
        let level = block.level().0;
        if block.level() == Level::LEAF {
            return Some(Current { key: block.key(*slot), level, block: None });
        }
        let child = block.child(*slot);
        Some(Current { key: child.key, level, block: Some((child.logical, child.generation)) })
    }

    /// The item that the side stands at.
    fn item(&self) -> Option<Item<'_>> {
        let (block, slot) = self.path.last().filter(|_| self.root.is_none())?;
        (block.level() == Level::LEAF).then(|| (block.key(*slot), block.data(*slot)))
    }

    /// Shows the item that the side stands at and steps over it, or enters the block of a pointer.
    fn advance<E: From<ForestError>>(
        &mut self,
        is_needed: impl FnMut(&WantedBlock) -> bool,
        each: impl FnOnce(Key, &[u8]) -> Result<(), E>,
    ) -> Result<(), E> {
        match self.item() {
            Some((key, data)) => {
                each(key, data)?;
                self.step_over();
                Ok(())
            }
            None => Ok(self.descend(is_needed)?),
        }
    }

    /// Enters the block that the side's pointer leads to.
    fn descend(&mut self, is_needed: impl FnMut(&WantedBlock) -> bool) -> Result<(), ForestError> {
        let wanted = match (self.root.take(), self.path.last()) {
            (Some(root), _) => root,
            (None, Some((node, slot))) => WantedBlock::child(self.id, node, *slot),
            (None, None) => return Ok(()),
        };
        let block = self.trees.block_ahead(&wanted, &self.path, &mut self.ahead, is_needed)?;
        self.path.push((block, 0));
        self.leave_what_has_ended();
        Ok(())
    }

    /// Tells of blocks of the other side, which are asked for in the order of their keys, whether this side
    /// is certain not to share them: as far as the nodes of this side are in memory.
    fn unshared(&self) -> impl FnMut(&WantedBlock) -> bool {
        let (trees, id) = (self.trees, self.id);
        let top = self.path.first().map(|(block, _)| Arc::clone(block));
        let mut last: Option<(Arc<Block>, Option<Key>)> = None;
        move |block| {
            let (Some(top), Some(key)) = (&top, block.first_key) else { return false };
            let is_there = |node: &Block, before: &Option<Key>| {
                node.level() == block.level.above()
                    && node.first_key().is_some_and(|first| first <= key)
                    && before.is_none_or(|before| key < before)
            };
            if last.as_ref().is_none_or(|(node, before)| !is_there(node, before)) {
                last = node_above(trees, id, top, block.level, &key);
            }
            last.as_ref().is_some_and(|(node, _)| {
                let child = node.child(node.child_slot(&key));
                (child.logical, child.generation) != (block.logical, block.generation)
            })
        }
    }

    /// Leaves an item or a pointer, with all below it, for the one behind it.
    fn step_over(&mut self) {
        if self.root.take().is_none()
            && let Some((_, slot)) = self.path.last_mut()
        {
            *slot = slot.saturating_add(1);
        }
        self.leave_what_has_ended();
    }

    /// An empty tree's root is a leaf without items; blocks below a root have some.
    fn leave_what_has_ended(&mut self) {
        while self.path.last().is_some_and(|(block, slot)| *slot >= block.len()) {
            self.path.pop();
            if let Some((_, slot)) = self.path.last_mut() {
                *slot = slot.saturating_add(1);
            }
        }
    }
}
