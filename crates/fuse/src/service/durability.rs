//! Makes files and directories durable.

use rustix::io::Errno;
use vlinder_base::sync::Arc;
use vlinder_fs::{Inode, InodeFlags, Standing};

use super::blocks::Blocks;
use super::convert::errno;
use super::mounted::Mounted;
use super::unplaced::{UnplacedBytes, graver};
use crate::transport::{HandleNumber, Reply};

/// What fsync(2) does.
pub(super) struct Durability {
    mounted: Arc<Mounted>,
    blocks: Arc<Blocks>,
    unplaced: Arc<UnplacedBytes>,
}

impl Durability {
    pub(super) fn new(mounted: Arc<Mounted>, blocks: Arc<Blocks>, unplaced: Arc<UnplacedBytes>) -> Self {
        Self { mounted, blocks, unplaced }
    }

    /// As [`sync`](Self::sync) for an open file.
    pub(super) fn sync_file(&self, handle: HandleNumber) -> Reply<()> {
        let file = self.mounted.handles().file(handle)?;
        self.sync(file.open.inode())
    }

    /// Makes a file or directory durable, names included. On a file system that an error made read-only that
    /// is an error; on one that was opened read-only there is nothing to do.
    pub(super) fn sync(&self, inode: &Arc<Inode>) -> Reply<()> {
        let filesystem = self.mounted.filesystem();
        if filesystem.options().read_only {
            return Ok(());
        }
        let placed = self.mounted.with_room(|| self.unplaced.place(inode.id()));
        let synced = filesystem.maintenance().sync_inode(inode);
        self.blocks.tell(inode.id());
        match synced {
            Err(_) if Standing::of(filesystem).is_read_only_by_nature() => Ok(()),
            // Linux says EIO of a file system that was stopped by an error.
            synced => graver(placed, synced.map_err(|error| errno(&error)))
                .map_err(|errno| if errno == Errno::ROFS { Errno::IO } else { errno }),
        }
    }
}

/// Whether every write to a file is to be durable at once (`chattr +S`).
pub(super) fn is_synchronous(inode: &Inode) -> bool {
    inode.flags().has(InodeFlags::SYNC)
}
