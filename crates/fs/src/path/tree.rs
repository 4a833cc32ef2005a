//! Making, moving, copying and removing by path.

use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};

use vlinder_format::inode::FileType;

use super::error::at;
use super::files::Files;
use super::resolve::Resolver;
use crate::{ContentTimes, InodeId, Refusal, RenameMode, Result, SetAttributes, WriteOrigin};

/// Names that are read from a directory at a time.
const BATCH: usize = 256;
/// 0 and 1 are `.` and `..`.
const FIRST_NAME: u64 = 2;

/// A directory that is being removed.
struct Level {
    id: InodeId,
    name: Vec<u8>,
    /// Where its names go on.
    next: u64,
}

impl Files {
    /// Makes a directory.
    ///
    /// # Errors
    /// As [`Names::create_directory`](crate::Names::create_directory).
    pub fn create_dir(&self, path: impl AsRef<Path>) -> Result<()> {
        let (directory, name) = self.resolve_parent(path.as_ref())?;
        at(path, self.filesystem().names().create_directory(self.caller(), &directory, &name, 0o777))
            .map(drop)
    }

    /// Makes a directory and all that are missing above it.
    ///
    /// # Errors
    /// As [`create_dir`](Self::create_dir); [`Refusal::NotADirectory`] where something else is in the way.
    pub fn create_dir_all(&self, path: impl AsRef<Path>) -> Result<()> {
        let mut above = PathBuf::from("/");
        for part in path.as_ref().components() {
            above.push(part);
            if above.file_name().is_none() {
                continue;
            }
            match self.create_dir(&above) {
                Err(error) if error.refusal() == Some(Refusal::Exists) => {
                    if !self.metadata(&above)?.is_dir() {
                        return at(&above, Err(Refusal::NotADirectory.into()));
                    }
                }
                made => made?,
            }
        }
        Ok(())
    }

    /// Removes the name of a file.
    ///
    /// # Errors
    /// As [`Names::unlink`](crate::Names::unlink).
    pub fn remove_file(&self, path: impl AsRef<Path>) -> Result<()> {
        let (directory, name) = self.resolver().resolve_parent_of_file(path.as_ref())?;
        at(path, self.filesystem().names().unlink(self.caller(), &directory, &name))
    }

    /// Removes an empty directory.
    ///
    /// # Errors
    /// As [`Names::remove_directory`](crate::Names::remove_directory).
    pub fn remove_dir(&self, path: impl AsRef<Path>) -> Result<()> {
        let (directory, name) = self.resolve_parent(path.as_ref())?;
        at(path, self.filesystem().names().remove_directory(self.caller(), &directory, &name))
    }

    /// Removes a directory with all that is in it, subvolumes included. Symbolic links are removed, not
    /// followed.
    ///
    /// # Errors
    /// The first thing that could not be removed; what came before is gone.
    pub fn remove_dir_all(&self, path: impl AsRef<Path>) -> Result<()> {
        let (parent, name) = self.resolve_parent(path.as_ref())?;
        let top = self.resolve_link(path.as_ref())?;
        if !top.is_directory() {
            return at(path, Err(Refusal::NotADirectory.into()));
        }
        at(path, remove_below(self.resolver(), parent.id(), Level { id: top.id(), name, next: FIRST_NAME }))
    }

    /// Gives a file or directory another path, in place of what is there.
    ///
    /// # Errors
    /// As [`Names::rename`](crate::Names::rename).
    pub fn rename(&self, from: impl AsRef<Path>, to: impl AsRef<Path>) -> Result<()> {
        let (from_directory, from_name) = self.resolve_parent(from.as_ref())?;
        let (to_directory, to_name) = self.resolve_parent(to.as_ref())?;
        let mode = RenameMode::Replace;
        at(
            from,
            self.filesystem().names().rename(
                self.caller(),
                &from_directory,
                &from_name,
                &to_directory,
                &to_name,
                mode,
            ),
        )
    }

