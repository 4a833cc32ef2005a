//! Directory items: names in a directory, and extended attributes, which share one shape.
//!
//! | key | tree | entries |
//! |---|---|---|
//! | (directory, DIR_ITEM, hash of the name) | subvolume, log, root tree | one for each name with that hash |
//! | (directory, DIR_INDEX, index) | subvolume, log | one |
//! | (inode, XATTR_ITEM, hash of the name) | subvolume, log | one for each name with that hash |
//!
//! ```text
//! 0          17        25            27            29     30
//! | location | transid | data length | name length | type | name … | data … | next entry …
//! ```
//! The location is the key of what the name stands for: an inode item, or a root item (offset 2^64 - 1) for a
//! subvolume; all zero for an attribute. Source: `struct btrfs_dir_item`.

mod raw;
mod rules;

pub use rules::{DirectoryFault, check, is_valid_name, largest_entry_bytes};

use core::fmt;

use vlinder_codec::name_hash::name_hash;

use crate::inode::FileType;
use crate::key::{ItemType, Key};
use crate::layout::Layout;
use crate::record::{widen_usize, wrapped};
use crate::types::{Generation, ObjectId};
use raw::EntryHeader;

/// The longest name of a file or attribute, in bytes (`BTRFS_NAME_LEN`, `XATTR_NAME_MAX`).
pub const LONGEST_NAME: usize = 255;
/// Whether a file can have this name in a directory. Names that were read from disk may be others, which no program must use:
/// `.` and `..` lead round or out, `/` and NUL end a name.
#[must_use]
pub fn is_file_name(name: &[u8]) -> bool {
    let is_length = (1..=LONGEST_NAME).contains(&name.len());
    is_length && !matches!(name, b"." | b"..") && !name.iter().any(|byte| matches!(byte, b'/' | 0))
}

/// Bytes of an entry before its name.
pub const ENTRY_HEADER_SIZE: usize = EntryHeader::SIZE;

/// A name's place in the order of its directory's names: the offset of its DIR_INDEX key, also kept in its references.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct DirectoryIndex(pub u64);

impl DirectoryIndex {
    /// The first index that Linux gives to a name; 0 and 1 stand for `.` and `..` in `readdir`.
    pub const FIRST: Self = Self(2);
}

impl fmt::Display for DirectoryIndex {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(&self.0, formatter)
    }
}

/// What an entry's name stands for. Unknown values are kept.
#[derive(Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct DirectoryEntryType(pub u8);

wrapped! {
    DirectoryEntryType => u8;
    DirectoryIndex => u64;
}

impl DirectoryEntryType {
    /// Not known; never on disk.
    pub const UNKNOWN: Self = Self(0);
    /// A regular file.
    pub const REGULAR: Self = Self(1);
    /// A directory, or a subvolume.
    pub const DIRECTORY: Self = Self(2);
    /// A character device.
    pub const CHARACTER_DEVICE: Self = Self(3);
    /// A block device.
    pub const BLOCK_DEVICE: Self = Self(4);
    /// A fifo.
    pub const FIFO: Self = Self(5);
    /// A socket.
    pub const SOCKET: Self = Self(6);
    /// A symbolic link.
    pub const SYMBOLIC_LINK: Self = Self(7);
    /// An extended attribute.
    pub const EXTENDED_ATTRIBUTE: Self = Self(8);

    /// The type of file, if it is one.
    pub const fn file_type(self) -> Option<FileType> {
        match self {
            Self::REGULAR => Some(FileType::Regular),
            Self::DIRECTORY => Some(FileType::Directory),
            Self::CHARACTER_DEVICE => Some(FileType::CharacterDevice),
            Self::BLOCK_DEVICE => Some(FileType::BlockDevice),
            Self::FIFO => Some(FileType::Fifo),
            Self::SOCKET => Some(FileType::Socket),
            Self::SYMBOLIC_LINK => Some(FileType::SymbolicLink),
            _ => None,
        }
    }
}

