//! Freeing the blocks of deleted subvolumes, in steps between which commits may happen, resumed after a
//! crash.
//!
//! A walk over the tree, which changes only where a leaf goes by and by (`dead_leaf.rs`): a block that only
//! this tree references gives up its children's references and goes; a shared block stays for the others.
//! Where this tree *owns* a shared block, its children (and theirs) are referenced by this tree's number,
//! which goes: they are first referenced by their parents' addresses (Linux: `btrfs_drop_snapshot`, stages
//! DROP_REFERENCE and UPDATE_BACKREF).
//!
//! Where the walk is, is kept in memory (`dead_trees.rs`), and on disk as Linux keeps it: `drop_progress` and
//! `drop_level` in the root item name the next child to look at; everything before it is done. Marking blocks
//! a second time changes nothing.

use vlinder_base::sync::Arc;
use vlinder_format::{Block, Generation, Level, RootId, orphan};
use vlinder_tree::{Change, ChildReferences, Edit, Space, TreeError, WantedBlock};

use crate::EngineError;
use crate::asking::ReferenceMoves;
use crate::change_kind::ChangeKind;
use crate::committing_thread::CommittingThread;
use crate::dead_leaf::make_holes;
use crate::dead_trees::{Frame, STEP_LEAVES, Stage, Walk};
use crate::engine_core::EngineCore;
use crate::extents::delayed::ExtentKind;
use crate::handle::Handle;
use crate::reservation::Reservation;
use vlinder_forest::OpenTree;
use vlinder_forest::Referrer;

/// Blocks looked at in one transaction handle, so that commits need not wait long.
const BLOCKS_IN_HANDLE: usize = 256;

/// Frees blocks of deleted trees, about `budget_blocks` of them; gives whether there are more.
///
/// # Errors
/// What reading or changing trees met, or [`EngineError::NoSpace`]. A tree whose walk an error ended goes
/// behind the others, and is tried again by a later call: the error may have passed by then (Linux, too,
/// keeps it: `btrfs_add_dead_root`).
pub(crate) fn clean(core: &EngineCore, budget_blocks: usize) -> Result<bool, EngineError> {
    // A thread that commits may do so for a step of this.
    if core.latch().reason().is_some() || CommittingThread::is_this() {
        return Ok(false);
    }
    let _cleaning = core.dead_trees().begin_cleaning();
    let mut left = budget_blocks;
    let mut has_committed = false;
    while left > 0 {
        let Some((next, started)) = core.dead_trees().next() else { return Ok(false) };
        if !started && core.queues().pending().holds(next) {
            // The tree must not change under the walk, and without what is pending its changed leaves
            // would be refused: an inode's other items are in them already.
            core.commit()?;
        }
        let mut handle = core.begin(Reservation::tree_deletion(STEP_LEAVES).of(ChangeKind::TreeDeletion))?;
        let Some(mut walk) = core.dead_trees().take() else { return Ok(false) };
        match walk.run(&mut handle, left.min(BLOCKS_IN_HANDLE)) {
            Ok(looked_at) => {
                has_committed = false;
                core.dead_trees().note_step();
                left = left.saturating_sub(looked_at.max(1));
                if walk.frames.is_empty() {
                    // Without this the root item would name blocks that are free.
                    walk.finish(&mut handle).inspect_err(|error| core.shutdown().close_after(error))?;
                } else {
                    walk.end_step(handle);
                    core.dead_trees().put_first(walk);
                }
            }
            // Nothing was freed. A commit may free space; if the last commit freed none, this call gives
            // up.
            Err(error) if error.is_no_space() => {
                walk.end_step(handle);
                core.dead_trees().put_first(walk);
                if has_committed {
                    return Err(error);
                }
                core.commit()?;
                has_committed = true;
            }
            Err(error) => {
                walk.end_step(handle);
                core.dead_trees().put_last(walk);
                return Err(error);
            }
        }
    }
    Ok(!core.dead_trees().is_empty())
}

