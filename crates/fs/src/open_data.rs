//! Data of an open file, for a caller that decides by itself whether reading counts as an access.

use vlinder_data::OpenCache;

use crate::{OpenInode, Result};

impl OpenInode {
    /// Reads from an offset into `target`; returns how many bytes, fewer only at the end of the file. The
    /// access time stays: see [`InodeAttributes::note_access`](crate::InodeAttributes::note_access).
    ///
    /// # Errors
    /// What reading met.
    pub fn read(&self, cache: &OpenCache, offset: u64, target: &mut [u8]) -> Result<usize> {
        let inode = self.inode();
        let _operation = inode.operation.read();
        Ok(vlinder_data::read(self.store(), inode.node(), cache, offset, target)?)
    }
}
