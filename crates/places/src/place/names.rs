//! The names of a directory, in little memory: directories may hold millions.

use vlinder_format::directory::is_file_name;
use vlinder_format::inode::{FileType, Mode};

use crate::failure::{Failure, Kind};
use crate::text::escaped;

/// A name in a directory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    /// The name.
    pub name: Vec<u8>,
    /// What it stands for.
    pub file_type: FileType,
}

/// The names in a directory.
#[derive(Debug, Default)]
pub struct DirectoryNames {
    /// All but `.` and `..`, in the directory's order.
    pub entries: Names,
    /// Says of each name that no file can have that it is left out.
    pub refused: Vec<Failure>,
}

/// Refuses a name that no file can have. What reads names from disk asks before it uses them.
///
/// # Errors
/// [`Kind::Corruption`].
pub fn check_entry(name: &[u8]) -> Result<(), Failure> {
    if is_file_name(name) {
        return Ok(());
    }
    let text = format!("{:?} is no name of a file; it is left out", escaped(name));
    Err(Failure::new(Kind::Corruption, text).hint("see what else is wrong there with vlinder check"))
}

/// Names with what they stand for, given out one by one.
#[derive(Debug, Default)]
pub struct Names {
    /// For each name a byte for the type, two for the length, then the name.
    bytes: Vec<u8>,
    /// Where the next one starts, while they are in the order in which they came.
    next: usize,
    /// Where each starts that is still to come, the next one last; once they are sorted.
    sorted: Option<Vec<usize>>,
    left: usize,
}

const HEAD: usize = 3;

/// The bits of a type in a mode are its upper four, and fit a byte when they are moved down by so many.
const TYPE_SHIFT: u32 = 12;

fn code(file_type: FileType) -> u8 {
    u8::try_from(file_type.mode_bits() >> TYPE_SHIFT).unwrap_or(0)
}

impl Names {
    /// Adds a name behind the others; not after they were sorted.
    pub fn push(&mut self, name: &[u8], file_type: FileType) {
        // No host gives longer names than that, nor does the format.
        let Ok(length) = u16::try_from(name.len()) else { return };
        self.bytes.push(code(file_type));
        self.bytes.extend_from_slice(&length.to_le_bytes());
        self.bytes.extend_from_slice(name);
        self.left += 1;
    }

    /// Sorts those that are to come.
    pub fn sort(&mut self) {
        let mut starts = Vec::with_capacity(self.left);
        let mut start = self.next;
        while start < self.bytes.len() {
            starts.push(start);
            start += HEAD + self.at(start).1.len();
        }
        starts.sort_unstable_by(|left, right| self.at(*right).1.cmp(self.at(*left).1));
        self.sorted = Some(starts);
    }

    /// Whether any is to come.
    pub fn is_empty(&self) -> bool {
        self.left == 0
    }

    /// Leaves out all but these; before they are sorted or given out. Takes no second place for those that
    /// stay.
    pub fn retain(&mut self, keep: impl Fn(&[u8], FileType) -> bool) {
        let (mut start, mut kept_to) = (0, 0);
        while start < self.bytes.len() {
            let (file_type, name) = self.at(start);
            let end = start + HEAD + name.len();
            if keep(name, file_type) {
                self.bytes.copy_within(start..end, kept_to);
                kept_to += end - start;
            } else {
                self.left -= 1;
            }
            start = end;
        }
        self.bytes.truncate(kept_to);
        self.shrink();
    }

    /// What the next name stands for.
    pub fn next_type(&self) -> Option<FileType> {
        self.next_start().map(|start| self.at(start).0)
    }

    fn next_start(&self) -> Option<usize> {
        match &self.sorted {
            Some(starts) => starts.last().copied(),
            None => Some(self.next).filter(|next| *next < self.bytes.len()),
        }
    }

    fn at(&self, start: usize) -> (FileType, &[u8]) {
        let bytes = &self.bytes[start..];
        let length = usize::from(u16::from_le_bytes([bytes[1], bytes[2]]));
        let file_type = Mode(u32::from(bytes[0]) << TYPE_SHIFT).file_type().unwrap_or(FileType::Regular);
        (file_type, &bytes[HEAD..HEAD + length])
    }

    /// Gives up memory that no name takes.
    pub fn shrink(&mut self) {
        self.bytes.shrink_to_fit();
    }
}

impl Iterator for Names {
    type Item = Entry;

    fn next(&mut self) -> Option<Entry> {
        let start = self.next_start()?;
        let (file_type, name) = self.at(start);
        let entry = Entry { name: name.to_vec(), file_type };
        match &mut self.sorted {
            Some(starts) => drop(starts.pop()),
            None => self.next = start + HEAD + entry.name.len(),
        }
        self.left -= 1;
        Some(entry)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_come_as_they_were_put_in_or_by_name() {
        let names = || {
            let mut names = Names::default();
            names.push(b"b", FileType::Regular);
            names.push(b"", FileType::Fifo);
            names.push(&[0xff; 255], FileType::Socket);
            names.push(b"a", FileType::Directory);
            names
        };
        let given = |names: Names| names.map(|entry| entry.name.len()).collect::<Vec<_>>();
        assert_eq!(given(names()), [1, 0, 255, 1]);
        let mut some = names();
        assert_eq!(some.next(), Some(Entry { name: b"b".to_vec(), file_type: FileType::Regular }));
        some.sort();
        assert_eq!((some.left, some.next_type()), (3, Some(FileType::Fifo)));
        assert_eq!(given(some), [0, 1, 255]);
        for kind in [FileType::CharacterDevice, FileType::BlockDevice, FileType::SymbolicLink] {
            let mut names = Names::default();
            names.push(b"x", kind);
            assert_eq!(names.next_type(), Some(kind));
        }
        assert_eq!(Names::default().next(), None);
        let mut some = names();
        some.retain(|name, file_type| name.len() == 1 && file_type != FileType::Regular || name.is_empty());
        assert_eq!((some.left, given(some)), (2, vec![0, 1]));
    }
}
