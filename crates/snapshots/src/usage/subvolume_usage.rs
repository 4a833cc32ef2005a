//! What a whole subvolume shows and shares, added up over its tree instead of its names.
//!
//! What is not shared is read in the order of keys. Where a shared block begins, `SharedBlocks` knows the
//! rest, or reads it once for all subvolumes.

use std::collections::BTreeSet;

use vlinder_base::sync::Arc;
use vlinder_forest::OpenTree;
use vlinder_format::{Block, ItemType, Key, ObjectId, RootId};
use vlinder_tree::WantedBlock;

use super::block_set::BlockSet;
use super::error::{ExtentKind, UsageError};
use super::extent_items;
use super::file_runs::{FileRuns, ShownBytes};
use super::names;
use super::range_list::RangeList;
use super::reader::UsageReader;
use super::shared_path::{SharedPath, has_several};

/// What one measurement gathers.
#[derive(Default)]
pub(super) struct Gathered {
    /// Bytes of files.
    pub shown: ShownBytes,
    /// Shared runs outside of shared blocks.
    pub shared: RangeList,
    /// Runs in shared blocks that no name leads to.
    pub hidden: Vec<(u64, u64)>,
    /// Their bytes.
    pub hidden_bytes: u64,
}

/// The files of a tree's leaves that are not shared, in order.
struct UnsharedFiles {
    inode: ObjectId,
    runs: FileRuns,
    orphans: BTreeSet<u64>,
}

impl UsageReader<'_> {
    /// Adds a subvolume, without those that lie in it.
    pub(super) fn add_subvolume(&mut self, root: RootId, gathered: &mut Gathered) -> Result<(), UsageError> {
        let tree = self.forest.tree(root)?;
        let top = WantedBlock::root(tree.root());
        let orphans = names::orphans(self.forest, &tree)?;
        self.leave_out(&tree, &orphans, gathered)?;
        let mut files = UnsharedFiles { inode: ObjectId(0), runs: FileRuns::default(), orphans };
        if has_several(&mut self.counts, &tree, &top)? {
            let below = self.shared.include((self.forest, self.watch), &top)?;
            gathered.shown.total = gathered.shown.total.saturating_add(below);
            return Ok(());
        }
        let mut met = BlockSet::new(self.forest.trees().source().node_size());
        // Blocks on the way down, with what is known of their children, and the slot that is next.
        let mut path: Vec<(Arc<Block>, Vec<bool>, usize)> = Vec::new();
        self.enter(&tree, &top, &mut met, &mut path)?;
        while let Some((block, shared, slot)) = path.last_mut() {
            let at = *slot;
            *slot = slot.saturating_add(1);
            if at >= block.len() {
                path.pop();
                continue;
            }
            if block.is_leaf() {
                let leaf = Arc::clone(block);
                path.pop();
                self.add_leaf(&leaf, &mut files, gathered)?;
                continue;
            }
            let child = WantedBlock::child(root, block, at);
            if shared.get(at).copied().unwrap_or(false) {
                let below = self.shared.include((self.forest, self.watch), &child)?;
                gathered.shown.total = gathered.shown.total.saturating_add(below);
            } else {
                self.enter(&tree, &child, &mut met, &mut path)?;
            }
        }
        files.turn_to(ObjectId(0), gathered);
        Ok(())
    }

    /// Reads a block that is not shared, and looks up which of its children are.
    fn enter(
        &mut self,
        tree: &OpenTree,
        wanted: &WantedBlock,
        met: &mut BlockSet,
        path: &mut Vec<(Arc<Block>, Vec<bool>, usize)>,
    ) -> Result<(), UsageError> {
        if !met.insert(wanted.logical.0) {
            let (kind, address) = (ExtentKind::TreeBlock, wanted.logical);
            return Err(UsageError::Miscounted { kind, address, met: 2, counted: 1 });
        }
        let block = self.forest.trees().block(wanted)?;
        (self.watch)(1);
        let mut shared = Vec::new();
        if !block.is_leaf() {
            shared.resize(block.len(), false);
            let mut children: Vec<(WantedBlock, usize)> =
                (0..block.len()).map(|slot| (WantedBlock::child(tree.id(), &block, slot), slot)).collect();
            children.sort_unstable_by_key(|(child, _)| child.logical);
            for (child, slot) in children {
                // What another tree shares and this one has, too, is shared.
                let is_shared = self.shared.knows(&child) || has_several(&mut self.counts, tree, &child)?;
                if let Some(flag) = shared.get_mut(slot) {
                    *flag = is_shared;
                }
            }
        }
        path.push((block, shared, 0));
        Ok(())
    }

    fn add_leaf(
        &mut self,
        leaf: &Block,
        files: &mut UnsharedFiles,
        gathered: &mut Gathered,
    ) -> Result<(), UsageError> {
        for slot in 0..leaf.len() {
            let inode = leaf.key(slot).objectid;
            if inode >= ObjectId::LAST_FREE {
                break;
            }
            let Some(run) = extent_items::run_at(leaf, slot)? else { continue };
            if files.orphans.contains(&inode.0) {
                continue;
            }
            files.turn_to(inode, gathered);
            files.runs.add(&mut self.counts, (run, false), &mut |range| gathered.shared.push(range))?;
        }
        Ok(())
    }

    /// Takes away what files without a name have in shared leaves, which are counted as a whole.
    fn leave_out(
        &mut self,
        tree: &Arc<OpenTree>,
        orphans: &BTreeSet<u64>,
        gathered: &mut Gathered,
    ) -> Result<(), UsageError> {
        let mut path = SharedPath::new(self.forest, tree);
        for orphan in orphans {
            path.seek(&mut self.counts, &Key::new(ObjectId(*orphan), ItemType::EXTENT_DATA, 0))?;
            while let Some((leaf, slot, is_shared)) = path.item() {
                if leaf.key(slot).objectid.0 != *orphan {
                    break;
                }
                if let Some(run) = extent_items::run_at(leaf, slot)?.filter(|_| is_shared) {
                    gathered.hidden_bytes = gathered.hidden_bytes.saturating_add(run.file_bytes);
                    gathered.hidden.push(run.shown());
                }
                path.advance(&mut self.counts)?;
            }
        }
        Ok(())
    }
}

impl UnsharedFiles {
    /// Ends the file that it is at, if the next run is another file's.
    fn turn_to(&mut self, inode: ObjectId, gathered: &mut Gathered) {
        if inode != self.inode {
            let runs = std::mem::take(&mut self.runs);
            gathered.shown.add(runs.finish(&mut |range| gathered.shared.push(range)));
            self.inode = inode;
        }
    }
}
