//! What a path of a stream names. A path is followed by names alone, below the subvolume that is received:
//! links are not followed, and nothing leads up, out, or into another subvolume.

use std::collections::HashMap;

use vlinder_base::sync::Arc;
use vlinder_fs::{Caller, Filesystem, Inode, Refusal};

use super::ReceiveError;
use super::error::command_error;
use crate::wire::CommandKind;

/// Directories that are remembered, and bytes of their paths, of which a stream can make each 64 KiB long;
/// all of them are forgotten when there are more.
const MAX_REMEMBERED: usize = 1 << 12;
const MAX_REMEMBERED_BYTES: usize = 4 << 20;

/// The paths of one subvolume.
pub(super) struct SubvolumePaths {
    root: Arc<Inode>,
    directories: HashMap<Vec<u8>, Arc<Inode>>,
    path_bytes: usize,
}

impl SubvolumePaths {
    pub fn new(root: Arc<Inode>) -> Self {
        Self { root, directories: HashMap::new(), path_bytes: 0 }
    }

    /// The subvolume's root.
    pub fn root(&self) -> &Arc<Inode> {
        &self.root
    }

    /// A directory may be elsewhere now.
    pub fn forget(&mut self) {
        self.directories.clear();
        self.path_bytes = 0;
    }

    /// The file that a path names; the empty path is the subvolume's root.
    pub fn file(
        &mut self,
        filesystem: &Filesystem,
        kind: CommandKind,
        path: &[u8],
    ) -> Result<Arc<Inode>, ReceiveError> {
        if path.is_empty() {
            return Ok(Arc::clone(&self.root));
        }
        let (directory, name) = self.place(filesystem, kind, path)?;
        self.step(filesystem, kind, path, &directory, name)
    }

    /// The directory of a path, and the name in it.
    pub fn place<'p>(
        &mut self,
        filesystem: &Filesystem,
        kind: CommandKind,
        path: &'p [u8],
    ) -> Result<(Arc<Inode>, &'p [u8]), ReceiveError> {
        let (parent, name) = match path.iter().rposition(|byte| *byte == b'/') {
            Some(slash) => (&path[..slash], &path[slash + 1..]),
            None => (&path[..0], path),
        };
        check_name(kind, path, name)?;
        Ok((self.directory(filesystem, kind, parent)?, name))
    }

    fn directory(
        &mut self,
        filesystem: &Filesystem,
        kind: CommandKind,
        path: &[u8],
    ) -> Result<Arc<Inode>, ReceiveError> {
        if path.is_empty() {
            return Ok(Arc::clone(&self.root));
        }
        if let Some(known) = self.directories.get(path) {
            return Ok(Arc::clone(known));
        }
        let mut current = Arc::clone(&self.root);
        for name in path.split(|byte| *byte == b'/') {
            check_name(kind, path, name)?;
            current = self.step(filesystem, kind, path, &current, name)?;
        }
        if !current.is_directory() {
            // Its times are its own, and not moved by names.
            return Err(command_error(kind, path, Refusal::NotADirectory.into()));
        }
        if self.directories.len() >= MAX_REMEMBERED || self.path_bytes + path.len() > MAX_REMEMBERED_BYTES {
            self.forget();
        }
        self.path_bytes += path.len();
        self.directories.insert(path.to_vec(), Arc::clone(&current));
        Ok(current)
    }

    fn step(
        &self,
        filesystem: &Filesystem,
        kind: CommandKind,
        path: &[u8],
        directory: &Arc<Inode>,
        name: &[u8],
    ) -> Result<Arc<Inode>, ReceiveError> {
        let found = filesystem.names().lookup(&Caller::superuser(), directory, name);
        let error = |error: vlinder_fs::FsError| command_error(kind, path, error);
        let found = found.map_err(error)?;
        if found.id().root != self.root.id().root || found.is_placeholder() {
            return Err(error(Refusal::CrossesSubvolumes.into()));
        }
        Ok(found)
    }
}

/// Refuses what is no name of a file.
fn check_name(kind: CommandKind, path: &[u8], name: &[u8]) -> Result<(), ReceiveError> {
    let is_name = !matches!(name, b"" | b"." | b"..") && !name.contains(&0) && !name.contains(&b'/');
    if is_name { Ok(()) } else { Err(ReceiveError::Path { kind, path: path.to_vec() }) }
}
