//! Where blocks come from when they are not in memory.

use vlinder_base::sync::Arc;
use vlinder_format::Block;

use crate::{LeftOut, TreeError, WantedBlock};

/// Reads and writes whole blocks.
pub trait BlockSource: Send + Sync {
    /// Bytes of a block.
    fn node_size(&self) -> u32;

    /// Reads blocks, in one batch, each verified: checksum, address, file system, structure, generation,
    /// level, first key. One result for each wanted block, in order.
    fn read(&self, wanted: &[WantedBlock]) -> Vec<Result<Arc<Block>, TreeError>>;

    /// Where the source remembers the items that leaves lack which it gave; none if it gives whole leaves
    /// alone.
    fn left_out(&self) -> Option<Arc<LeftOut>> {
        None
    }
}
