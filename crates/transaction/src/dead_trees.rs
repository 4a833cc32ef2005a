//! Deleted trees whose blocks are not all free yet, and how far the walk over each has come.

use std::collections::VecDeque;

use vlinder_base::sync::atomic::{AtomicU64, Ordering};
use vlinder_base::sync::{Arc, Mutex, MutexGuard};
use vlinder_forest::OpenTree;
use vlinder_format::{Block, ItemType, Key, Level, ObjectId, RootId};
use vlinder_space::{Charge, Reservations};
use vlinder_tree::Readahead;

use crate::EngineError;
use crate::system_trees::SystemTrees;

/// Leaves that one step of a walk changes beside what it frees: two of the root tree, when the tree is done
/// (root item and orphan item), and one of the tree itself (`dead_leaf.rs`). The UUIDs went with the name
/// ([`Handle::delete_tree`](crate::Handle::delete_tree)), and the commit changes the quota tree.
pub(crate) const STEP_LEAVES: u32 = 3;
/// What the smallest step changes.
pub(crate) const SMALLEST_STEP: Charge = {
    let mut charge = Charge::leaves(STEP_LEAVES as u64);
    (charge.dropped_references, charge.extents, charge.checksums) = (1, 1, 1);
    charge
};

/// What the walk does at a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Stage {
    /// The block goes when its children are done.
    Drop,
    /// The block stays for others; what it owns is marked.
    Mark,
}

/// A node on the way down.
#[derive(Debug)]
pub(crate) struct Frame {
    pub(crate) block: Arc<Block>,
    pub(crate) slot: usize,
    pub(crate) stage: Stage,
    /// The block's children are referenced by its address.
    pub(crate) full: bool,
}

/// How far the walk over one deleted tree has come.
pub(crate) struct Walk {
    pub(crate) tree: Arc<OpenTree>,
    /// From the root to where the walk is; empty once it is done, and before it was started.
    pub(crate) frames: Vec<Frame>,
    pub(crate) started: bool,
}

impl Walk {
    /// The next child to look at of the lowest node that goes, and the level of that node: from there a walk
    /// can go on. None where there is no such node, or the walk has not begun.
    pub(crate) fn place(&self) -> Option<(Key, Level)> {
        if !self.started {
            return None;
        }
        let mut nodes =
            self.frames.iter().rev().filter(|frame| frame.stage == Stage::Drop && !frame.block.is_leaf());
        let frame = nodes.next()?;
        assert!(frame.slot < frame.block.len(), "a node without children left is no place to go on from");
        Some((frame.block.key(frame.slot), frame.block.level()))
    }
}

/// Deleted trees whose blocks are not all free yet (Linux: `fs_info->dead_roots`).
///
/// Invariants:
/// 1. A tree is here from when its last handle was closed until its walk is done, but for the time of one
///    step: then the thread that cleans has it.
/// 2. One thread at a time cleans ([`begin_cleaning`](Self::begin_cleaning)), so no tree is walked twice.
#[derive(Default)]
pub struct DeadTrees {
    walks: Mutex<VecDeque<Walk>>,
    /// Held by the thread that frees their blocks.
    cleaning: Mutex<()>,
    /// Steps that were made ever.
    steps: AtomicU64,
}

impl DeadTrees {
    /// The last handle on a deleted tree is closed: [`Engine::clean`](crate::Engine::clean) may free its
    /// blocks. It comes behind the others.
    pub fn add(&self, tree: Arc<OpenTree>) {
        self.put_last(Walk { tree, frames: Vec::new(), started: false });
    }

    /// At opening: adds every tree that was deleted before, as the orphan items in the root tree tell.
    pub(crate) fn find(
        &self,
        trees: &SystemTrees,
        reservations: Reservations<'_>,
    ) -> Result<(), EngineError> {
        let first = Key::new(ObjectId::ORPHAN, ItemType::ORPHAN_ITEM, 0);
        let mut cursor = trees.store().cursor(trees.root_tree(), &first, Readahead::None)?;
        while let Some(key) = cursor.key()
            && key.objectid == ObjectId::ORPHAN
            && key.item_type == ItemType::ORPHAN_ITEM
        {
            match trees.tree(RootId(key.offset), reservations) {
                Ok(tree) if tree.item().is_deleted() => self.add(tree),
                // Linux leaves the item where its tree was freed and the power failed before the item was
                // removed.
                Ok(_) | Err(EngineError::NoSuchTree { .. }) => {}
                Err(error) => return Err(error),
            }
            cursor.advance()?;
        }
        Ok(())
    }

    /// Held while a thread walks.
    pub(crate) fn begin_cleaning(&self) -> MutexGuard<'_, ()> {
        self.cleaning.lock()
    }

    /// The tree whose turn it is, and whether its walk was started.
    pub(crate) fn next(&self) -> Option<(RootId, bool)> {
        self.walks.lock().front().map(|walk| (walk.tree.id(), walk.started))
    }

    /// Takes out the walk whose turn it is.
    pub(crate) fn take(&self) -> Option<Walk> {
        self.walks.lock().pop_front()
    }

    /// A walk goes on with the next step.
    pub(crate) fn put_first(&self, walk: Walk) {
        self.walks.lock().push_front(walk);
    }

    /// A walk goes on when the others are done, or have failed.
    pub(crate) fn put_last(&self, walk: Walk) {
        self.walks.lock().push_back(walk);
    }

    /// Deleted trees that are closed and not fully freed, in the order of freeing.
    pub fn ids(&self) -> Vec<RootId> {
        self.walks.lock().iter().map(|walk| walk.tree.id()).collect()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.walks.lock().is_empty()
    }

    /// A step freed something.
    pub(crate) fn note_step(&self) {
        self.steps.fetch_add(1, Ordering::Relaxed);
    }

    /// How often blocks of deleted trees were freed: a caller that found no room before may find some once
    /// that has grown.
    pub fn steps(&self) -> u64 {
        self.steps.load(Ordering::Relaxed)
    }
}
