//! Listing a directory.

use std::ffi::OsString;
use std::path::PathBuf;

use vlinder_fs::path;

use crate::error::{Result, outer};
use crate::metadata::{FileType, Metadata};
use crate::unsaved::Unsaved;

/// The names in a directory but for `.` and `..`, in the order of their creation.
#[derive(Debug)]
pub struct ReadDir {
    inner: path::ReadDir,
    /// Counts as an open file.
    open: Unsaved,
}

/// One name in a directory.
#[derive(Debug)]
pub struct DirEntry {
    inner: path::DirEntry,
    /// Counts as an open file.
    _open: Unsaved,
}

impl ReadDir {
    pub(crate) fn of(inner: path::ReadDir, open: Unsaved) -> Self {
        Self { inner, open }
    }
}

impl Iterator for ReadDir {
    type Item = Result<DirEntry>;

    fn next(&mut self) -> Option<Self::Item> {
        let entry = self.inner.next()?;
        Some(outer(entry).map(|inner| DirEntry { inner, _open: self.open.clone() }))
    }
}

impl DirEntry {
    /// The name.
    #[must_use]
    pub fn file_name(&self) -> OsString {
        self.inner.file_name()
    }

    /// The path that was listed, and the name.
    #[must_use]
    pub fn path(&self) -> PathBuf {
        self.inner.path()
    }

    /// The type, without another look.
    #[must_use]
    pub fn file_type(&self) -> FileType {
        FileType::of(self.inner.file_type())
    }

    /// What is known of the file; a symbolic link is not followed.
    ///
    /// # Errors
    /// As [`Image::symlink_metadata`](crate::Image::symlink_metadata).
    pub fn metadata(&self) -> Result<Metadata> {
        outer(self.inner.metadata()).map(Metadata::of)
    }
}
