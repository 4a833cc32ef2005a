//! What shared tree blocks show, added up once for all trees that have them.
//!
//! A thousand snapshots share most of their blocks. So the bytes that a shared block shows, with all below
//! it, are remembered, and the ranges of the leaves stand in one [`Coverage`] from one measurement to the
//! next: a measurement adds the leaves that the one before did not have, and takes away those that it does
//! not have any more. Below a block that is known, only nodes are read again.
//!
//! Invariants:
//! 1. Every block here is shared by two trees, or lies below one that is.
//! 2. The coverage has the runs of exactly those leaves that are marked as covered, once each.

use std::collections::HashMap;

use vlinder_forest::Forest;
use vlinder_format::{Block, Generation, Level, Logical, ObjectId};
use vlinder_tree::WantedBlock;

use super::blocks::{self, BATCH};
use super::coverage::Coverage;
use super::error::UsageError;
use super::extent_items::{self, FileRun};

/// What is known of a shared block.
#[derive(Clone, Copy, Debug)]
struct SharedBlock {
    /// Bytes that files show in it and below it.
    shown_bytes: u64,
    generation: Generation,
    /// The last measurement that had it.
    turn: u32,
    is_covered: bool,
    is_leaf: bool,
}

/// The shared blocks that were met.
#[derive(Default)]
pub(super) struct SharedBlocks {
    known: HashMap<Logical, SharedBlock>,
    coverage: Coverage,
    turn: u32,
}

impl SharedBlocks {
    /// Begins a measurement.
    pub(super) fn begin(&mut self) {
        self.turn = self.turn.saturating_add(1);
    }

    /// Whether a block is known to be shared.
    pub(super) fn knows(&self, block: &WantedBlock) -> bool {
        self.known.get(&block.logical).is_some_and(|known| known.generation == block.generation)
    }

    /// Has a shared block in this measurement; gives the bytes that files show in it and below it.
    pub(super) fn include(
        &mut self,
        (forest, watch): (&Forest, &dyn Fn(u64)),
        block: &WantedBlock,
    ) -> Result<u64, UsageError> {
        if let Some(shown_bytes) = self.at_hand(block) {
            return Ok(shown_bytes);
        }
        if block.level == Level::LEAF {
            self.cover(forest, &[*block])?;
            watch(1);
            return Ok(self.at_hand(block).unwrap_or_default());
        }
        let node = forest.trees().block(block)?;
        watch(1);
        let children: Vec<WantedBlock> =
            (0..node.len()).map(|slot| WantedBlock::child(block.tree, &node, slot)).collect();
        if node.level().below() == Some(Level::LEAF) {
            let missing: Vec<WantedBlock> =
                children.iter().filter(|child| self.at_hand(child).is_none()).copied().collect();
            for batch in missing.chunks(BATCH) {
                self.cover(forest, batch)?;
                watch(u64::try_from(batch.len()).unwrap_or(u64::MAX));
            }
        }
        let mut shown_bytes = 0_u64;
        for child in &children {
            // Levels fall, so the calls are eight deep at most.
            shown_bytes = shown_bytes.saturating_add(self.include((forest, watch), child)?);
        }
        self.keep(block, shown_bytes, false);
        Ok(shown_bytes)
    }

    /// Bytes that the trees of this measurement show together in shared leaves and in these ranges; what is
    /// in `less` and was included does not count.
    pub(super) fn measure(
        &mut self,
        forest: &Forest,
        ranges: &[(u64, u64)],
        less: &[(u64, u64)],
    ) -> Result<u64, UsageError> {
        self.uncover_others(forest)?;
        less.iter().for_each(|range| self.coverage.remove(*range));
        ranges.iter().for_each(|range| self.coverage.add(*range));
        let bytes = self.coverage.bytes();
        ranges.iter().for_each(|range| self.coverage.remove(*range));
        less.iter().for_each(|range| self.coverage.add(*range));
        Ok(bytes)
    }

    /// The bytes of a block that needs no reading to be in this measurement.
    fn at_hand(&mut self, block: &WantedBlock) -> Option<u64> {
        let known = self.known.get_mut(&block.logical)?;
        if known.generation != block.generation || known.is_leaf != (block.level == Level::LEAF) {
            return None;
        }
        if known.is_leaf && known.is_covered {
            known.turn = self.turn;
        }
        (known.turn == self.turn).then_some(known.shown_bytes)
    }

    fn keep(&mut self, block: &WantedBlock, shown_bytes: u64, is_covered: bool) {
        let (generation, turn, is_leaf) = (block.generation, self.turn, block.level == Level::LEAF);
        let kept = SharedBlock { shown_bytes, generation, turn, is_covered, is_leaf };
        self.known.insert(block.logical, kept);
    }

    /// Reads leaves and adds their runs.
    fn cover(&mut self, forest: &Forest, leaves: &[WantedBlock]) -> Result<(), UsageError> {
        for (leaf, wanted) in blocks::read(forest, leaves)?.iter().zip(leaves) {
            if self.at_hand(wanted).is_some() {
                // A node that has one child twice.
                continue;
            }
            let runs = file_runs(leaf)?;
            runs.iter().for_each(|run| self.coverage.add(run.shown()));
            let shown_bytes = runs.iter().fold(0, |sum: u64, run| sum.saturating_add(run.file_bytes));
            self.keep(wanted, shown_bytes, true);
        }
        Ok(())
    }

    /// Takes away the runs of leaves that this measurement does not have.
    fn uncover_others(&mut self, forest: &Forest) -> Result<(), UsageError> {
        let turn = self.turn;
        let others = self.known.iter().filter(|(_, known)| known.is_covered && known.turn != turn);
        let mut others: Vec<WantedBlock> =
            others.map(|(logical, known)| blocks::wanted(*logical, known.generation, Level::LEAF)).collect();
        others.sort_unstable_by_key(|block| block.logical);
        for batch in others.chunks(BATCH) {
            for leaf in blocks::read(forest, batch)? {
                file_runs(&leaf)?.iter().for_each(|run| self.coverage.remove(run.shown()));
                if let Some(known) = self.known.get_mut(&leaf.logical()) {
                    known.is_covered = false;
                }
            }
        }
        Ok(())
    }
}

/// The runs of files in a leaf.
fn file_runs(leaf: &Block) -> Result<Vec<FileRun>, UsageError> {
    // Behind them lies what is no file's: Linux once kept a list of free inode numbers in such an item.
    let slots = (0..leaf.len()).take_while(|slot| leaf.key(*slot).objectid < ObjectId::LAST_FREE);
    slots.filter_map(|slot| extent_items::run_at(leaf, slot).transpose()).collect()
}