impl Walk {
    /// Looks at up to `budget` blocks; gives how many were looked at. The walk is done when no frame is left.
    fn run(&mut self, handle: &mut Handle<'_>, budget: usize) -> Result<usize, EngineError> {
        if !self.started {
            self.frames = self.path_to_start(handle)?;
            self.started = true;
        }
        let mut looked_at = 0;
        let mut result = Ok(());
        while result.is_ok() && looked_at < budget && !self.frames.is_empty() {
            result = self.step(handle);
            looked_at += 1;
        }
        // A node whose children are all gone can't be the place to go on from: they would be looked for
        // again.
        while self.frames.last().is_some_and(|frame| {
            frame.stage == Stage::Drop && !frame.block.is_leaf() && frame.slot >= frame.block.len()
        }) {
            self.leave(handle)?;
        }
        match result {
            // Nothing of the block that found no room was changed; those before it are done.
            Err(EngineError::Tree(TreeError::NoSpace { .. })) if looked_at > 1 => Ok(looked_at - 1),
            other => other.map(|()| looked_at),
        }
    }

    /// The path from the root to where an earlier walk stopped.
    fn path_to_start(&self, handle: &Handle<'_>) -> Result<Vec<Frame>, EngineError> {
        let core = handle.core();
        let mut frames = Vec::new();
        let item = self.tree.item();
        let mut wanted = WantedBlock::root(self.tree.root());
        loop {
            let block = core.trees().store().block(&wanted)?;
            let full =
                core.trees().sharing_at(block.logical(), block.owner(), core.queues())?.full_back_references;
            let resumed = item.drop_progress.objectid.0 != 0;
            let slot = if resumed && !block.is_leaf() { block.child_slot(&item.drop_progress) } else { 0 };
            let deeper = resumed && block.level() > item.drop_level && !block.is_leaf();
            if deeper {
                wanted = WantedBlock::child(self.tree.id(), &block, slot);
            }
            frames.push(Frame { block, slot, stage: Stage::Drop, full });
            if !deeper {
                return Ok(frames);
            }
        }
    }

    /// One child, or the end of a node.
    fn step(&mut self, handle: &mut Handle<'_>) -> Result<(), EngineError> {
        let Some(frame) = self.frames.last() else { return Ok(()) };
        if frame.block.is_leaf() || frame.slot >= frame.block.len() {
            return self.leave(handle);
        }
        match frame.stage {
            Stage::Drop => self.drop_child(handle),
            Stage::Mark => self.mark_child(handle),
        }
    }

    /// Looks at the next child of a node that goes.
    fn drop_child(&mut self, handle: &mut Handle<'_>) -> Result<(), EngineError> {
        let core = handle.core();
        let id = self.tree.id();
        let Some(frame) = self.frames.last_mut() else { return Ok(()) };
        let wanted = WantedBlock::child(id, &frame.block, frame.slot);
        let sharing = core.trees().sharing_at(wanted.logical, id, core.queues())?;
        if sharing.references > 1 {
            let is_marked_leaf = wanted.level == Level::LEAF && sharing.full_back_references;
            if !is_marked_leaf && wanted.generation > born(&self.tree) {
                let block = core.trees().store().block(&wanted)?;
                if block.owner() == id {
                    mark(handle, &block)?;
                    self.frames.push(Frame { block, slot: 0, stage: Stage::Mark, full: true });
                    return Ok(());
                }
            }
            // Whether others still share it is settled in the same moment as the reference goes.
            let _gate = core.sharing_gate().lock();
            if core.block_space().sharing_holds(wanted.logical, &sharing) {
                drop_reference(core, id, frame, &wanted, false, handle.generation());
                frame.slot += 1;
            }
            return Ok(());
        }
        let block = core.trees().store().block(&wanted)?;
        self.frames.push(Frame { block, slot: 0, stage: Stage::Drop, full: sharing.full_back_references });
        Ok(())
    }

    /// Looks at the next child of a node that stays.
    fn mark_child(&mut self, handle: &Handle<'_>) -> Result<(), EngineError> {
        let id = self.tree.id();
        let Some(frame) = self.frames.last_mut() else { return Ok(()) };
        let wanted = WantedBlock::child(id, &frame.block, frame.slot);
        // What is older than the tree was never its own.
        if wanted.generation <= born(&self.tree) {
            frame.slot += 1;
            return Ok(());
        }
        let block = handle.core().trees().store().block(&wanted)?;
        if block.owner() != id {
            frame.slot += 1;
            return Ok(());
        }
        mark(handle, &block)?;
        frame.slot += 1;
        if !block.is_leaf() {
            self.frames.push(Frame { block, slot: 0, stage: Stage::Mark, full: true });
        }
        Ok(())
    }

