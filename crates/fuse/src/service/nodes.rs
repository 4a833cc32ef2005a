//! Files by the numbers that the kernel has for them.

use rustix::io::Errno;
use vlinder_base::sync::Arc;
use vlinder_fs::{Filesystem, FsError, Inode, InodeId, OpenInode, Refusal};

use super::convert::errno;
use super::deletions::Deleter;
use super::kernel_references::KernelReferences;
use crate::numbers::Numbers;
use crate::transport::{NodeNumber, Reply};

/// The files of a mount: their numbers, and what the kernel knows of each.
pub(super) struct Nodes {
    filesystem: Filesystem,
    numbers: Numbers,
    references: KernelReferences,
}

impl Nodes {
    /// For a kernel that knows nothing yet.
    ///
    /// # Errors
    /// The system's, where it gives no more threads.
    pub(super) fn new(filesystem: Filesystem) -> std::io::Result<Self> {
        let numbers = Numbers::new(filesystem.root_id().root);
        let references = KernelReferences::new(Arc::clone(&filesystem.options().clock))?;
        Ok(Self { filesystem, numbers, references })
    }

    /// What the kernel calls a file.
    pub(super) fn node(&self, id: InodeId) -> NodeNumber {
        self.numbers.node(id)
    }

    /// A file's inode number (`st_ino`).
    pub(super) fn number(&self, id: InodeId) -> u64 {
        self.numbers.number(id)
    }

    /// Whether a number stands for its file only as long as the kernel remembers the file.
    pub(super) fn is_from_table(&self, node: NodeNumber) -> bool {
        self.numbers.is_from_table(node)
    }

    /// The id of the file that the kernel means; `ESTALE` for a number that was never given.
    pub(super) fn id(&self, node: NodeNumber) -> Reply<InodeId> {
        self.numbers.file(node).ok_or(Errno::STALE)
    }

    /// The file that the kernel means.
    pub(super) fn inode(&self, node: NodeNumber) -> Reply<Arc<Inode>> {
        match self.filesystem.inode(self.id(node)?) {
            Ok(inode) => Ok(inode),
            // The root directory of a subvolume that was removed is nowhere but here.
            Err(error) if error.refusal() == Some(Refusal::NotFound) => {
                self.references.held(node).ok_or(Errno::STALE)
            }
            Err(error) => Err(errno(&error)),
        }
    }

    /// The kernel is told of a file in a directory: to be called before it is, so that it can't forget the
    /// file before that is counted.
    pub(super) fn remember(&self, node: NodeNumber, directory: NodeNumber) {
        self.numbers.remember(node);
        self.references.remember(node, directory);
    }

    /// The kernel forgets so many of the times that it was told of a file.
    pub(super) fn forget(&self, node: NodeNumber, lookups: u64) {
        self.references.forget(node, lookups);
        self.numbers.forget(node, lookups);
    }

    /// See [`KernelReferences::note_close`].
    pub(super) fn note_close(&self, id: InodeId) {
        self.references.note_close(self.node(id));
    }

    /// See [`KernelReferences::take_outdated`].
    pub(super) fn take_outdated(&self, directory: NodeNumber) -> bool {
        self.references.take_outdated(directory)
    }

    /// Removes a name by `hold`, which gives the file where that was its last name. The file stays for as
    /// long as the kernel knows it. Where too many files are held already, the name is removed by `delete`,
    /// and the file with it.
    pub(super) fn remove_name(
        &self,
        hold: impl FnOnce() -> Result<Option<OpenInode>, FsError>,
        delete: impl FnOnce() -> Result<(), FsError>,
    ) -> Reply<()> {
        if !self.references.may_hold() {
            return delete().map_err(|error| errno(&error));
        }
        if let Some(open) = hold().map_err(|error| errno(&error))? {
            let node = self.node(open.inode().id());
            self.references.hold(node, open);
        }
        Ok(())
    }

    /// What deletes the files that lost their last name.
    pub(super) fn deleter(&self) -> &Deleter {
        self.references.deleter()
    }

    /// The kernel is gone: deletes all files that have no name, and returns when that is done.
    pub(super) fn finish(&self) {
        self.references.finish();
    }
}