    /// Copies a file's bytes and permissions, sharing extents where it can; gives how many bytes.
    ///
    /// # Errors
    /// As reading the one and writing the other.
    pub fn copy(&self, from: impl AsRef<Path>, to: impl AsRef<Path>) -> Result<u64> {
        let source = self.open_file(from.as_ref())?;
        if !source.metadata().is_file() {
            return at(from, Err(Refusal::InvalidArgument.into()));
        }
        let target = self.create(to.as_ref())?;
        let length = source.inode().size();
        let (filesystem, caller) = (self.filesystem(), self.caller());
        let mut copied = 0;
        while copied < length {
            let (from, into) = ((source.inode(), copied), (target.inode(), copied));
            let open = WriteOrigin::OpenFile { times: ContentTimes::Move };
            let change =
                at(&to, filesystem.files().copy_file_range(caller, from, into, length - copied, open))?;
            if change.length_bytes == 0 {
                break;
            }
            copied += change.length_bytes;
        }
        let permissions = Some(source.metadata().mode.permissions());
        let changes = SetAttributes { permissions, ..SetAttributes::default() };
        at(to, filesystem.attributes().set(caller, target.inode(), &changes))?;
        Ok(copied)
    }

    /// Gives a file one more name.
    ///
    /// # Errors
    /// As [`Names::link`](crate::Names::link).
    pub fn hard_link(&self, original: impl AsRef<Path>, link: impl AsRef<Path>) -> Result<()> {
        let inode = self.resolve_link(original.as_ref())?;
        let (directory, name) = self.resolver().resolve_parent_of_file(link.as_ref())?;
        at(link, self.filesystem().names().link(self.caller(), &inode, &directory, &name))
    }

    /// Makes a symbolic link.
    ///
    /// # Errors
    /// As [`Names::create_symbolic_link`](crate::Names::create_symbolic_link).
    pub fn symlink(&self, target: impl AsRef<Path>, link: impl AsRef<Path>) -> Result<()> {
        let (directory, name) = self.resolver().resolve_parent_of_file(link.as_ref())?;
        let target = target.as_ref().as_os_str().as_bytes();
        at(link, self.filesystem().names().create_symbolic_link(self.caller(), &directory, &name, target))
            .map(drop)
    }

    /// The target of a symbolic link.
    ///
    /// # Errors
    /// As [`Names::read_link`](crate::Names::read_link).
    pub fn read_link(&self, path: impl AsRef<Path>) -> Result<PathBuf> {
        let inode = self.resolve_link(path.as_ref())?;
        let target = at(path, self.filesystem().names().read_link(&inode))?;
        Ok(PathBuf::from(std::ffi::OsString::from_vec(target)))
    }
}

/// Removes a directory of another with all that is in it. Only the way down is held, by numbers.
fn remove_below(resolver: &Resolver, parent: InodeId, top: Level) -> Result<()> {
    let (filesystem, caller) = (resolver.filesystem(), resolver.caller());
    let mut way = vec![top];
    while let Some(level) = way.last_mut() {
        let directory = filesystem.inode(level.id)?;
        let records = filesystem.names().open_directory(caller, &directory)?.read(level.next, BATCH)?;
        if records.is_empty() {
            let name = way.pop().map(|level| level.name).unwrap_or_default();
            let above = filesystem.inode(way.last().map_or(parent, |level| level.id))?;
            filesystem.names().remove_directory(caller, &above, &name)?;
            continue;
        }
        for record in records {
            level.next = record.offset.saturating_add(1);
            if record.file_type == FileType::Directory {
                let id = filesystem.names().lookup(caller, &directory, &record.name)?.id();
                way.push(Level { id, name: record.name, next: FIRST_NAME });
                break;
            }
            filesystem.names().unlink(caller, &directory, &record.name)?;
        }
    }
    Ok(())
}
