//! The first phase of a change: everything that can fail, in memory, without changing anything.
//!
//! A plan descends for each group of edits that share a leaf, decides what becomes of each item, and counts
//! the addresses that copies, splits and merges can take. What it lacks it names all at once: blocks to load,
//! sharing to learn, addresses to take.

use std::collections::HashSet;

use smallvec::SmallVec;
use vlinder_base::sync::Arc;
use vlinder_format::block::{BLOCK_FLAG_WRITTEN, ITEM_HEADER_SIZE, POINTER_SIZE};
use vlinder_format::{Block, Generation, Key, Level, Logical, RootId};

use crate::edit::{Action, Change, Edit};
use crate::learned::Learned;
use crate::root::{Root, RootState};
use crate::tree_blocks::{Pins, TreeBlocks};
use crate::wanted::{child_block, root_block};
use crate::{AddressPool, CopyEffect, TreeError, WantedBlock};

/// What a plan lacks.
#[derive(Default)]
pub(crate) struct Needs {
    /// Blocks on a path.
    pub(crate) blocks: Vec<WantedBlock>,
    /// Blocks beside a path, for a merge or for items that find no room.
    pub(crate) siblings: Vec<WantedBlock>,
    /// Blocks whose references must be known.
    pub(crate) sharing: Vec<Arc<Block>>,
    /// Blocks whose copies must be charged.
    pub(crate) charges: Vec<(Arc<Block>, CopyEffect)>,
    /// Addresses to hold.
    pub(crate) addresses: usize,
    /// What was learned of sharing no longer holds.
    pub(crate) relearn: bool,
}

impl Needs {
    pub(crate) fn relearn() -> Self {
        Self { relearn: true, ..Self::default() }
    }
}

/// What becomes of an item.
pub(crate) enum Resolved {
    Keep,
    /// The data that the edit carries.
    PutGiven,
    /// Data that a closure made.
    PutMade(Vec<u8>),
    Remove,
}

impl Resolved {
    /// The data that the item gets, if it gets any.
    pub(crate) fn data<'a>(&'a self, change: &Change<'a>) -> Option<&'a [u8]> {
        match (self, change) {
            (Self::PutMade(data), _) => Some(data),
            (Self::PutGiven, Change::Insert(data) | Change::Put(data) | Change::Replace(data)) => Some(data),
            _ => None,
        }
    }
}

/// A complete plan: one resolution for each edit.
pub(crate) struct Plan {
    pub(crate) resolved: Vec<Resolved>,
    /// Some block may be shared; what was learned of it must be confirmed for the apply.
    pub(crate) relies_on_sharing: bool,
}

pub(crate) enum Planned {
    Ready(Plan),
    Needs(Needs),
}

/// How the edits of one group change their leaf's size.
#[derive(Default)]
struct LeafChange {
    /// Where the last edit's item is, or belongs: that of the next is mostly there as well.
    near: usize,
    grows_bytes: usize,
    shrinks_bytes: usize,
    changes: bool,
    removes: bool,
}

type Step = (Arc<Block>, usize);

/// The nodes of a descent. No tree is higher, so this needs no memory of its own.
type StepsDown = SmallVec<[Step; Level::COUNT]>;

/// A plan in the making: what it has counted so far, and what it lacks.
pub(crate) struct Planner<'a> {
    blocks: &'a TreeBlocks,
    root: &'a Root,
    state: &'a RootState,
    generation: Generation,
    learned: &'a Learned,
    pins: &'a mut Pins,
    counted: HashSet<Logical>,
    addresses: usize,
    needs: Needs,
}

impl<'a> Planner<'a> {
    /// A plan for a tree whose root's lock is held.
    pub(crate) fn new(
        blocks: &'a TreeBlocks,
        root: &'a Root,
        state: &'a RootState,
        generation: Generation,
        learned: &'a Learned,
        pins: &'a mut Pins,
    ) -> Self {
        let (counted, needs) = (HashSet::new(), Needs::default());
        Self { blocks, root, state, generation, learned, pins, counted, addresses: 0, needs }
    }
}

