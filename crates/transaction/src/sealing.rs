//! The last look at blocks before they are written.

use vlinder_base::parallel;
use vlinder_base::sync::Arc;
use vlinder_format::{Block, Damage};
use vlinder_tree::VolumeBlocks;

/// So many blocks are worth waking other cores for: one takes some ten microseconds.
const WORTH_SHARING: usize = 16;

/// Gives blocks their checksums, and each a last look; on all cores where that pays.
pub(crate) fn seal_all(source: &VolumeBlocks, blocks: &[Arc<Block>]) -> Result<Vec<Arc<Block>>, Damage> {
    let seal = |block: &Arc<Block>| source.seal(block).map(Arc::new);
    if blocks.len() < WORTH_SHARING {
        return blocks.iter().map(seal).collect();
    }
    parallel::map(blocks, seal).into_iter().collect()
}
