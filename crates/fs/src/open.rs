//! Open files: a file whose last name goes while it is open lives on until it is closed.

use vlinder_base::sync::Arc;
use vlinder_format::inode::{FileType, InodeFlags};

use crate::inode::Inode;
use crate::{Access, Caller, Filesystem, Refusal, Result};

/// What a file is opened for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct OpenMode {
    /// To read.
    pub read: bool,
    /// To write.
    pub write: bool,
    /// Writes go to the end (`O_APPEND`): the only way to write a file with the append flag.
    pub append: bool,
    /// The content is dropped (`O_TRUNC`).
    pub truncate: bool,
}

/// An open file. Dropping it closes it; [`close`](Self::close) tells what that met.
#[derive(Debug)]
pub struct OpenInode {
    filesystem: Filesystem,
    inode: Option<Arc<Inode>>,
}

impl Filesystem {
    /// Opens a file. The caller truncates (through `set_attributes`) where that was asked for.
    ///
    /// # Errors
    /// Those of permissions; [`Refusal::NotFound`] where the file is gone, [`Refusal::IsADirectory`] for
    /// writing one.
    pub fn open_inode(&self, caller: &Caller, inode: &Arc<Inode>, mode: OpenMode) -> Result<OpenInode> {
        let writes = mode.write || mode.append || mode.truncate;
        match inode.file_type() {
            FileType::SymbolicLink => return Err(Refusal::SymbolicLinkLoop.into()),
            FileType::Directory if writes => return Err(Refusal::IsADirectory.into()),
            _ => {}
        }
        let mut access = Access::default();
        if mode.read {
            access = access.with(Access::READ);
        }
        if writes {
            access = access.with(Access::WRITE);
        }
        self.access(caller, inode, access)?;
        if inode.flags().has(InodeFlags::APPEND) && ((writes && !mode.append) || mode.truncate) {
            return Err(Refusal::NotPermitted.into());
        }
        self.hold(inode)
    }

    /// Opens a file for the file system's own purposes or for a caller that was judged already.
    ///
    /// # Errors
    /// [`Refusal::NotFound`] where the file is gone.
    pub fn hold(&self, inode: &Arc<Inode>) -> Result<OpenInode> {
        let _operation = inode.operation.read();
        let mut state = inode.state();
        // What lives on in a deleted subvolume was open before.
        if state.deleted || (state.opens == 0 && inode.subvolume().is_deleted()) {
            return Err(Refusal::NotFound.into());
        }
        state.opens += 1;
        drop(state);
        Ok(OpenInode::adopt(self, Arc::clone(inode)))
    }

    /// Counts one opening less; at the last one of a file without names, deletes it. Errors leave it an
    /// orphan, which the background work deletes once there is space, or the next opening of the file system.
    pub(crate) fn release(&self, inode: &Arc<Inode>) {
        if let Err(error) = self.release_counted(inode) {
            tracing::warn!(inode = %inode.id(), %error, "a file without names could not be deleted; it is left for later");
        }
    }

    fn release_counted(&self, inode: &Arc<Inode>) -> Result<()> {
        let (is_closed, is_last) = {
            let mut state = inode.state();
            state.opens = state.opens.saturating_sub(1);
            (state.opens == 0, state.opens == 0 && state.orphan)
        };
        if is_closed && inode.subvolume().is_deleted() {
            // It was all that was left of its subvolume.
            self.shared().inodes.remove(inode.id());
            return Ok(());
        }
        if !is_last {
            crate::data::flush::flush_replaced(self.store(), inode.node())?;
        }
        if is_last { self.delete_if_unused(inode) } else { Ok(()) }
    }
}

impl OpenInode {
    /// Takes over an opening that is counted already.
    pub(crate) fn adopt(filesystem: &Filesystem, inode: Arc<Inode>) -> Self {
        Self { filesystem: filesystem.clone(), inode: Some(inode) }
    }

    /// The file system that the file is in.
    pub(crate) fn filesystem(&self) -> &Filesystem {
        &self.filesystem
    }

    /// The file.
    ///
    /// # Panics
    /// Never: only [`close`](Self::close) takes it, and that consumes the value.
    #[must_use]
    pub fn inode(&self) -> &Arc<Inode> {
        match &self.inode {
            Some(inode) => inode,
            None => unreachable!("an open file has its inode until it is closed"),
        }
    }

    /// Closes the file; where it was the last hold on a file without names, deletes that.
    ///
    /// # Errors
    /// What the deletion met; the file is deleted when the file system is next opened.
    pub fn close(mut self) -> Result<()> {
        match self.inode.take() {
            Some(inode) => self.filesystem.release_counted(&inode),
            None => Ok(()),
        }
    }
}

impl Drop for OpenInode {
    fn drop(&mut self) {
        if let Some(inode) = self.inode.take() {
            self.filesystem.release(&inode);
        }
    }
}
