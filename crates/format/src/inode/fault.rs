//! What can be wrong with an inode item.

use super::flags::InodeFlags;
use super::mode::Mode;
use crate::types::{Generation, ObjectId};

/// How an inode item can be wrong.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum InodeFault {
    /// The item does not have the size of an inode.
    #[error("the inode has {found} bytes instead of 160")]
    Size {
        /// Bytes of the item.
        found: usize,
    },
    /// The object id is none that an inode may have.
    #[error("{found} is no inode number")]
    Number {
        /// In the key.
        found: ObjectId,
    },
    /// The key's offset is not 0.
    #[error("the key's offset is {found} instead of 0")]
    KeyOffset {
        /// In the key.
        found: u64,
    },
    /// The inode was made by a transaction that has not been.
    #[error("made in generation {found}, but no generation after {most} has begun")]
    Generation {
        /// In the item.
        found: Generation,
        /// The superblock's + 1, for logs.
        most: Generation,
    },
    /// The inode was changed by a transaction that has not been.
    #[error("changed in generation {found}, but no generation after {most} has begun")]
    Transaction {
        /// In the item.
        found: Generation,
        /// The superblock's + 1, for logs.
        most: Generation,
    },
    /// The mode has bits that no mode has.
    #[error("mode {found} has unknown bits")]
    ModeBits {
        /// In the item.
        found: Mode,
    },
    /// The mode names no file type.
    #[error("mode {found} names no file type")]
    FileType {
        /// In the item.
        found: Mode,
    },
    /// A directory has several names.
    #[error("a directory with {found} links")]
    DirectoryLinks {
        /// In the item.
        found: u32,
    },
    /// The file would end past the last byte that a file can have (2^63 - 1).
    #[error("a size of {found} bytes, more than any file can have")]
    FileSize {
        /// In the item.
        found: u64,
    },
    /// Flags that this version does not know and that forbid any use.
    #[error("unknown flags {found}")]
    IncompatibleFlags {
        /// The unknown ones.
        found: InodeFlags,
    },
    /// Flags that this version does not know and that forbid writing, in a file system open for writing.
    #[error("unknown read-only flags {found} in a file system open for writing")]
    ReadOnlyFlags {
        /// The unknown ones.
        found: InodeFlags,
    },
}
