//! What the committer needs of the trees: the changed blocks, frozen.

use vlinder_base::sync::Arc;
use vlinder_format::{Block, Generation};

use crate::{DirtyBlock, Trees};

impl Trees {
    /// Bytes of blocks that the running transaction has changed.
    pub fn dirty_bytes(&self) -> u64 {
        self.cache.dirty_bytes()
    }

    /// Forgets a changed block that nothing references any more; it is never written.
    pub fn forget(&self, logical: vlinder_format::Logical) {
        self.cache.forget_dirty(logical);
    }

    /// Freezes every block that the transaction of `generation` changed, in address order. They stay readable, and are
    /// copied by the next transaction before it changes them. No apply may be under way.
    pub fn freeze(&self, generation: Generation) -> Vec<DirtyBlock> {
        self.cache.freeze(generation)
    }

    /// The frozen blocks in the form in which they are about to be written. For trees that are written while their
    /// transaction runs (the fsync log): a change of such a block goes to a copy.
    pub fn seal_frozen(&self, sealed: &[Arc<Block>]) {
        self.cache.seal_frozen(sealed);
    }

    /// The frozen blocks are on the devices: their written forms (flag and checksum set) become clean blocks.
    pub fn thaw(&self, written: impl IntoIterator<Item = Arc<Block>>) {
        self.cache.thaw(written);
    }
}
