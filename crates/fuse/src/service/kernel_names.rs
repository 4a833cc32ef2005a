//! Names that the kernel is made to look up anew, because what it keeps of the file behind them is wrong.

use vlinder_base::sync::Arc;
use vlinder_fs::{FileType, Inode, InodeId};

use super::mounted::Mounted;

/// Has the kernel forget names. It forgets the file with its last name, unless the file is open.
#[derive(Clone)]
pub(super) struct KernelNames(Arc<Mounted>);

impl KernelNames {
    pub(super) fn new(mounted: Arc<Mounted>) -> Self {
        Self(mounted)
    }

    /// Has the kernel look a regular file up anew that has one name. Names of directories, and of files with
    /// several names, stay in the kernel's memory: with such a name would go what is mounted there.
    pub(super) fn forget_file(&self, id: InodeId) {
        let kernel = self.0.kernel();
        let Some(notifier) = kernel.notifier().filter(|_| self.0.has_writeback()).map(Arc::clone) else {
            return;
        };
        let mounted = Arc::clone(&self.0);
        kernel.run(Box::new(move || {
            let is_regular = |inode: Arc<Inode>| inode.file_type() == FileType::Regular;
            if !mounted.filesystem().inode(id).is_ok_and(is_regular) {
                return;
            }
            let Ok(names) = mounted.filesystem().names().all_names(id) else { return };
            if let [(directory, name)] = &names[..] {
                let directory = mounted.node(InodeId::new(id.root, *directory));
                if let Err(error) = notifier.invalidate_entry(directory, name) {
                    tracing::debug!(%error, "the kernel keeps the times of a file that changed");
                }
            }
        }));
    }

    /// Has the kernel look up all names of a file anew whose end it has too far.
    pub(super) fn forget_size(&self, id: InodeId) {
        let (mounted, kernel) = (&self.0, self.0.kernel());
        let Ok(names) = mounted.filesystem().names().all_names(id) else { return };
        let node = |directory| mounted.node(InodeId::new(id.root, directory));
        let names: Vec<_> = names.into_iter().map(|(directory, name)| (node(directory), name)).collect();
        let Some(notifier) = kernel.notifier().map(Arc::clone) else { return };
        kernel.run(Box::new(move || {
            for (directory, name) in names {
                if let Err(error) = notifier.invalidate_entry(directory, &name) {
                    tracing::debug!(%error, "the kernel keeps the size of a file that found no room");
                }
            }
        }));
    }
}