impl From<FileType> for DirectoryEntryType {
    fn from(file_type: FileType) -> Self {
        match file_type {
            FileType::Regular => Self::REGULAR,
            FileType::Directory => Self::DIRECTORY,
            FileType::CharacterDevice => Self::CHARACTER_DEVICE,
            FileType::BlockDevice => Self::BLOCK_DEVICE,
            FileType::Fifo => Self::FIFO,
            FileType::Socket => Self::SOCKET,
            FileType::SymbolicLink => Self::SYMBOLIC_LINK,
        }
    }
}

impl fmt::Debug for DirectoryEntryType {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, formatter)
    }
}

impl fmt::Display for DirectoryEntryType {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(match *self {
            Self::UNKNOWN => "UNKNOWN",
            Self::REGULAR => "FILE",
            Self::DIRECTORY => "DIR",
            Self::CHARACTER_DEVICE => "CHRDEV",
            Self::BLOCK_DEVICE => "BLKDEV",
            Self::FIFO => "FIFO",
            Self::SOCKET => "SOCK",
            Self::SYMBOLIC_LINK => "SYMLINK",
            Self::EXTENDED_ATTRIBUTE => "XATTR",
            _ => return write!(formatter, "DIR_ITEM.{}", self.0),
        })
    }
}

/// The key of a name by hash.
#[must_use]
pub fn item_key(directory: ObjectId, name: &[u8]) -> Key {
    Key::new(directory, ItemType::DIR_ITEM, name_hash(name))
}

/// The key of a name by order of creation.
#[must_use]
pub const fn index_key(directory: ObjectId, index: DirectoryIndex) -> Key {
    Key::new(directory, ItemType::DIR_INDEX, index.0)
}

/// The key of an extended attribute.
#[must_use]
pub fn attribute_key(inode: ObjectId, name: &[u8]) -> Key {
    Key::new(inode, ItemType::XATTR_ITEM, name_hash(name))
}

/// One name in a directory, or one extended attribute. It borrows name and value from the item.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DirectoryEntry<'a> {
    /// Key of the inode item or root item that the name stands for; all zero for an attribute.
    pub location: Key,
    /// The transaction that made the entry.
    pub transaction: Generation,
    /// What the name stands for.
    pub entry_type: DirectoryEntryType,
    /// The name.
    pub name: &'a [u8],
    /// The attribute's value; empty for names of files.
    pub data: &'a [u8],
}

impl<'a> DirectoryEntry<'a> {
    /// An extended attribute as Linux writes it.
    #[must_use]
    pub const fn attribute(name: &'a [u8], value: &'a [u8], transaction: Generation) -> Self {
        let entry_type = DirectoryEntryType::EXTENDED_ATTRIBUTE;
        Self { location: Key::MIN, transaction, entry_type, name, data: value }
    }

    /// Reads an item of exactly one entry, as every DIR_INDEX is.
    ///
    /// # Errors
    /// What [`DirectoryEntries`] finds, or [`DirectoryFault::EntryCount`].
    pub fn decode(data: &'a [u8]) -> Result<Self, DirectoryFault> {
        let (entry, rest) = split_entry(data)?;
        if rest.is_empty() { Ok(entry) } else { Err(DirectoryFault::EntryCount { trailing: rest.len() }) }
    }

    /// Bytes of the entry in an item.
    #[must_use]
    pub const fn encoded_len(&self) -> usize {
        ENTRY_HEADER_SIZE.saturating_add(self.name.len()).saturating_add(self.data.len())
    }

    /// The bytes of an item of this entry alone.
    ///
    /// # Panics
    /// As [`DirectoryEntry::append_to`].
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        let mut item = Vec::with_capacity(self.encoded_len());
        self.append_to(&mut item);
        item
    }

    /// Appends the entry to an item.
    ///
    /// # Panics
    /// If name or data are longer than 65,535 bytes, which the callers' own limits exclude.
    pub fn append_to(&self, item: &mut Vec<u8>) {
        let (name_len, data_len) = (u16::try_from(self.name.len()), u16::try_from(self.data.len()));
        assert!(name_len.is_ok() && data_len.is_ok(), "a directory entry of {} bytes", self.encoded_len());
        let header = EntryHeader {
            location: self.location,
            transid: self.transaction,
            data_len: data_len.unwrap_or(0),
            name_len: name_len.unwrap_or(0),
            entry_type: self.entry_type,
        };
        item.extend_from_slice(&header.to_array());
        item.extend_from_slice(self.name);
        item.extend_from_slice(self.data);
    }
}

