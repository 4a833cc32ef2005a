//! Has the kernel show change times that it does not keep right itself.
//!
//! Under the writeback cache the kernel keeps a file's change time, and ignores the server's as long as it
//! knows the file (`fuse_get_cache_mask`, fs/fuse/inode.c). It moves that time with every change of its own,
//! but not with ioctl(2), which chattr(1) uses, and not with what comes through the control socket. So it is
//! made to forget such a file when a handle of the file is closed. A file that is open elsewhere, or has
//! several names, shows its old time until the kernel forgets the file by itself.
//!
//! The invariant: a file is among these only while a change time moved that the kernel may not know
//! ([`ChangeTimes::note`]), and no longer than until a close of the file after which it is not open for
//! writing ([`ChangeTimes::show`]).

use std::collections::HashSet;

use vlinder_base::sync::{Arc, Mutex};
use vlinder_fs::{FileType, Inode, InodeId};

use super::kernel_names::KernelNames;
use super::mounted::Mounted;

/// Open files whose change times the kernel has older than the file system.
pub(super) struct ChangeTimes {
    mounted: Arc<Mounted>,
    names: KernelNames,
    older: Mutex<HashSet<InodeId>>,
}

impl ChangeTimes {
    /// Of no file.
    pub(super) fn new(mounted: Arc<Mounted>, names: KernelNames) -> Self {
        Self { mounted, names, older: Mutex::default() }
    }

    /// The change time of an open file moved, and the kernel does not know.
    pub(super) fn note(&self, inode: &Inode) {
        if self.mounted.has_writeback() && inode.file_type() == FileType::Regular {
            self.older.lock().insert(inode.id());
        }
    }

    /// A handle of a file was closed.
    pub(super) fn show(&self, id: InodeId) {
        if !self.mounted.handles().is_written(id) && self.older.lock().remove(&id) {
            self.names.forget_file(id);
        }
    }
}
