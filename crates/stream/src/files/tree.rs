//! The names of one subvolume, and how commands change them.
//!
//! Where the subvolume began as a snapshot of one that was not given, a name that a command uses and that no
//! command made stands for a file of that one: it is entered as an unknown file, which the commands that
//! follow may move, change and remove.

use vlinder_base::sync::Arc;
use vlinder_format::Uuid;

use super::content::Content;
use super::error::CommandFault;
use super::inode::{FileBody, FileId, FileTable, NamedFile, StreamInode};
use super::sequence::Sequence;

/// Bytes of the longest name (`BTRFS_NAME_LEN`).
const MAX_NAME_BYTES: usize = 255;

/// The files of a subvolume.
#[derive(Clone, Debug)]
pub(super) struct FileTree {
    pub table: FileTable,
    root: FileId,
    /// The subvolume that it began as, if that was not given.
    pub missing_base: Option<Uuid>,
}

impl FileTree {
    /// One with an empty root, of which more is unknown if the base is missing.
    pub fn new(missing_base: Option<Uuid>) -> Self {
        let mut table = FileTable::default();
        let root = table.add(StreamInode::new(FileBody::Directory(Sequence::default())));
        Self { table, root, missing_base }
    }

    pub fn root(&self) -> FileId {
        self.root
    }

    /// The file of a path, as far as it is known.
    pub fn find(&self, path: &[u8]) -> Result<FileId, CommandFault> {
        let mut current = self.root;
        for name in names_of(path)? {
            let FileBody::Directory(names) = &self.table.get(current).body else {
                return Err(match self.table.get(current).body {
                    FileBody::Unknown => CommandFault::NotFound,
                    _ => CommandFault::NotADirectory,
                });
            };
            current = child(names, name).ok_or(CommandFault::NotFound)?;
        }
        Ok(current)
    }

    /// The file that a command is about.
    pub fn file(&mut self, path: &[u8]) -> Result<FileId, CommandFault> {
        match self.find(path) {
            Err(CommandFault::NotFound) if self.missing_base.is_some() => {
                let (directory, name) = self.place(path)?;
                Ok(self.enter_unknown(directory, name, FileBody::Unknown))
            }
            found => found,
        }
    }

