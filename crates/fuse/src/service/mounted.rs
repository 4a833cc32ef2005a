//! The core that all objects of a mount's service share: the file system, and what the kernel has of it.

use rustix::io::Errno;
use vlinder_base::sync::Arc;
use vlinder_fs::{FileChange, Filesystem, FsError, Inode, InodeId};

use super::convert::errno;
use super::handles::Handles;
use super::kernel_link::KernelLink;
use super::nodes::Nodes;
use crate::transport::{NodeNumber, Reply};

/// A file, unless it lies in a subvolume that is being received. The kernel would keep what it is told of it,
/// names that are not there among that, and the receiver's next command would change it unseen.
///
/// # Errors
/// EBUSY.
pub(super) fn visible(inode: Arc<Inode>) -> Reply<Arc<Inode>> {
    if inode.subvolume().is_being_received() { Err(Errno::BUSY) } else { Ok(inode) }
}

/// A file system that the kernel uses.
pub(super) struct Mounted {
    filesystem: Filesystem,
    nodes: Nodes,
    handles: Handles,
    kernel: KernelLink,
    /// The kernel keeps written pages for a while.
    writeback: bool,
}

impl Mounted {
    /// Of a kernel that knows nothing yet.
    ///
    /// # Errors
    /// The system's, where it gives no more threads.
    pub(super) fn new(filesystem: Filesystem, writeback: bool) -> std::io::Result<Self> {
        let nodes = Nodes::new(filesystem.clone())?;
        let kernel = KernelLink::start()?;
        Ok(Self { filesystem, nodes, handles: Handles::default(), kernel, writeback })
    }

    /// The file system.
    pub(super) fn filesystem(&self) -> &Filesystem {
        &self.filesystem
    }

    /// Files by number.
    pub(super) fn nodes(&self) -> &Nodes {
        &self.nodes
    }

    /// What is open.
    pub(super) fn handles(&self) -> &Handles {
        &self.handles
    }

    /// The way to the kernel.
    pub(super) fn kernel(&self) -> &KernelLink {
        &self.kernel
    }

    /// Whether the kernel keeps written pages for a while.
    pub(super) fn has_writeback(&self) -> bool {
        self.writeback
    }

    /// The file that the kernel means.
    pub(super) fn inode(&self, node: NodeNumber) -> Reply<Arc<Inode>> {
        visible(self.nodes.inode(node)?)
    }

    /// What the kernel calls a file.
    pub(super) fn node(&self, id: InodeId) -> NodeNumber {
        self.nodes.node(id)
    }

    /// The files of which the kernel may have dirty pages.
    pub(super) fn written_files(&self) -> Vec<NodeNumber> {
        self.handles.written().into_iter().map(|id| self.node(id)).collect()
    }

    /// Tries what may find no space, and tries it again while files that were removed are being deleted.
    pub(super) fn with_room<T>(&self, attempt: impl FnMut() -> Reply<T>) -> Reply<T> {
        self.nodes.deleter().with_room(attempt)
    }

    /// Has the kernel ask for a file's attributes before it shows them again.
    pub(super) fn attributes_changed(&self, id: InodeId) {
        self.kernel.attributes_changed(self.node(id));
    }

    /// The number of bytes that a change concerned. The kernel is told where set-id bits went, or may have
    /// gone before the change failed.
    pub(super) fn note_change(&self, inode: &Inode, change: Result<FileChange, FsError>) -> Reply<u64> {
        if change.as_ref().map_or(true, |change| change.mode_changed) {
            self.attributes_changed(inode.id());
        }
        change.map(|change| change.length_bytes).map_err(|error| errno(&error))
    }
}