impl Planner<'_> {
    /// Plans edits, with the addresses of a pool.
    ///
    /// # Errors
    /// An item in the way or missing, a conflict, or damage on the way.
    pub(crate) fn plan(mut self, pool: &AddressPool, edits: &[Edit<'_>]) -> Result<Planned, TreeError> {
        let mut resolved = Vec::with_capacity(edits.len());
        let mut rest = edits;
        while let Some(first) = rest.first() {
            let (path, leaf, upper) = self.path(&first.key)?;
            let size = upper.map_or(rest.len(), |upper| rest.partition_point(|edit| edit.key < upper));
            let (group, behind) = rest.split_at(size.max(1));
            rest = behind;
            let Some(leaf) = leaf else { continue };
            let mut change = LeafChange::default();
            for edit in group {
                resolved.push(resolve(self.root.id(), &leaf, edit, &mut change)?);
            }
            if change.changes {
                self.count_group(&path, &leaf, &change)?;
            }
        }
        let Self { addresses, mut needs, learned, .. } = self;
        if addresses > pool.held() {
            needs.addresses = addresses;
        }
        let lacks = needs.addresses > 0
            || !needs.blocks.is_empty()
            || !needs.siblings.is_empty()
            || !needs.sharing.is_empty()
            || !needs.charges.is_empty();
        if lacks {
            return Ok(Planned::Needs(needs));
        }
        Ok(Planned::Ready(Plan { resolved, relies_on_sharing: learned.knows_sharing() }))
    }

    /// Descends to the leaf of a key: the nodes with the slots taken, the leaf unless something is missing,
    /// and the first key that belongs further right.
    #[allow(clippy::type_complexity, reason = "three things of one descent, used in one place")]
    fn path(&mut self, key: &Key) -> Result<(StepsDown, Option<Arc<Block>>, Option<Key>), TreeError> {
        let mut path = StepsDown::new();
        let mut upper = None;
        let mut wanted = root_block(self.root.id(), self.state);
        loop {
            let Some(block) = self.blocks.resident(&wanted, self.pins)? else {
                self.needs.blocks.push(wanted);
                return Ok((path, None, upper));
            };
            self.keep(&block);
            if block.is_leaf() {
                return Ok((path, Some(block), upper));
            }
            let slot = block.child_slot(key);
            if slot.saturating_add(1) < block.len() {
                upper = Some(block.key(slot.saturating_add(1)));
            }
            wanted = child_block(self.root.id(), &block, slot);
            path.push((block, slot));
        }
    }

    /// Counts the copies of a path, the splits that growth can cause, and the merges that shrinking can.
    fn count_group(
        &mut self,
        path: &[Step],
        leaf: &Arc<Block>,
        change: &LeafChange,
    ) -> Result<(), TreeError> {
        let mut inherited = false;
        for (depth, (node, _)) in path.iter().enumerate() {
            inherited = self.copy(node, depth == 0, inherited);
        }
        self.copy(leaf, path.is_empty(), inherited);
        let height = self.state.pointer.level.index().saturating_add(1);
        let capacity = leaf.capacity_bytes();
        if leaf.used_bytes().saturating_add(change.grows_bytes) > capacity {
            self.addresses =
                self.addresses.saturating_add(split_blocks(change.grows_bytes, capacity, height));
            // Before it is split it may give items to either neighbour, which takes a copy of that; so may
            // each node above it give pointers.
            self.addresses = self.addresses.saturating_add(height.saturating_mul(2));
            if let Some((parent, slot)) = path.last() {
                self.count_siblings(parent, *slot)?;
            }
        }
        let rest = leaf.used_bytes().saturating_sub(change.shrinks_bytes);
        if change.removes && rest < merge_threshold(capacity) {
            // One copied sibling for each level at the most.
            self.addresses = self.addresses.saturating_add(height);
            if rest > 0
                && let Some((parent, slot)) = path.last()
            {
                self.count_siblings(parent, *slot)?;
            }
        }
        Ok(())
    }

    /// Asks for the leaves beside one that shrinks or overflows, so that it can be merged or give them items.
    /// They are not charged: one whose copy changes references is left alone, since a split or a small leaf
    /// takes less.
    fn count_siblings(&mut self, parent: &Block, slot: usize) -> Result<(), TreeError> {
        for beside in [slot.checked_sub(1), slot.checked_add(1).filter(|next| *next < parent.len())] {
            let Some(beside) = beside else { continue };
            let wanted = child_block(self.root.id(), parent, beside);
            match self.blocks.resident(&wanted, self.pins)? {
                Some(sibling) => {
                    self.keep(&sibling);
                    let may_share =
                        self.root.must_cow(&sibling, self.generation) && self.root.may_share(&sibling, false);
                    if may_share {
                        self.lacks_sharing(&sibling);
                    }
                }
                None if !self.learned.was_sibling_asked(wanted.logical) => self.needs.siblings.push(wanted),
                None => {}
            }
        }
        Ok(())
    }

    /// Pins a block that the plan relies on. Those that this transaction changed stay in memory by
    /// themselves, and a second holder would make each change of them a copy; but once one is sealed to be
    /// written (the fsync log's are within their transaction) it is copied anyway, and becomes clean at any
    /// moment, which the cache may forget.
    fn keep(&mut self, block: &Arc<Block>) {
        if block.generation() != self.generation || block.has_flag(BLOCK_FLAG_WRITTEN) {
            self.pins.hold(block);
        }
    }

    /// Counts what copying a block takes, if it must be copied. `inherited` says that its parent's copy adds
    /// a reference to it; gives whether its own copy adds one to its children.
    fn copy(&mut self, block: &Arc<Block>, is_root: bool, inherited: bool) -> bool {
        if !self.root.must_cow(block, self.generation) {
            return false;
        }
        let may_share = self.root.may_share(block, is_root);
        if self.counted.insert(block.logical()) {
            self.addresses = self.addresses.saturating_add(1);
            if may_share
                && !self.lacks_sharing(block)
                && let Some(effect) = self.learned.lacks_charge(block, inherited)
            {
                self.needs.charges.push((Arc::clone(block), effect));
            }
        }
        may_share && self.learned.effect_of_copy(block, inherited) == Some(CopyEffect::Added)
    }

    /// Asks for what has to be known of a block that may be shared, before it is copied, and gives whether it
    /// is not known.
    fn lacks_sharing(&mut self, block: &Arc<Block>) -> bool {
        let lacks = self.learned.get(block.logical()).is_none();
        if lacks {
            self.needs.sharing.push(Arc::clone(block));
        }
        lacks
    }
}

