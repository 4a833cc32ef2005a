//! Listing a directory by path.

use std::collections::VecDeque;
use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};

use vlinder_format::inode::FileType;

use super::error::at;
use super::metadata::Metadata;
use super::resolve::Resolver;
use crate::directory::{DirectoryRecord, OpenDirectory};
use crate::{FsError, Result};

/// Names read at once.
const BATCH: usize = 1024;

/// The names in a directory but for `.` and `..`, in the order of their creation.
#[derive(Debug)]
pub struct ReadDir {
    resolver: Resolver,
    path: PathBuf,
    directory: OpenDirectory,
    records: VecDeque<DirectoryRecord>,
    next: Option<u64>,
}

/// One name in a directory.
#[derive(Debug)]
pub struct DirEntry {
    resolver: Resolver,
    path: PathBuf,
    record: DirectoryRecord,
}

impl ReadDir {
    /// Opens a directory to list it.
    pub(super) fn open(resolver: &Resolver, path: &Path) -> Result<Self> {
        let inode = resolver.resolve(path)?;
        let filesystem = resolver.filesystem();
        let directory = at(path, filesystem.names().open_directory(resolver.caller(), &inode))?;
        filesystem.attributes().note_access(&inode);
        let (resolver, path) = (resolver.clone(), path.to_owned());
        Ok(Self { resolver, path, directory, records: VecDeque::new(), next: Some(2) })
    }
}

impl Iterator for ReadDir {
    type Item = Result<DirEntry>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.records.is_empty() {
            let from = self.next?;
            match at(&self.path, self.directory.read(from, BATCH)) {
                Ok(records) => {
                    self.next = records.last().and_then(|last| last.offset.checked_add(1));
                    self.records = records.into();
                }
                Err(error) => {
                    self.next = None;
                    return Some(Err(error));
                }
            }
        }
        let record = self.records.pop_front()?;
        let path = self.path.join(OsStr::from_bytes(&record.name));
        Some(Ok(DirEntry { resolver: self.resolver.clone(), path, record }))
    }
}

impl DirEntry {
    /// The name.
    #[must_use]
    pub fn file_name(&self) -> OsString {
        OsString::from_vec(self.record.name.clone())
    }

    /// The path that was listed, and the name.
    #[must_use]
    pub fn path(&self) -> PathBuf {
        self.path.clone()
    }

    /// The type, without another look.
    #[must_use]
    pub fn file_type(&self) -> FileType {
        self.record.file_type
    }

    /// What is known of the file; a symbolic link is not followed.
    ///
    /// # Errors
    /// As looking the path up.
    pub fn metadata(&self) -> Result<Metadata, FsError> {
        let inode = self.resolver.resolve_link(&self.path)?;
        Ok(Metadata(self.resolver.filesystem().attributes().of(&inode)))
    }
}