/// The entries of one item, in order. After a fault there are no more.
#[derive(Clone, Debug)]
pub struct DirectoryEntries<'a> {
    rest: &'a [u8],
}

impl<'a> DirectoryEntries<'a> {
    /// The entries in an item's data.
    #[must_use]
    pub const fn new(data: &'a [u8]) -> Self {
        Self { rest: data }
    }

    /// Bytes that have not been read yet.
    #[must_use]
    pub const fn remaining_bytes(&self) -> usize {
        self.rest.len()
    }
}

impl<'a> Iterator for DirectoryEntries<'a> {
    type Item = Result<DirectoryEntry<'a>, DirectoryFault>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.rest.is_empty() {
            return None;
        }
        match split_entry(self.rest) {
            Ok((entry, rest)) => {
                self.rest = rest;
                Some(Ok(entry))
            }
            Err(fault) => {
                self.rest = &[];
                Some(Err(fault))
            }
        }
    }
}

impl core::iter::FusedIterator for DirectoryEntries<'_> {}

/// The entry of a name among those of an item.
///
/// # Errors
/// What [`DirectoryEntries`] finds before the name.
pub fn find<'a>(data: &'a [u8], name: &[u8]) -> Result<Option<DirectoryEntry<'a>>, DirectoryFault> {
    for entry in DirectoryEntries::new(data) {
        let entry = entry?;
        if entry.name == name {
            return Ok(Some(entry));
        }
    }
    Ok(None)
}

/// Removes the entry of a name from an item; false if there is none. An item without entries is to be deleted.
///
/// # Errors
/// What [`DirectoryEntries`] finds before the name.
pub fn remove(item: &mut Vec<u8>, name: &[u8]) -> Result<bool, DirectoryFault> {
    let Some((start, end)) = position(item, name)? else {
        return Ok(false);
    };
    item.drain(start..end);
    Ok(true)
}

/// Where the entry of a name begins and ends in an item.
fn position(item: &[u8], name: &[u8]) -> Result<Option<(usize, usize)>, DirectoryFault> {
    let mut entries = DirectoryEntries::new(item);
    let mut start = 0usize;
    while let Some(entry) = entries.next() {
        let end = item.len().saturating_sub(entries.remaining_bytes());
        if entry?.name == name {
            return Ok(Some((start, end)));
        }
        start = end;
    }
    Ok(None)
}

fn split_entry(bytes: &[u8]) -> Result<(DirectoryEntry<'_>, &[u8]), DirectoryFault> {
    let (header, rest) =
        EntryHeader::split_from(bytes).ok_or(DirectoryFault::Header { found: bytes.len() })?;
    let (name_len, data_len) = (widen_usize(header.name_len), widen_usize(header.data_len));
    let overrun = || DirectoryFault::Entry { name_len, data_len, available: rest.len() };
    let (name, after_name) = rest.split_at_checked(name_len).ok_or_else(overrun)?;
    let (data, after_data) = after_name.split_at_checked(data_len).ok_or_else(overrun)?;
    let entry = DirectoryEntry {
        location: header.location,
        transaction: header.transid,
        entry_type: header.entry_type,
        name,
        data,
    };
    Ok((entry, after_data))
}

/// The fields of the entries of an item.
pub(crate) fn lay_out(layout: &mut Layout<'_>) {
    while let Some(header) = layout.record::<EntryHeader>() {
        layout.bytes("EntryHeader", "name", widen_usize(header.name_len));
        layout.bytes("EntryHeader", "data", widen_usize(header.data_len));
    }
}

#[cfg(test)]
mod tests;
