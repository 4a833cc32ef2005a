//! The difference of two trees, in one pass over both that reads nothing that they share.
//!
//! A snapshot and its source share all blocks that neither changed. Two pointers with the same address and
//! the same generation lead to the same block, and all that lies below it is equal, so both sides step over
//! it unread (Linux: `btrfs_compare_trees`). What is read grows with the difference and not with the trees.

use std::cmp::Ordering;
use std::ops::ControlFlow;

use vlinder_base::sync::Arc;
use vlinder_format::{Block, Generation, Key, Level, Logical, RootId};
use vlinder_tree::{Root, Trees, WantedBlock};

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
/// # Errors
/// What reading met, or the error of `each`, which ends the comparison.
pub fn compare<E: From<ForestError>>(
    (old_trees, old): (&Trees, &Root),
    (new_trees, new): (&Trees, &Root),
    mut each: impl FnMut(Key, Difference<'_>) -> Result<(), E>,
) -> Result<(), E> {
    let (mut old, mut new) = (Side::new(old_trees, old), Side::new(new_trees, new));
    loop {
        match (old.current(), new.current()) {
            (None, None) => return Ok(()),
            (Some(_), None) => old.advance(|key, data| each(key, Difference::Removed(data)))?,
            (None, Some(_)) => new.advance(|key, data| each(key, Difference::Added(data)))?,
            (Some(left), Some(right)) => match order(&left, &right) {
                Ordering::Less => old.advance(|key, data| each(key, Difference::Removed(data)))?,
                Ordering::Greater => new.advance(|key, data| each(key, Difference::Added(data)))?,
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
                Ordering::Equal => {
                    old.descend()?;
                    new.descend()?;
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
    let mut side = Side::new(trees, tree);
    while let Some(current) = side.current() {
        match current.block {
            Some((_, generation)) if generation <= since => side.step_over(),
            Some(_) => side.descend()?,
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

/// One of the trees, with the path to where it stands.
struct Side<'a> {
    trees: &'a Trees,
    id: RootId,
    /// The root block while it is not read.
    root: Option<WantedBlock>,
    /// The blocks on the way down, each with the slot that is next.
    path: Vec<(Arc<Block>, usize)>,
}

impl<'a> Side<'a> {
    fn new(trees: &'a Trees, root: &Root) -> Self {
        Self { trees, id: root.id(), root: Some(WantedBlock::root(root)), path: Vec::new() }
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
        each: impl FnOnce(Key, &[u8]) -> Result<(), E>,
    ) -> Result<(), E> {
        match self.item() {
            Some((key, data)) => {
                each(key, data)?;
                self.step_over();
                Ok(())
            }
            None => Ok(self.descend()?),
        }
    }

    /// Enters the block that the side's pointer leads to.
    fn descend(&mut self) -> Result<(), ForestError> {
        let wanted = match (self.root.take(), self.path.last()) {
            (Some(root), _) => root,
            (None, Some((node, slot))) => WantedBlock::child(self.id, node, *slot),
            (None, None) => return Ok(()),
        };
        let block = self.trees.block(&wanted)?;
        self.path.push((block, 0));
        self.leave_what_has_ended();
        Ok(())
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
