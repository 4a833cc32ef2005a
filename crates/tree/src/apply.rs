//! The second phase of a change: infallible, in memory, under the root's lock.
//!
//! Every block on the way down is made writable (copied to a new address unless this transaction made it
//! already), parents first, so that at each moment each block's parent is writable and names it.

use std::collections::HashSet;

use smallvec::SmallVec;
use vlinder_base::sync::Arc;
use vlinder_format::block::{ChildPointer, ITEM_HEADER_SIZE};
use vlinder_format::{Block, Generation, Key, Level, Logical};

use crate::edit::Edit;
use crate::full_leaf::Lack;
use crate::learned::Learned;
use crate::plan::{Plan, Resolved, merge_threshold};
use crate::root::{Root, RootPointer, RootState};
use crate::tree_blocks::{Pins, TreeBlocks};
use crate::wanted::{child_block, root_block};
use crate::{AddressPool, ChildReferences, Space, TreeError, WantedBlock};

/// The state of one apply.
pub(crate) struct Writer<'a> {
    pub(crate) trees: &'a TreeBlocks,
    pub(crate) root: &'a Root,
    pub(crate) state: &'a mut RootState,
    pub(crate) generation: Generation,
    pub(crate) space: &'a dyn Space,
    pub(crate) pool: &'a mut AddressPool,
    pub(crate) pins: &'a mut Pins,
    pub(crate) learned: &'a mut Learned,
    /// Blocks made by this apply of a tree that was snapshotted in this transaction: they alone are not
    /// shared.
    made: HashSet<Logical>,
}

/// A writable path: nodes from the root down, each with the slot taken, then a leaf.
pub(crate) struct WritablePath {
    pub(crate) nodes: SmallVec<[(Logical, usize); Level::COUNT]>,
    pub(crate) leaf: Logical,
    /// The first key that belongs further right.
    pub(crate) upper: Option<Key>,
}

/// How far the edits of one leaf got.
struct LeafProgress {
    done: usize,
    removed: bool,
    /// The next edit needs more room than there is.
    split: Option<Lack>,
}

impl<'a> Writer<'a> {
    #[allow(clippy::too_many_arguments, reason = "the state of one apply, private to this crate")]
    pub(crate) fn new(
        trees: &'a TreeBlocks,
        root: &'a Root,
        state: &'a mut RootState,
        generation: Generation,
        space: &'a dyn Space,
        pool: &'a mut AddressPool,
        pins: &'a mut Pins,
        learned: &'a mut Learned,
    ) -> Self {
        state.version = state.version.wrapping_add(1);
        Self { trees, root, state, generation, space, pool, pins, learned, made: HashSet::new() }
    }
}