    /// A node's children are done.
    fn leave(&mut self, handle: &mut Handle<'_>) -> Result<(), EngineError> {
        let core = handle.core();
        let id = self.tree.id();
        if let Some(frame) = self.frames.last()
            && frame.stage == Stage::Drop
            && frame.block.is_leaf()
        {
            // A refusal leaves the leaf, or what is left of it, for a later step.
            let leaf = Arc::clone(&frame.block);
            match handle.editor().space.charge_reference_changes(&leaf, ReferenceMoves::Dropped) {
                Err(TreeError::NoSpace { .. }) if self.free_in_part(handle, &leaf)? => return Ok(()),
                charged => charged?,
            }
        }
        let Some(done) = self.frames.pop() else { return Ok(()) };
        let below_mark = self.frames.last().is_some_and(|parent| parent.stage == Stage::Mark);
        if done.stage == Stage::Mark && below_mark {
            return Ok(());
        }
        let last = done.stage == Stage::Drop;
        if !last {
            let sharing = core.trees().sharing_at(done.block.logical(), id, core.queues())?;
            let _gate = core.sharing_gate().lock();
            if sharing.references <= 1 || !core.block_space().sharing_holds(done.block.logical(), &sharing) {
                // The others let go meanwhile: the parent looks at the child again.
                return Ok(());
            }
            if let Some(parent) = self.frames.last_mut() {
                let wanted = WantedBlock::child(id, &parent.block, parent.slot);
                drop_reference(core, id, parent, &wanted, false, handle.generation());
                parent.slot += 1;
            }
            return Ok(());
        }
        if done.block.is_leaf() {
            let kind = if done.full { ChildReferences::Full } else { ChildReferences::Keyed };
            core.block_space().share_children(id, &done.block, kind, false);
        }
        match self.frames.last_mut() {
            Some(parent) => {
                let wanted = WantedBlock::child(id, &parent.block, parent.slot);
                drop_reference(core, id, parent, &wanted, true, handle.generation());
                parent.slot += 1;
            }
            None => {
                let own = WantedBlock::root(self.tree.root());
                drop_reference(core, id, &done, &own, true, handle.generation());
            }
        }
        Ok(())
    }

    /// Lets go of some of what a leaf refers to; false where there is no room for that either. The walk is at
    /// the same leaf again.
    fn free_in_part(&mut self, handle: &mut Handle<'_>, leaf: &Block) -> Result<bool, EngineError> {
        // Where a block's address stands for the tree, a copy would have to change the references of all its
        // children.
        let is_by_address = self.frames.iter().any(|frame| frame.full);
        if is_by_address || !make_holes(handle, &self.tree, leaf)? {
            return Ok(false);
        }
        // The path was copied.
        self.save_progress(handle);
        self.started = false;
        self.frames = self.path_to_start(handle)?;
        self.started = true;
        Ok(true)
    }

    /// Stores where the walk stands, so that the next mount after a crash, also one by Linux, goes on there:
    /// at the next child of the lowest node that goes. A leaf goes as one, and is looked at anew.
    fn save_progress(&self, handle: &Handle<'_>) {
        let Some((key, level)) = self.place() else { return };
        self.tree.change_item(|item| {
            item.drop_progress = key;
            item.drop_level = level;
        });
        handle.mark_changed();
    }

    /// The walk is not done, and waits for its next step. What was done stays done, whatever ended this one.
    fn end_step(&self, handle: Handle<'_>) {
        self.save_progress(&handle);
        drop(handle);
    }

    /// All blocks are free: the root item and the orphan item go.
    fn finish(self, handle: &mut Handle<'_>) -> Result<(), EngineError> {
        let id = self.tree.id();
        handle.core().trees().forest().remove(id);
        handle.edit_root_tree(&[
            Edit::new(self.tree.item_key(), Change::RemoveIfPresent),
            Edit::new(orphan::key(id.object_id()), Change::RemoveIfPresent),
        ])
    }
}

/// The transaction that made a snapshot; 0 for a subvolume. Older blocks are not its own.
fn born(tree: &OpenTree) -> Generation {
    Generation(tree.item_key().offset)
}

/// Makes a shared block's children referenced by its address, if they are not yet.
fn mark(handle: &Handle<'_>, block: &Block) -> Result<(), EngineError> {
    let core = handle.core();
    let mut is_charged = false;
    loop {
        let sharing = core.trees().sharing_at(block.logical(), block.owner(), core.queues())?;
        if sharing.full_back_references {
            return Ok(());
        }
        // Once: looking again changes nothing of what the marking takes.
        if !std::mem::replace(&mut is_charged, true) {
            handle.editor().space.charge_reference_changes(block, ReferenceMoves::Renamed)?;
        }
        let _gate = core.sharing_gate().lock();
        if core.block_space().sharing_holds(block.logical(), &sharing) {
            core.block_space().share_children(block.owner(), block, ChildReferences::Full, true);
            core.block_space().share_children(block.owner(), block, ChildReferences::Keyed, false);
            core.block_space().set_full_back_references(block);
            return Ok(());
        }
    }
}

