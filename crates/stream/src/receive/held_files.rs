//! New files that are not made yet, with the commands about them.

use vlinder_base::sync::Arc;
use vlinder_fs::{FileAlone, FileType, Inode, InodeId};

use crate::wire::{PlacedCommand, Times};

/// Permissions of a regular file of which a stream says nothing more.
pub(super) const NEW_FILE_PERMISSIONS: u32 = 0o600;

/// Files that are held at most: what they need of the file system's space at once is reserved for the worst
/// case.
const MAX_FILES: usize = 64;
/// Bytes of commands that are held, but for the last command.
const MAX_BYTES: usize = 1 << 20;

/// A file that is not made yet.
pub(super) struct HeldFile {
    /// The directory and the name that it was made under, if it was renamed since.
    pub made: Option<(Arc<Inode>, Vec<u8>)>,
    /// Where it will be.
    pub directory: Arc<Inode>,
    /// Its name there.
    pub name: Vec<u8>,
    /// What it will have from the first.
    pub file: FileAlone<'static>,
    /// The end of what is written to it.
    pub end: u64,
}

/// A command that is held.
#[derive(Clone, Copy)]
pub(super) struct HeldCommand {
    /// Its first byte in the input.
    pub start: u64,
    /// Its first byte in [`HeldFiles::commands`].
    offset: usize,
    /// The file that it writes to, by its place among those held.
    pub writes_to: Option<usize>,
}

/// New files that are not made yet, and the commands that make them, which come one after the other in a
/// stream.
///
/// Invariants:
/// 1. The commands held are the last that came. Whatever else is to be applied, or told, comes after they
///    were flushed ([`Receiver::flush_held`](super::Receiver)); so the file system and the running hash
///    never have a command without all before it.
/// 2. Making each file where it will be, with what it has then, and writing to it, gives what the commands
///    give one by one, if every name is free: the one that it will have, and the one that it was made with
///    (a rename within a batch is one per file). Flushing sees to that, and applies the commands one by one
///    where anything is otherwise. [`HeldFiles::add`] and [`HeldFiles::rename_last`] keep the rest.
/// 3. Only the file that came last takes more commands, under the path that it has now.
/// 4. There are at most [`MAX_FILES`] files, and [`MAX_BYTES`] of commands and one command.
#[derive(Default)]
pub(super) struct HeldFiles {
    /// All commands, whole.
    bytes: Vec<u8>,
    commands: Vec<HeldCommand>,
    pub files: Vec<HeldFile>,
    /// The path of the last file.
    last_path: Vec<u8>,
    /// Times that directories get: those named last.
    pub directory_times: Vec<(Arc<Inode>, Times)>,
}

impl HeldFiles {
    pub fn is_empty(&self) -> bool {
        self.commands.is_empty()
    }

    /// Whether it is time to make the files.
    pub fn is_full(&self) -> bool {
        self.bytes.len() >= MAX_BYTES || self.files.len() >= MAX_FILES
    }

    /// The bytes of all commands held, to be taken out when they were applied.
    pub fn bytes_mut(&mut self) -> &mut Vec<u8> {
        &mut self.bytes
    }

    /// How many bytes the commands have.
    pub fn byte_count(&self) -> u64 {
        self.bytes.len() as u64
    }

    /// All commands, each with its bytes.
    pub fn commands(&self) -> impl ExactSizeIterator<Item = (HeldCommand, &[u8])> {
        self.commands.iter().enumerate().map(|(number, held)| {
            let end = self.commands.get(number + 1).map_or(self.bytes.len(), |next| next.offset);
            (*held, self.bytes.get(held.offset..end).unwrap_or_default())
        })
    }

    /// Forgets all, and keeps the memory for the next ones.
    pub fn clear(&mut self) {
        self.bytes.clear();
        self.commands.clear();
        self.files.clear();
        self.last_path.clear();
        self.directory_times.clear();
    }

    /// The file that a path names, if it came last.
    pub fn last(&mut self, path: &[u8]) -> Option<&mut HeldFile> {
        self.files.last_mut().filter(|_| self.last_path == path)
    }

    /// Holds a regular file.
    pub fn add(&mut self, directory: Arc<Inode>, name: &[u8], path: &[u8]) {
        let file = FileAlone::of(FileType::Regular, NEW_FILE_PERMISSIONS);
        self.files.push(HeldFile { made: None, directory, name: name.to_vec(), file, end: 0 });
        path.clone_into(&mut self.last_path);
    }

    /// Gives the last file another name; false if that is more than holding can tell.
    pub fn rename_last(&mut self, directory: Arc<Inode>, name: &[u8], path: &[u8]) -> bool {
        let Some((last, others)) = self.files.split_last_mut() else { return false };
        let has_its_name = |other: &HeldFile| other.is_at(last.directory.id(), &last.name);
        // One by one, the name that it was made with would have been another file's.
        if last.made.is_some() || others.iter().any(has_its_name) {
            return false;
        }
        let directory = std::mem::replace(&mut last.directory, directory);
        last.made = Some((directory, std::mem::replace(&mut last.name, name.to_vec())));
        path.clone_into(&mut self.last_path);
        true
    }

    /// Gives a directory times, in place of those named before.
    pub fn set_directory_times(&mut self, directory: Arc<Inode>, times: Times) {
        match self.directory_times.iter_mut().find(|(other, _)| other.id() == directory.id()) {
            Some((_, before)) => *before = Times { birth: times.birth.or(before.birth), ..times },
            None => self.directory_times.push((directory, times)),
        }
    }

    /// Keeps a command that the files held have taken, which writes to the last of them or does not.
    pub fn keep(&mut self, placed: &PlacedCommand<'_>, is_write: bool) {
        let writes_to = is_write.then(|| self.files.len().saturating_sub(1));
        self.commands.push(HeldCommand { start: placed.start(), offset: self.bytes.len(), writes_to });
        self.bytes.extend_from_slice(placed.bytes());
    }
}

impl HeldFile {
    fn is_at(&self, directory: InodeId, name: &[u8]) -> bool {
        self.directory.id() == directory && self.name == name
    }
}
