//! What must hold of an inode item (kernel: `check_inode_item`, `check_inode_key`).

use super::{InodeFlags, InodeItem, Mode};
use crate::key::Key;
use crate::types::{Generation, ObjectId};
use crate::validate::ItemContext;

/// How an inode item can be wrong.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum InodeFault {
    /// The item does not have the size of an inode.
    #[error("the inode has {found} bytes instead of {}", InodeItem::SIZE)]
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

/// Whether an object id may be that of an inode: a free number, the root tree's directory, or the remnant of the
/// inode cache.
pub(crate) fn is_inode_number(number: ObjectId) -> bool {
    (number >= ObjectId::FIRST_FREE && number <= ObjectId::LAST_FREE)
        || number == ObjectId::ROOT_TREE_DIRECTORY
        || number == ObjectId::FREE_INODE
}

/// Checks an inode item.
///
/// # Errors
/// The first rule that it breaks.
pub fn check(key: &Key, data: &[u8], context: &ItemContext<'_>) -> Result<(), InodeFault> {
    if !is_inode_number(key.objectid) {
        return Err(InodeFault::Number { found: key.objectid });
    }
    if key.offset != 0 {
        return Err(InodeFault::KeyOffset { found: key.offset });
    }
    let inode = InodeItem::decode(data)?;
    let most = context.rules.newest_generation();
    if inode.generation > most {
        return Err(InodeFault::Generation { found: inode.generation, most });
    }
    if inode.transaction > most {
        return Err(InodeFault::Transaction { found: inode.transaction, most });
    }
    if inode.mode.0 & !(Mode::TYPE_MASK | Mode::PERMISSION_MASK) != 0 {
        return Err(InodeFault::ModeBits { found: inode.mode });
    }
    if inode.file_type().is_none() {
        return Err(InodeFault::FileType { found: inode.mode });
    }
    if inode.mode.is_directory() && inode.link_count > 1 {
        return Err(InodeFault::DirectoryLinks { found: inode.link_count });
    }
    // Sizes of directories are only advisory, and an old bug of Linux let them wrap below zero.
    if !inode.mode.is_directory() && inode.size_bytes > i64::MAX.unsigned_abs() {
        return Err(InodeFault::FileSize { found: inode.size_bytes });
    }
    let found = inode.flags.unknown_incompatible();
    if found != InodeFlags::NONE {
        return Err(InodeFault::IncompatibleFlags { found });
    }
    let found = inode.flags.unknown_read_only();
    if context.rules.writable && found != InodeFlags::NONE {
        return Err(InodeFault::ReadOnlyFlags { found });
    }
    Ok(())
}