impl Writer<'_> {
    /// Makes the planned changes.
    pub(crate) fn apply(&mut self, mut edits: &[Edit<'_>], plan: &Plan) {
        let mut resolved = plan.resolved.as_slice();
        while let (Some(edit), Some(resolution)) = (edits.first(), resolved.first()) {
            let done = if matches!(resolution, Resolved::Keep) {
                1
            } else {
                self.change_leaf(&edit.key, edits, resolved)
            };
            edits = edits.get(done..).unwrap_or_default();
            resolved = resolved.get(done..).unwrap_or_default();
        }
    }

    /// Whether a block has to be copied before it may change.
    pub(crate) fn must_cow(&self, block: &Block) -> bool {
        self.root.must_cow(block, self.generation) && !self.made.contains(&block.logical())
    }

    /// Takes in a block that this apply made.
    pub(crate) fn insert_made(&mut self, block: Arc<Block>) {
        if self.root.was_snapshotted_in(self.generation) {
            self.made.insert(block.logical());
        }
        self.trees.cache.insert_dirty(block);
    }

    /// Applies the edits that belong to one leaf, as far as they fit; gives how many were done. After a split
    /// none may have been, and the caller comes again.
    fn change_leaf(&mut self, key: &Key, edits: &[Edit<'_>], resolved: &[Resolved]) -> usize {
        self.trees.metrics.leaf_batches.increment();
        let path = self.writable_path(key);
        let (progress, first_key, used, capacity) = self.trees.cache.change(path.leaf, |leaf| {
            let progress = edit_leaf(leaf, edits, resolved, path.upper);
            (progress, leaf.first_key(), leaf.used_bytes(), leaf.capacity_bytes())
        });
        if let Some(first_key) = first_key {
            self.lower_keys(&path.nodes, &first_key);
        }
        match progress.split {
            Some(lack) => {
                let (edits, resolved) = (edits.get(progress.done..), resolved.get(progress.done..));
                let growths = growths(edits.unwrap_or_default(), resolved.unwrap_or_default(), path.upper);
                self.split_leaf(&path, &lack, &growths);
            }
            None if progress.removed && used < merge_threshold(capacity) => self.tidy_leaf(&path),
            None => {}
        }
        progress.done
    }

    /// The root block, made writable.
    pub(crate) fn writable_root(&mut self) -> Arc<Block> {
        let block = self.expect(&root_block(self.root.id(), self.state));
        if !self.must_cow(&block) {
            return block;
        }
        let copy = self.copy(&block, true);
        self.point_root_to(&copy);
        copy
    }

    /// Descends to the leaf of a key, making every block writable.
    fn writable_path(&mut self, key: &Key) -> WritablePath {
        let mut block = self.writable_root();
        let mut path = WritablePath { nodes: SmallVec::new(), leaf: block.logical(), upper: None };
        while !block.is_leaf() {
            let slot = block.child_slot(key);
            if slot.saturating_add(1) < block.len() {
                path.upper = Some(block.key(slot.saturating_add(1)));
            }
            path.nodes.push((block.logical(), slot));
            block = self.writable_child(&block, slot);
        }
        path.leaf = block.logical();
        path
    }

    /// The child at a slot of a writable node, made writable itself.
    pub(crate) fn writable_child(&mut self, node: &Block, slot: usize) -> Arc<Block> {
        let child = self.expect(&child_block(self.root.id(), node, slot));
        if !self.must_cow(&child) {
            return child;
        }
        let copy = self.copy(&child, false);
        let pointer =
            ChildPointer { key: node.key(slot), logical: copy.logical(), generation: copy.generation() };
        self.trees.cache.change(node.logical(), |node| node.children_mut().set(slot, &pointer));
        copy
    }

    /// Copies a block to a new address and settles who references its children, as Linux does:
    ///
    /// | references to the old block | children referenced | then |
    /// |---|---|---|
    /// | one | keyed | the copy takes over the children's references; the old block is free |
    /// | one | full | children: + keyed (copy), − full (old); the old block is free |
    /// | several, we own it | keyed | children: + full (old); the old block is marked; the copy takes over the keyed ones |
    /// | several, not ours or marked | either | children: + keyed (copy) |
    ///
    /// In the last two rows each child has one reference more than was learned of it.
    fn copy(&mut self, old: &Arc<Block>, is_root: bool) -> Arc<Block> {
        self.trees.metrics.blocks_cowed.increment();
        let id = self.root.id();
        let mut copy = Block::clone(old);
        copy.assume_identity(self.pool.take(), self.generation, id);
        let sharing = self.root.may_share(old, is_root).then(|| {
            let known = self.learned.get(old.logical()).copied();
            assert!(known.is_some(), "block {} is copied without its sharing being known", old.logical());
            known
        });
        self.space.block_created(id, &copy, &copy.first_key().unwrap_or_default());
        let mut last = true;
        if let Some(sharing) = sharing.flatten() {
            last = sharing.references <= 1;
            if !last {
                self.learned.one_more_for(old);
            }
            match (last, sharing.full_back_references) {
                (true, false) => {}
                (true, true) => {
                    self.space.share_children(id, &copy, ChildReferences::Keyed, true);
                    self.space.share_children(id, old, ChildReferences::Full, false);
                }
                (false, false) if old.owner() == id => {
                    self.space.share_children(id, old, ChildReferences::Full, true);
                    self.space.set_full_back_references(old);
                }
                (false, _) => self.space.share_children(id, &copy, ChildReferences::Keyed, true),
            }
        }
        if self.space.block_dropped(id, old, last) {
            self.trees.cache.forget_dirty(old.logical());
        }
        if last {
            self.trees.cache.forget_clean(old.logical(), old.generation());
        }
        let copy = Arc::new(copy);
        self.insert_made(Arc::clone(&copy));
        copy
    }

    /// Makes an empty block of this tree.
    pub(crate) fn create(&mut self, like: &Block, level: Level, first_key: &Key) -> Block {
        let identity = vlinder_format::block::BlockIdentity {
            logical: self.pool.take(),
            generation: self.generation,
            owner: self.root.id(),
            level,
            fsid: like.header().fsid(),
            chunk_tree_uuid: like.header().chunk_tree_uuid(),
        };
        let block = Block::new(self.trees.source().node_size(), &identity);
        self.space.block_created(self.root.id(), &block, first_key);
        block
    }

    /// Lets go of a block that this tree made writable and needs no more.
    pub(crate) fn discard(&mut self, logical: Logical) {
        let block = self.trees.cache.writable(logical);
        if self.space.block_dropped(self.root.id(), &block, true) {
            self.trees.cache.forget_dirty(logical);
        }
    }

    /// The first key below a path has become `key`: so it stands in every node whose first child leads there.
    pub(crate) fn lower_keys(&mut self, nodes: &[(Logical, usize)], key: &Key) {
        for (node, slot) in nodes.iter().rev() {
            let differs = self.trees.cache.change(*node, |node| {
                let differs = node.key(*slot) != *key;
                if differs {
                    node.set_key(*slot, key);
                }
                differs
            });
            if !differs || *slot != 0 {
                return;
            }
        }
    }

    pub(crate) fn point_root_to(&mut self, block: &Block) {
        self.state.pointer =
            RootPointer { logical: block.logical(), generation: block.generation(), level: block.level() };
    }

    /// A block, if it is in memory; from then on it is kept there.
    pub(crate) fn find(&mut self, wanted: &WantedBlock) -> Result<Option<Arc<Block>>, TreeError> {
        // A dirty block is this writer's own; a leaf just made by a split may still be empty.
        if let Some(block) = self.trees.cache.dirty(wanted.logical)
            && block.generation() == wanted.generation
        {
            return Ok(Some(block));
        }
        let found = self.trees.resident(wanted, self.pins)?;
        if let Some(block) = &found {
            self.pins.hold(block);
        }
        Ok(found)
    }

    /// A block that the plan found in memory; pins keep it there.
    fn expect(&mut self, wanted: &WantedBlock) -> Arc<Block> {
        let found = self.find(wanted);
        assert!(
            matches!(found, Ok(Some(_))),
            "tree {}: block {} was planned with and is gone: {found:?}",
            wanted.tree,
            wanted.logical
        );
        match found {
            Ok(Some(block)) => block,
            _ => unreachable!("asserted above"),
        }
    }
}

/// Applies edits to a leaf until one belongs further right or does not fit.
fn edit_leaf(
    leaf: &mut Block,
    edits: &[Edit<'_>],
    resolved: &[Resolved],
    upper: Option<Key>,
) -> LeafProgress {
    let mut progress = LeafProgress { done: 0, removed: false, split: None };
    while let (Some(edit), Some(resolution)) = (edits.get(progress.done), resolved.get(progress.done)) {
        if upper.is_some_and(|upper| edit.key >= upper) {
            break;
        }
        let found = leaf.search(&edit.key);
        let advanced = match (resolution, found) {
            (Resolved::Keep, _) | (Resolved::Remove, Err(_)) => 1,
            (Resolved::Remove, Ok(slot)) => {
                progress.removed = true;
                remove_run(leaf, slot, edits, resolved, progress.done)
            }
            (_, found) => {
                let data = resolution.data(&edit.change).unwrap_or_default();
                match found {
                    Ok(slot) if fits_in_place(leaf, slot, data.len()) => {
                        leaf.items_mut().resize(slot, data.len());
                        leaf.items_mut().data(slot).copy_from_slice(data);
                        1
                    }
                    Ok(slot) => {
                        let need = data.len().saturating_sub(leaf.data_len(slot));
                        progress.split = Some(Lack { slot, key: edit.key, need, exists: true });
                        return progress;
                    }
                    Err(slot) => match insert_run(leaf, slot, edits, resolved, progress.done, upper) {
                        0 => {
                            let need = data.len().saturating_add(ITEM_HEADER_SIZE);
                            progress.split = Some(Lack { slot, key: edit.key, need, exists: false });
                            return progress;
                        }
                        inserted => inserted,
                    },
                }
            }
        };
        progress.done = progress.done.saturating_add(advanced);
    }
    progress
}

/// What edits add to one leaf: the key of each item and the bytes that it takes.
fn growths(edits: &[Edit<'_>], resolved: &[Resolved], upper: Option<Key>) -> Vec<(Key, usize)> {
    let here = edits.iter().zip(resolved).take_while(|(edit, _)| upper.is_none_or(|upper| edit.key < upper));
    here.filter_map(|(edit, resolution)| {
        let data = resolution.data(&edit.change)?;
        Some((edit.key, data.len().saturating_add(ITEM_HEADER_SIZE)))
    })
    .collect()
}

fn fits_in_place(leaf: &Block, slot: usize, size: usize) -> bool {
    size.saturating_sub(leaf.data_len(slot)) <= leaf.free_bytes()
}

/// Removes the items of consecutive removals that are neighbours in the leaf, in one move; gives how many.
fn remove_run(
    leaf: &mut Block,
    slot: usize,
    edits: &[Edit<'_>],
    resolved: &[Resolved],
    first: usize,
) -> usize {
    let behind = edits.iter().zip(resolved).skip(first);
    let run = (slot..leaf.len())
        .zip(behind)
        .take_while(|(slot, (edit, resolution))| {
            matches!(resolution, Resolved::Remove) && leaf.key(*slot) == edit.key
        })
        .count();
    leaf.items_mut().remove(slot, run);
    run
}

/// Inserts consecutive new items, wherever in the leaf they belong, in one move; gives how many fitted. The
/// first belongs before `slot`.
fn insert_run(
    leaf: &mut Block,
    mut slot: usize,
    edits: &[Edit<'_>],
    resolved: &[Resolved],
    first: usize,
    upper: Option<Key>,
) -> usize {
    let mut room = leaf.free_bytes();
    let mut items: Vec<(usize, Key, &[u8])> = Vec::with_capacity(edits.len().saturating_sub(first));
    for (edit, resolution) in edits.iter().zip(resolved).skip(first) {
        let Some(data) = resolution.data(&edit.change) else { break };
        let Some(rest) = room.checked_sub(data.len().saturating_add(ITEM_HEADER_SIZE)) else { break };
        if upper.is_some_and(|upper| edit.key >= upper) {
            break;
        }
        if slot < leaf.len() && leaf.key(slot) <= edit.key {
            let Err(behind) = leaf.search(&edit.key) else { break };
            slot = behind;
        }
        room = rest;
        items.push((slot, edit.key, data));
    }
    leaf.items_mut().insert_between(&items);
    items.len()
}
