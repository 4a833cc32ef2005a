//! A walk of a tree's items that knows of each leaf whether another tree has it, too.
//!
//! A block is shared if the extent tree counts several references to it, or if the block above it is shared.
//! A block that is newer than the last snapshot of its tree can't be (Linux: `btrfs_block_can_be_shared`),
//! and is not looked up.

use vlinder_base::sync::Arc;
use vlinder_forest::{Forest, OpenTree};
use vlinder_format::{Block, Key};
use vlinder_tree::WantedBlock;

use super::counts::ReferenceCounts;
use super::error::{ExtentKind, UsageError};

/// Whether a block has several references of its own.
pub(super) fn has_several(
    counts: &mut ReferenceCounts<'_>,
    tree: &OpenTree,
    block: &WantedBlock,
) -> Result<bool, UsageError> {
    if block.generation > tree.root().last_snapshot() {
        return Ok(false);
    }
    Ok(counts.look_up(block.logical, ExtentKind::TreeBlock)?.references > 1)
}

/// A block on the way down.
struct Step {
    block: Arc<Block>,
    slot: usize,
    is_shared: bool,
    /// The key that the block ends before; none at the end of the tree.
    before: Option<Key>,
}

/// A place between the items of a tree.
pub(super) struct SharedPath<'a> {
    forest: &'a Forest,
    tree: Arc<OpenTree>,
    /// Ends with a leaf; empty before the first search.
    steps: Vec<Step>,
}

impl<'a> SharedPath<'a> {
    /// Before the first item of a tree, which must stand still.
    pub(super) fn new(forest: &'a Forest, tree: &Arc<OpenTree>) -> Self {
        Self { forest, tree: Arc::clone(tree), steps: Vec::new() }
    }

    /// The tree.
    pub(super) fn tree(&self) -> &Arc<OpenTree> {
        &self.tree
    }

    /// Goes to the first item at or after a key.
    pub(super) fn seek(&mut self, counts: &mut ReferenceCounts<'_>, key: &Key) -> Result<(), UsageError> {
        let has = |step: &Step, is_root: bool| {
            (is_root || step.block.first_key().is_some_and(|first| first <= *key))
                && step.before.is_none_or(|before| *key < before)
        };
        while self.steps.last().is_some_and(|step| !has(step, self.steps.len() == 1)) {
            self.steps.pop();
        }
        if self.steps.is_empty() {
            let root = WantedBlock::root(self.tree.root());
            let is_shared = has_several(counts, &self.tree, &root)?;
            let block = self.forest.trees().block(&root)?;
            self.steps.push(Step { block, slot: 0, is_shared, before: None });
        }
        self.descend(counts, key)?;
        if let Some(leaf) = self.steps.last_mut() {
            leaf.slot = leaf.block.search(key).unwrap_or_else(|slot| slot);
        }
        self.leave_what_has_ended(counts)
    }

    /// The leaf that the path ends in, the slot, and whether the leaf is shared; none at the end.
    pub(super) fn item(&self) -> Option<(&Arc<Block>, usize, bool)> {
        let leaf = self.steps.last().filter(|step| step.block.is_leaf())?;
        (leaf.slot < leaf.block.len()).then_some((&leaf.block, leaf.slot, leaf.is_shared))
    }

    /// Goes to the next item.
    pub(super) fn advance(&mut self, counts: &mut ReferenceCounts<'_>) -> Result<(), UsageError> {
        if let Some(leaf) = self.steps.last_mut() {
            leaf.slot = leaf.slot.saturating_add(1);
        }
        self.leave_what_has_ended(counts)
    }

    /// Goes down to the leaf that has a key, or would.
    fn descend(&mut self, counts: &mut ReferenceCounts<'_>, key: &Key) -> Result<(), UsageError> {
        while let Some(node) = self.steps.last_mut().filter(|step| !step.block.is_leaf()) {
            node.slot = node.block.child_slot(key);
            let child = WantedBlock::child(self.tree.id(), &node.block, node.slot);
            let before = child.before.or(node.before);
            let is_shared = node.is_shared || has_several(counts, &self.tree, &child)?;
            let block = self.forest.trees().block(&child)?;
            self.steps.push(Step { block, slot: 0, is_shared, before });
        }
        Ok(())
    }

    /// Behind the last item of a leaf lies the first one of the next.
    fn leave_what_has_ended(&mut self, counts: &mut ReferenceCounts<'_>) -> Result<(), UsageError> {
        while self.item().is_none() {
            let Some(next) = self.steps.last().and_then(|leaf| leaf.before) else { return Ok(()) };
            while self.steps.last().is_some_and(|step| step.before == Some(next)) {
                self.steps.pop();
            }
            self.descend(counts, &next)?;
        }
        Ok(())
    }
}