/// The tree lets go of a block. `parent` is the frame whose block references it (the root block references
/// itself by its root, or if it is marked by its own address).
fn drop_reference(
    core: &EngineCore,
    id: RootId,
    parent: &Frame,
    wanted: &WantedBlock,
    last: bool,
    generation: Generation,
) {
    let length = u64::from(core.trees().node_size());
    let referrer =
        if parent.full { Referrer::ParentOfBlock(parent.block.logical()) } else { Referrer::Root(id) };
    let kind = ExtentKind::TreeBlock {
        level: wanted.level,
        first_key: wanted.first_key.unwrap_or_default(),
        owner: id,
    };
    if core.block_space().was_called_free(id, wanted.logical, wanted.generation) {
        return;
    }
    let mut delayed = core.queues().delayed();
    delayed.change(wanted.logical, length, kind, referrer, -1, false);
    let unwritten = last && wanted.generation == generation;
    let cancelled = unwritten && delayed.cancel_fresh(wanted.logical);
    drop(delayed);
    if unwritten {
        core.trees().store().forget(wanted.logical);
    }
    if cancelled {
        core.block_space().release_block(wanted.logical);
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use vlinder_base::thread;
    use vlinder_format::inode::{InodeItem, Mode, Timestamp};
    use vlinder_format::{ItemType, Key, ObjectId, Uuid};
    use vlinder_testkit::{Scratch, require};

    use super::*;
    use crate::Engine;
    use crate::opening_tests::write;

    /// A subvolume whose root is a node.
    fn plant(engine: &Engine) -> Arc<OpenTree> {
        let mut handle = engine.begin(Reservation::items(2000)).unwrap();
        let tree = handle.create_subvolume_tree(Uuid([7; 16]), Timestamp::default()).unwrap();
        let mode = Mode(0o100_644);
        let data =
            InodeItem { generation: Generation(1), link_count: 1, mode, ..InodeItem::default() }.encode();
        let keys = (256..1000).map(|number| Key::new(ObjectId(number), ItemType::INODE_ITEM, 0));
        let edits: Vec<Edit<'_>> = keys.map(|key| Edit::new(key, Change::Insert(&data))).collect();
        handle.edit(&tree, &edits).unwrap();
        drop(handle);
        engine.commit().unwrap();
        assert!(tree.root().pointer().level > Level::LEAF);
        tree
    }

    #[test]
    fn a_mark_that_a_reference_change_disturbs_is_charged_once() {
        require!(Tool("mkfs.btrfs"));
        let scratch = Scratch::new("mark");
        let image = scratch.path().join("image");
        std::fs::File::create(&image).unwrap().set_len(256 << 20).unwrap();
        assert!(std::process::Command::new("mkfs.btrfs").arg("-q").arg(&image).status().unwrap().success());
        let engine = write(&image).unwrap();
        let tree = plant(&engine);
        let block = engine.core().trees().store().block(&WantedBlock::root(tree.root())).unwrap();
        let reference = |by| {
            let kind = ExtentKind::TreeBlock { level: block.level(), first_key: Key::MIN, owner: tree.id() };
            let length = u64::from(engine.volume().geometry().node_size);
            let other = Referrer::Root(RootId(999));
            engine.core().queues().delayed().change(block.logical(), length, kind, other, by, false);
        };
        let handle = engine.begin(Reservation::tree_deletion(STEP_LEAVES)).unwrap();
        thread::scope(|scope| {
            let gate = engine.core().sharing_gate().lock();
            let before = engine.core().space().reservations().promised_changes();
            let marking = scope.spawn(|| mark(&handle, &block).unwrap());
            // It has looked, and waits for the gate, once it was charged.
            while engine.core().space().reservations().promised_changes() == before {
                thread::sleep(Duration::from_millis(1));
            }
            reference(1);
            reference(-1);
            drop(gate);
            marking.join().unwrap();
        });
        let children = u64::try_from(block.len()).unwrap();
        assert_eq!(handle.editor().space.further().block_references, 2 * children);
        assert!(
            engine
                .core()
                .trees()
                .sharing_at(block.logical(), tree.id(), engine.core().queues())
                .unwrap()
                .full_back_references
        );
    }
}
