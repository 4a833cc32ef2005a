//! What can be wrong with a directory item or an extended attribute.

use super::entry_type::DirectoryEntryType;
use super::name::LONGEST_NAME;
use super::raw::ENTRY_HEADER_SIZE;
use crate::key::{ItemType, Key};
use crate::types::{ObjectId, RootId};

/// How a directory item or extended attribute can be wrong.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum DirectoryFault {
    /// The item has no entry.
    #[error("a directory item without entries")]
    Empty,
    /// The item ends inside an entry's header.
    #[error("{found} bytes where an entry's header of {ENTRY_HEADER_SIZE} should be")]
    Header {
        /// Bytes up to the end of the item.
        found: usize,
    },
    /// The item ends inside an entry's name or data.
    #[error("a name of {name_len} and data of {data_len} bytes in an item that ends after {available}")]
    Entry {
        /// In the entry.
        name_len: usize,
        /// In the entry.
        data_len: usize,
        /// Bytes up to the end of the item.
        available: usize,
    },
    /// Where one entry belongs, more bytes follow it.
    #[error("{trailing} bytes after the only entry that belongs here")]
    EntryCount {
        /// Bytes after the first entry.
        trailing: usize,
    },
    /// The inode's item is missing: another inode's item comes before.
    #[error("preceded by an item of inode {found}, not by the inode's own")]
    MissingInode {
        /// Object id of the item before.
        found: ObjectId,
    },
    /// The entry stands neither for an inode nor for a subvolume, or an attribute stands for something.
    #[error("the entry's location is of type {found}")]
    LocationType {
        /// In the location.
        found: ItemType,
    },
    /// The location is no inode that there can be, or an attribute's is not zero.
    #[error("the entry's location {found} is not valid")]
    Location {
        /// In the entry.
        found: Key,
    },
    /// The entry stands for a tree that is no subvolume.
    #[error("the entry stands for tree {found}, which is no subvolume")]
    LocationRoot {
        /// In the location.
        found: RootId,
    },
    /// The type of entry is not known.
    #[error("the entry's type {found} is not known")]
    UnknownType {
        /// In the entry.
        found: DirectoryEntryType,
    },
    /// An attribute among names, or a name among attributes.
    #[error("an entry of type {found} under a key of type {key_type}")]
    TypeOfKey {
        /// In the entry.
        found: DirectoryEntryType,
        /// In the item's key.
        key_type: ItemType,
    },
    /// A name without bytes.
    #[error("an empty name")]
    EmptyName,
    /// A name longer than names may be.
    #[error("a name of {found} bytes; at most {LONGEST_NAME} are allowed")]
    NameLength {
        /// In the entry.
        found: usize,
    },
    /// Name and value do not fit a leaf together.
    #[error("name and value have {found} bytes; at most {most} fit")]
    EntryLength {
        /// In the entry.
        found: usize,
        /// For this node size.
        most: usize,
    },
    /// The name of a file carries data.
    #[error("the name of a file carries {found} bytes of data")]
    Data {
        /// In the entry.
        found: usize,
    },
    /// The key's offset is not the hash of the name.
    #[error("the name's hash is {found:#x}, the key's {expected:#x}")]
    Hash {
        /// Of the name.
        found: u64,
        /// In the key.
        expected: u64,
    },
}
