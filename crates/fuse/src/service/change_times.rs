//! Has the kernel show change times that it does not keep right itself.
//!
//! Under the writeback cache the kernel keeps a file's change time, and ignores the server's as long as it
//! knows the file (`fuse_get_cache_mask`, fs/fuse/inode.c). It moves that time with every change of its own,
//! but not with ioctl(2), which chattr(1) uses, and not with what comes through the control socket. So it is
//! made to forget such a file when a handle of it is closed. A file that is open elsewhere, or has several
//! names, shows its old time until the kernel forgets it by itself.

use std::collections::HashSet;

use vlinder_base::sync::{Arc, Mutex, Weak};
use vlinder_fs::{FileType, Inode, InodeId};

use super::MountService;

/// Open files whose change times the kernel has older than the file system.
#[derive(Default)]
pub(super) struct ChangeTimes(Mutex<HashSet<InodeId>>);

impl MountService {
    /// The change time of an open file moved, and the kernel does not know.
    pub(super) fn note_change_time(&self, inode: &Inode) {
        if self.writeback && inode.file_type() == FileType::Regular {
            self.change_times.0.lock().insert(inode.id());
        }
    }

    /// A handle of a file was closed.
    pub(super) fn show_change_time(&self, id: InodeId) {
        if !self.handles.is_written(id) && self.change_times.0.lock().remove(&id) {
            self.forget_in_kernel(id);
        }
    }

    /// Has the kernel look a file up anew, which forgets what it keeps of it, unless it is open. Names of
    /// directories, and of files with several, stay in the kernel's memory: with one goes what is mounted
    /// there.
    pub(crate) fn forget_in_kernel(&self, id: InodeId) {
        if !self.writeback {
            return;
        }
        let Some(service) = self.this.get().and_then(Weak::upgrade) else { return };
        let Some(notifier) = self.notifier.get().map(Arc::clone) else { return };
        self.aside.run(Box::new(move || {
            let is_regular = |inode: Arc<Inode>| inode.file_type() == FileType::Regular;
            if !service.filesystem.inode(id).is_ok_and(is_regular) {
                return;
            }
            let Ok(names) = service.filesystem.all_names(id) else { return };
            if let [(directory, name)] = &names[..] {
                let directory = service.node(InodeId::new(id.root, *directory));
                if let Err(error) = notifier.invalidate_entry(directory, name) {
                    tracing::debug!(%error, "the kernel keeps the times of a file that changed");
                }
            }
        }));
    }
}
