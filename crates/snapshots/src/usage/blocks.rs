//! Tree blocks read in batches, by address and generation.

use vlinder_base::sync::Arc;
use vlinder_forest::Forest;
use vlinder_format::{Block, Generation, Level, Logical, RootId};
use vlinder_tree::WantedBlock;

use super::error::UsageError;

/// Blocks of one batch.
pub(super) const BATCH: usize = 64;

/// What is known of a block of some subvolume's.
pub(super) fn wanted(logical: Logical, generation: Generation, level: Level) -> WantedBlock {
    WantedBlock { logical, generation, level, first_key: None, before: None, tree: RootId::FS_TREE }
}

/// Blocks in their order: those in memory, and the others in one batch. What was read is not kept in memory.
pub(super) fn read(forest: &Forest, all: &[WantedBlock]) -> Result<Vec<Arc<Block>>, UsageError> {
    let trees = forest.trees();
    let mut found: Vec<Option<Arc<Block>>> = all.iter().map(|block| trees.resident(block)).collect();
    let missing: Vec<WantedBlock> =
        all.iter().zip(&found).filter(|(_, found)| found.is_none()).map(|(block, _)| *block).collect();
    if !missing.is_empty() {
        trees.metrics().blocks_read.add(u64::try_from(missing.len()).unwrap_or(u64::MAX));
        let mut came = trees.source().read(&missing).into_iter();
        for slot in found.iter_mut().filter(|slot| slot.is_none()) {
            *slot = came.next().transpose()?;
        }
    }
    // A source gives a result for each wanted block.
    Ok(found.into_iter().flatten().collect())
}
