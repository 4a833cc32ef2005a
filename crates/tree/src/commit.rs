//! What the committer needs of the trees: the changed blocks, frozen.

use vlinder_base::sync::Arc;
use vlinder_format::{Block, Generation, Logical};

use crate::Trees;

impl Trees {
    /// Bytes of blocks that the running transaction has changed.
    pub fn dirty_bytes(&self) -> u64 {
        self.cache.dirty_bytes()
    }

    /// Forgets a changed block that nothing references any more; it is never written.
    pub fn forget(&self, logical: Logical) {
        self.cache.forget_dirty(logical);
    }

    /// Freezes every block that the transaction of `generation` changed; gives their addresses, sorted. They
    /// stay readable, and are copied by the next transaction before it changes them. No apply may be under
    /// way.
    pub fn freeze(&self, generation: Generation) -> Vec<Logical> {
        self.cache.freeze(generation)
    }

    /// The frozen blocks at these addresses.
    pub fn frozen(&self, addresses: &[Logical]) -> Vec<Arc<Block>> {
        self.cache.frozen(addresses)
    }

    /// Frozen blocks in the form in which they are about to be written. A tree that is written while its
    /// transaction runs (the fsync log) copies such a block before it changes it.
    pub fn seal_frozen(&self, sealed: &[Arc<Block>]) {
        self.cache.seal_frozen(sealed);
    }

    /// The frozen blocks are on the devices, all in their sealed forms (flag and checksum set): they become
    /// clean.
    pub fn thaw(&self) {
        self.cache.thaw();
    }

    /// Forgets the frozen blocks: nobody wants to read them again.
    pub fn forget_frozen(&self) {
        self.cache.forget_frozen();
    }
}
