//! Where blocks come from when they are not in memory.

use vlinder_base::sync::Arc;
use vlinder_format::{Block, Generation, Key, Level, Logical, RootId};

use crate::{LeftOut, TreeError};

/// A block to read, with all that its parent says of it. Each copy is tried until one keeps to that.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct WantedBlock {
    /// Where it lies.
    pub logical: Logical,
    /// The generation that the parent recorded.
    pub generation: Generation,
    /// One below the parent's level.
    pub level: Level,
    /// The first key that the parent recorded; none for a root.
    pub first_key: Option<Key>,
    /// The key that the parent recorded for the next child, which all keys of this block lie before; none for
    /// a root and for a last child. An older version of a block can have the same first key and reach
    /// further.
    pub before: Option<Key>,
    /// The tree that is being read.
    pub tree: RootId,
}

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
