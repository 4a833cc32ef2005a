//! Open files: a file whose last name goes while it is open lives on until it is closed.

use core::fmt;

use vlinder_base::sync::Arc;
use vlinder_data::FileStore;

use crate::Result;
use crate::closer::Closer;
use crate::inode::Inode;
use crate::inode::table::InodeTable;

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
pub struct OpenInode {
    inodes: Arc<InodeTable>,
    /// An open file keeps the file system open.
    _closer: Arc<Closer>,
    inode: Option<Arc<Inode>>,
}

impl fmt::Debug for OpenInode {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "open {:?}", self.inode)
    }
}

/// What opens files that the caller was judged for already: the inodes in memory, and what keeps the file
/// system open.
#[derive(Clone, Copy)]
pub(crate) struct Opener<'a> {
    inodes: &'a Arc<InodeTable>,
    closer: &'a Arc<Closer>,
}

impl<'a> Opener<'a> {
    pub(crate) fn new(inodes: &'a Arc<InodeTable>, closer: &'a Arc<Closer>) -> Self {
        Self { inodes, closer }
    }

    /// Opens a file.
    ///
    /// # Errors
    /// [`Refusal::NotFound`](crate::Refusal::NotFound) where the file is gone.
    pub(crate) fn hold(self, inode: &Arc<Inode>) -> Result<OpenInode> {
        self.inodes.count_opening(inode)?;
        Ok(self.adopt(Arc::clone(inode)))
    }

    /// Takes over an opening that is counted already.
    pub(crate) fn adopt(self, inode: Arc<Inode>) -> OpenInode {
        OpenInode { inodes: Arc::clone(self.inodes), _closer: Arc::clone(self.closer), inode: Some(inode) }
    }

    /// The inodes in memory.
    pub(crate) fn inodes(self) -> &'a Arc<InodeTable> {
        self.inodes
    }

    /// What keeps the file system open.
    pub(crate) fn closer(self) -> &'a Arc<Closer> {
        self.closer
    }
}

impl OpenInode {
    /// The data of the file system's files.
    pub(crate) fn store(&self) -> &FileStore {
        self.inodes.store()
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
            Some(inode) => self.inodes.release_counted(&inode),
            None => Ok(()),
        }
    }
}

impl Drop for OpenInode {
    fn drop(&mut self) {
        if let Some(inode) = self.inode.take() {
            self.inodes.release(&inode);
        }
    }
}
