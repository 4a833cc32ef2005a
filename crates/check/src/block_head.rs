//! What is kept of a tree block's header.

use vlinder_format::block::{BLOCK_FLAG_RELOCATION, BackReferenceRevision};
use vlinder_format::{Block, Generation, Level, Logical, RootId};

/// The owner of a block, and what else of its header the rules ask about.
#[derive(Clone, Copy, Debug)]
pub(crate) struct BlockHead {
    pub(crate) logical: Logical,
    pub(crate) owner: RootId,
    pub(crate) generation: Generation,
    pub(crate) level: Level,
    /// Without the revision.
    pub(crate) flags: u64,
    pub(crate) revision: BackReferenceRevision,
}

impl BlockHead {
    pub(crate) fn of(block: &Block) -> Self {
        Self {
            logical: block.logical(),
            owner: block.owner(),
            generation: block.generation(),
            level: block.level(),
            flags: block.header().flags(),
            revision: block.header().back_reference_revision(),
        }
    }

    /// Whether a relocation put it there.
    pub(crate) fn is_relocated(&self) -> bool {
        self.flags & BLOCK_FLAG_RELOCATION != 0
    }
}
