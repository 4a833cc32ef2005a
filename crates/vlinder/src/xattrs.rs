//! The extended attributes of a file.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};

use vlinder_base::sync::Arc;
use vlinder_fs::path::Files;
use vlinder_fs::{AttributeMode, Caller, Inode, Refusal};

use crate::error::{Result, outer};
use crate::unsaved::Unsaved;

#[cfg(doc)]
use crate::ErrorKind;

/// The extended attributes of a file: [`Image::xattrs`](crate::Image::xattrs).
#[derive(Clone, Debug)]
pub struct Xattrs<'a> {
    files: &'a Files,
    unsaved: &'a Unsaved,
    path: PathBuf,
    inode: Arc<Inode>,
}

impl<'a> Xattrs<'a> {
    pub(crate) fn find(files: &'a Files, unsaved: &'a Unsaved, path: &Path) -> Result<Self> {
        let inode = outer(files.resolve(path))?;
        Ok(Self { files, unsaved, path: path.to_owned(), inode })
    }

    fn at<T>(&self, result: vlinder_fs::Result<T>) -> Result<T> {
        outer(result).map_err(|error| error.at(&self.path))
    }

    /// The value of one, `user.note` say; none where the file has no such attribute.
    ///
    /// # Errors
    /// [`ErrorKind::Unsupported`] for a name of no known family; what reading met.
    pub fn get(&self, name: impl AsRef<OsStr>) -> Result<Option<Vec<u8>>> {
        let attributes = self.files.filesystem().attributes();
        match attributes.extended_attribute(&Caller::superuser(), &self.inode, name.as_ref().as_bytes()) {
            Err(error) if error.refusal() == Some(Refusal::NoAttribute) => Ok(None),
            found => self.at(found).map(Some),
        }
    }

    /// The names of all.
    ///
    /// # Errors
    /// What reading met.
    pub fn list(&self) -> Result<Vec<OsString>> {
        let names = self.at(self.files.filesystem().attributes().extended_attributes(&self.inode))?;
        Ok(names.into_iter().map(OsString::from_vec).collect())
    }

    /// Sets one, whether it is there or not. An ACL sets the permissions, too, and `btrfs.compression` how
    /// new data of the file are compressed.
    ///
    /// # Errors
    /// [`ErrorKind::NoSpace`] where it does not fit a tree block; [`ErrorKind::Unsupported`] for a name of no
    /// known family; [`ErrorKind::PermissionDenied`] where a flag of the file forbids it;
    /// [`ErrorKind::ReadOnly`].
    pub fn set(&self, name: impl AsRef<OsStr>, value: impl AsRef<[u8]>) -> Result<()> {
        self.unsaved.note();
        let attributes = self.files.filesystem().attributes();
        let (name, value) = (name.as_ref().as_bytes(), value.as_ref());
        let mode = AttributeMode::Either;
        self.at(attributes.set_extended_attribute(&Caller::superuser(), &self.inode, name, value, mode))
    }

    /// Removes one.
    ///
    /// # Errors
    /// [`ErrorKind::NotFound`] where there is none; as [`set`](Self::set).
    pub fn remove(&self, name: impl AsRef<OsStr>) -> Result<()> {
        self.unsaved.note();
        let attributes = self.files.filesystem().attributes();
        let caller = Caller::superuser();
        self.at(attributes.remove_extended_attribute(&caller, &self.inode, name.as_ref().as_bytes()))
    }
}
