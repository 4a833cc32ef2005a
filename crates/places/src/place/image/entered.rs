//! A directory of an image that was entered.

use vlinder_base::sync::Arc;
use vlinder_fs::{Filesystem, FsError, Inode, InodeId};

use super::failure::from_fs;
use super::open::OpenImage;
use crate::failure::Failure;
use crate::place::shared_path::SharedPath;
use crate::text::escaped;

/// A directory: which one it is, and by which names it was entered.
#[derive(Clone)]
pub(super) struct EnteredDirectory {
    pub(super) image: Arc<OpenImage>,
    /// Its number, not the inode itself: a walk holds many directories.
    pub(super) id: InodeId,
    /// From the root that is shown, without a slash at the end.
    pub(super) path: SharedPath,
}

impl EnteredDirectory {
    /// The root that is shown.
    ///
    /// # Errors
    /// What the file system said.
    pub(super) fn root(image: &Arc<OpenImage>) -> Result<Self, Failure> {
        let id = image.filesystem.root().map_err(|error| from_fs(error, &image.label))?.id();
        Ok(Self { image: Arc::clone(image), id, path: SharedPath::default() })
    }

    /// In messages: `IMAGE:/path`.
    pub(super) fn place(&self, name: &[u8]) -> String {
        let mut path = self.path.to_bytes();
        if name != b"." || path.is_empty() {
            path.push(b'/');
        }
        if name != b"." {
            path.extend_from_slice(name);
        }
        format!("{}:{}", self.image.label, escaped(&path))
    }

    /// The directory's inode.
    pub(super) fn inode(&self) -> Result<Arc<Inode>, Failure> {
        self.filesystem().inode(self.id).map_err(self.fail(b"."))
    }

    /// The file system of its image.
    pub(super) fn filesystem(&self) -> &Filesystem {
        &self.image.filesystem
    }

    /// Makes a failure at a name in it of what the file system said.
    pub(super) fn fail(&self, name: &[u8]) -> impl FnOnce(FsError) -> Failure {
        move |error| from_fs(error, self.place(name))
    }

    /// The file of a name, or this directory for `.`.
    pub(super) fn lookup(&self, name: &[u8]) -> Result<Arc<Inode>, Failure> {
        if name == b"." {
            return self.inode();
        }
        self.filesystem().names().lookup(&self.image.caller, &self.inode()?, name).map_err(self.fail(name))
    }

    /// A directory in this one.
    pub(super) fn at(&self, id: InodeId, name: &[u8]) -> Self {
        Self { image: Arc::clone(&self.image), id, path: self.path.below(name) }
    }

    /// Removes the name of anything but a directory.
    pub(super) fn unlink(&self, name: &[u8]) -> Result<(), Failure> {
        self.filesystem().names().unlink(&self.image.caller, &self.inode()?, name).map_err(self.fail(name))
    }
}
