//! From a path to an inode, on behalf of one caller.

use std::collections::VecDeque;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use vlinder_base::sync::Arc;
use vlinder_format::inode::FileType;

use super::error::at;
use crate::{Caller, Filesystem, Inode, Refusal, Result};

/// So many symbolic links may lie on a path, as on Linux.
const MAX_LINKS: usize = 40;

/// A file system whose paths are looked up on behalf of one caller. Clones share it.
#[derive(Clone, Debug)]
pub(super) struct Resolver {
    filesystem: Filesystem,
    caller: Caller,
}

impl Resolver {
    pub(super) fn new(filesystem: Filesystem, caller: Caller) -> Self {
        Self { filesystem, caller }
    }

    pub(super) fn filesystem(&self) -> &Filesystem {
        &self.filesystem
    }

    pub(super) fn into_filesystem(self) -> Filesystem {
        self.filesystem
    }

    pub(super) fn caller(&self) -> &Caller {
        &self.caller
    }

    /// The file at a path, behind any symbolic link.
    ///
    /// # Errors
    /// [`Refusal::NotFound`] and others of looking up names; [`Refusal::SymbolicLinkLoop`].
    pub(super) fn resolve(&self, path: &Path) -> Result<Arc<Inode>> {
        at(path, self.walk(path, true))
    }

    /// The file at a path; a symbolic link at its end is not followed.
    ///
    /// # Errors
    /// As [`resolve`](Self::resolve).
    pub(super) fn resolve_link(&self, path: &Path) -> Result<Arc<Inode>> {
        at(path, self.walk(path, false))
    }

    /// The directory that a path's last name is in, and that name.
    ///
    /// # Errors
    /// As [`resolve`](Self::resolve), for the directory; [`Refusal::InvalidArgument`] for a path without a
    /// last name: its last part is `.` or `..`.
    pub(super) fn resolve_parent(&self, path: &Path) -> Result<(Arc<Inode>, Vec<u8>)> {
        // Path::file_name passes over a dot at the end.
        let is_dot = path.as_os_str().as_bytes().ends_with(b"/.");
        let name = path.file_name().filter(|_| !is_dot).ok_or(Refusal::InvalidArgument);
        let name = at(path, name.map_err(Into::into))?.as_bytes().to_vec();
        let directory = self.resolve(path.parent().unwrap_or(Path::new("")))?;
        if !directory.is_directory() {
            return at(path, Err(Refusal::NotADirectory.into()));
        }
        Ok((directory, name))
    }

    /// As [`resolve_parent`](Self::resolve_parent), for what is no directory: a slash at the end of its path
    /// is refused.
    ///
    /// # Errors
    /// As there; [`Refusal::NotADirectory`].
    pub(super) fn resolve_parent_of_file(&self, path: &Path) -> Result<(Arc<Inode>, Vec<u8>)> {
        if path.as_os_str().as_bytes().ends_with(b"/") {
            return at(path, Err(Refusal::NotADirectory.into()));
        }
        self.resolve_parent(path)
    }

    fn walk(&self, path: &Path, follow_last: bool) -> Result<Arc<Inode>> {
        let mut names: VecDeque<Vec<u8>> = names_of(path.as_os_str().as_bytes()).collect();
        let must_be_directory = path.as_os_str().as_bytes().ends_with(b"/");
        let mut current = self.filesystem.root()?;
        let mut links = 0;
        while let Some(name) = names.pop_front() {
            let next = self.filesystem.names().lookup(&self.caller, &current, &name)?;
            let is_followed = follow_last || must_be_directory || !names.is_empty();
            if next.file_type() != FileType::SymbolicLink || !is_followed {
                current = next;
                continue;
            }
            links += 1;
            if links > MAX_LINKS {
                return Err(Refusal::SymbolicLinkLoop.into());
            }
            let target = self.filesystem.names().read_link(&next)?;
            if target.starts_with(b"/") {
                current = self.filesystem.root()?;
            }
            for name in names_of(&target).collect::<Vec<_>>().into_iter().rev() {
                names.push_front(name);
            }
        }
        if must_be_directory && !current.is_directory() {
            return Err(Refusal::NotADirectory.into());
        }
        Ok(current)
    }
}

fn names_of(path: &[u8]) -> impl Iterator<Item = Vec<u8>> + '_ {
    path.split(|byte| *byte == b'/').filter(|name| !name.is_empty() && *name != b".").map(<[u8]>::to_vec)
}