    /// The directory of a path, and the name in it.
    pub fn place<'p>(&mut self, path: &'p [u8]) -> Result<(FileId, &'p [u8]), CommandFault> {
        let mut names = names_of(path)?;
        let last = names.pop().ok_or(CommandFault::NotAPath)?;
        let mut current = self.root;
        for name in names {
            current = match child(self.names(current)?, name) {
                Some(below) => below,
                None if self.missing_base.is_some() => {
                    self.enter_unknown(current, name, FileBody::Directory(Sequence::default()))
                }
                None => return Err(CommandFault::NotFound),
            };
        }
        self.names(current)?;
        Ok((current, last))
    }

    /// The names of a directory; an unknown file becomes one, unless it has several names, which no directory
    /// has.
    fn names(&mut self, directory: FileId) -> Result<&Sequence<NamedFile>, CommandFault> {
        let inode = self.table.get(directory);
        if matches!(inode.body, FileBody::Unknown) && inode.names == 1 {
            self.table.get_mut(directory).body = FileBody::Directory(Sequence::default());
        }
        match &self.table.get(directory).body {
            FileBody::Directory(names) => Ok(names),
            _ => Err(CommandFault::NotADirectory),
        }
    }

    fn enter_unknown(&mut self, directory: FileId, name: &[u8], body: FileBody) -> FileId {
        let file = self.table.add(StreamInode::new(body));
        self.enter(directory, name, file);
        file
    }

    /// Gives a file a name in a directory, in which none has it.
    fn enter(&mut self, directory: FileId, name: &[u8], file: FileId) {
        if let FileBody::Directory(names) = &mut self.table.get_mut(directory).body {
            let entry = NamedFile { name: name.into(), file };
            let former = names.put(entry, |other| (*other.name).cmp(name));
            assert!(former.is_none(), "the name was free");
        }
    }

    fn leave(&mut self, directory: FileId, name: &[u8]) {
        if let FileBody::Directory(names) = &mut self.table.get_mut(directory).body {
            names.take(|other| (*other.name).cmp(name));
        }
    }

    /// Makes a file.
    pub fn create(&mut self, path: &[u8], inode: StreamInode) -> Result<(), CommandFault> {
        let (directory, name) = self.place(path)?;
        if child(self.names(directory)?, name).is_some() {
            return Err(CommandFault::Exists);
        }
        let file = self.table.add(inode);
        self.enter(directory, name, file);
        Ok(())
    }

    /// Gives a file one more name.
    pub fn link(&mut self, path: &[u8], existing: &[u8]) -> Result<(), CommandFault> {
        let file = self.file(existing)?;
        let (directory, name) = self.place(path)?;
        // After the way to the new name, which may lead through a file that was unknown.
        if let FileBody::Directory(_) = self.table.get(file).body {
            return Err(CommandFault::IsADirectory);
        }
        if child(self.names(directory)?, name).is_some() {
            return Err(CommandFault::Exists);
        }
        self.table.get_mut(file).names += 1;
        self.enter(directory, name, file);
        Ok(())
    }

    /// Takes a name away that is no directory's.
    pub fn unlink(&mut self, path: &[u8]) -> Result<(), CommandFault> {
        let file = self.file(path)?;
        if let FileBody::Directory(_) = self.table.get(file).body {
            return Err(CommandFault::IsADirectory);
        }
        self.remove(path, file)
    }

    /// Takes an empty directory away.
    pub fn remove_directory(&mut self, path: &[u8]) -> Result<(), CommandFault> {
        let file = self.file(path)?;
        if !self.names(file)?.is_empty() {
            return Err(CommandFault::NotEmpty);
        }
        self.remove(path, file)
    }

    fn remove(&mut self, path: &[u8], file: FileId) -> Result<(), CommandFault> {
        let (directory, name) = self.place(path)?;
        self.leave(directory, name);
        self.table.drop_name(file);
        Ok(())
    }

    /// Does what rename(2) does.
    pub fn rename(&mut self, from: &[u8], to: &[u8]) -> Result<(), CommandFault> {
        let file = self.file(from)?;
        let (from_directory, from_name) = self.place(from)?;
        let (to_directory, to_name) = self.place(to)?;
        // The way to the new name, the directory that it lies in included, must not lead through the file.
        let is_directory = matches!(self.table.get(file).body, FileBody::Directory(_));
        if is_directory && self.leads_through(to, file)? {
            return Err(CommandFault::IntoItself);
        }
        let former = child(self.names(to_directory)?, to_name);
        if former == Some(file) {
            return Ok(());
        }
        if let Some(former) = former {
            match &self.table.get(former).body {
                FileBody::Directory(names) if is_directory && names.is_empty() => {}
                FileBody::Directory(_) if is_directory => return Err(CommandFault::NotEmpty),
                FileBody::Directory(_) => return Err(CommandFault::IsADirectory),
                FileBody::Unknown => {}
                _ if is_directory => return Err(CommandFault::NotADirectory),
                _ => {}
            }
            self.leave(to_directory, to_name);
            self.table.drop_name(former);
        }
        self.leave(from_directory, from_name);
        self.enter(to_directory, to_name, file);
        Ok(())
    }

    /// Whether a directory is above the last name of a path.
    fn leads_through(&mut self, path: &[u8], directory: FileId) -> Result<bool, CommandFault> {
        let mut current = self.root;
        let mut names = names_of(path)?;
        names.pop();
        for name in names {
            current = child(self.names(current)?, name).ok_or(CommandFault::NotFound)?;
            if current == directory {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// The content of a regular file; an unknown file becomes one.
    pub fn content(&mut self, file: FileId) -> Result<&mut Content, CommandFault> {
        let missing_base = self.missing_base;
        let inode = self.table.get_mut(file);
        if let (FileBody::Unknown, Some(base)) = (&inode.body, missing_base) {
            inode.body = FileBody::Regular(Content::of_missing(base));
        }
        match &mut inode.body {
            FileBody::Regular(content) => Ok(content),
            FileBody::Directory(_) => Err(CommandFault::IsADirectory),
            _ => Err(CommandFault::NotARegularFile),
        }
    }
}

/// The file of a name.
fn child(names: &Sequence<NamedFile>, name: &[u8]) -> Option<FileId> {
    names.find(|other| (*other.name).cmp(name)).map(|entry| entry.file)
}

/// The names that a path leads through; none for the empty path, which is the root.
fn names_of(path: &[u8]) -> Result<Vec<&[u8]>, CommandFault> {
    if path.is_empty() {
        return Ok(Vec::new());
    }
    let names: Vec<&[u8]> = path.split(|byte| *byte == b'/').collect();
    let is_name = |name: &&[u8]| {
        !matches!(*name, b"" | b"." | b"..") && name.len() <= MAX_NAME_BYTES && !name.contains(&0)
    };
    if names.iter().all(is_name) { Ok(names) } else { Err(CommandFault::NotAPath) }
}

/// An empty file of a kind.
pub(super) fn regular() -> StreamInode {
    StreamInode::new(FileBody::Regular(Content::default()))
}

/// An empty directory.
pub(super) fn directory() -> StreamInode {
    StreamInode::new(FileBody::Directory(Sequence::default()))
}

/// A symbolic link.
pub(super) fn symbolic_link(target: &[u8]) -> StreamInode {
    StreamInode::new(FileBody::SymbolicLink(Arc::from(target)))
}