/// Below this many bytes in use a leaf is merged with a sibling, as Linux does.
pub(crate) fn merge_threshold(capacity_bytes: usize) -> usize {
    capacity_bytes / 3
}

/// How many new blocks the growth of one leaf can take at the most: pieces of the leaf at least half full,
/// save one on either side of each large item, and on each level above as many as the pointers to them can
/// split, and a new root.
#[allow(clippy::arithmetic_side_effects, reason = "divisors are at least 1")]
fn split_blocks(grows_bytes: usize, capacity_bytes: usize, height: usize) -> usize {
    let leaves = (grows_bytes / (capacity_bytes / 4).max(1)).saturating_add(3);
    let pointers_half = (capacity_bytes / POINTER_SIZE / 2).max(1);
    let above = (leaves / pointers_half).saturating_add(1);
    leaves.saturating_add(above.saturating_mul(height.saturating_add(1)))
}

/// Decides what becomes of an item, by the leaf as it is.
fn resolve(
    tree: RootId,
    leaf: &Block,
    edit: &Edit<'_>,
    change: &mut LeafChange,
) -> Result<Resolved, TreeError> {
    let key = edit.key;
    let found = leaf.search_near(&key, change.near);
    let (Ok(slot) | Err(slot)) = found;
    change.near = slot;
    let present = found.ok().map(|slot| leaf.data(slot));
    let resolved = match (&edit.change, present) {
        (Change::Insert(_), Some(_)) => return Err(TreeError::Exists { root: tree, key }),
        (Change::Replace(_) | Change::Remove, None) => return Err(TreeError::Missing { root: tree, key }),
        (Change::Insert(_) | Change::Put(_) | Change::Replace(_), _) => Resolved::PutGiven,
        (Change::Remove, Some(_)) | (Change::RemoveIfPresent, Some(_)) => Resolved::Remove,
        (Change::RemoveIfPresent, None) => Resolved::Keep,
        (Change::Update(update), _) => match (update(present), present) {
            (Action::Conflict, _) => return Err(TreeError::Conflict { root: tree, key }),
            (Action::Keep, _) | (Action::Remove, None) => Resolved::Keep,
            (Action::Put(data), _) => Resolved::PutMade(data),
            (Action::Remove, Some(_)) => Resolved::Remove,
        },
    };
    let item_bytes = |data: &[u8]| data.len().saturating_add(ITEM_HEADER_SIZE);
    if let Some(data) = resolved.data(&edit.change) {
        if item_bytes(data) > leaf.capacity_bytes() {
            return Err(TreeError::TooLarge { root: tree, key, size_bytes: data.len() });
        }
        // An item that grows may have to move whole.
        let moves = present.is_none_or(|present| data.len() > present.len());
        if moves {
            change.grows_bytes = change.grows_bytes.saturating_add(item_bytes(data));
        }
        let freed = present.map_or(0, |present| present.len().saturating_sub(data.len()));
        change.shrinks_bytes = change.shrinks_bytes.saturating_add(freed);
        change.changes = true;
    }
    if matches!(resolved, Resolved::Remove) {
        change.shrinks_bytes = change.shrinks_bytes.saturating_add(present.map_or(0, item_bytes));
        change.changes = true;
        change.removes = true;
    }
    Ok(resolved)
}
