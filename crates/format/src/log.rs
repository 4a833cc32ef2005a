//! The fsync log's own items: which part of a directory's index a log speaks for.
//!
//! Key (directory, DIR_LOG_INDEX, first index) in a log tree; the data are the last index of the range, u64:
//! names with an index in the range that the log does not hold were deleted. DIR_LOG_ITEM, by hashes of
//! names, has the same shape and was written by Linux before 5.16. Source: `struct btrfs_dir_log_item`.

use crate::directory::DirectoryIndex;
use crate::key::{ItemType, Key};
use crate::layout::{Layout, structure};
use crate::rules::ItemContext;
use crate::types::{Logical, ObjectId, RootId};

/// How a log's item can be wrong.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum LogFault {
    /// The item has another size.
    #[error("{found} bytes instead of {}", DirectoryLogRange::SIZE)]
    Size {
        /// Bytes of the item.
        found: usize,
    },
    /// The range ends before it begins.
    #[error("a range from {first} to {last}")]
    Range {
        /// In the key.
        first: DirectoryIndex,
        /// In the item.
        last: DirectoryIndex,
    },
    /// A log of a tree that can have none.
    #[error("a log of tree {found}, which is no subvolume")]
    Subvolume {
        /// The tree.
        found: RootId,
    },
    /// The log, or data that it refers to, lies where something else does: it was overwritten, or never
    /// right.
    #[error("the log uses {length} bytes at {start}, which are not free")]
    InUse {
        /// The first byte.
        start: Logical,
        /// Bytes.
        length: u64,
    },
    /// The log speaks of an inode that neither it nor the subvolume has.
    #[error("the log speaks of inode {inode}, which does not exist")]
    NoInode {
        /// The inode.
        inode: ObjectId,
    },
    /// A name that has to go is in a directory and not among the inode's references, or the other way round.
    #[error("inode {inode} has no such name in directory {directory}")]
    NoName {
        /// The directory.
        directory: ObjectId,
        /// The inode.
        inode: ObjectId,
    },
    /// A name that has to be added is taken, or its index.
    #[error("directory {directory} has another entry at index {index} or of the same name")]
    Taken {
        /// The directory.
        directory: ObjectId,
        /// The index of the new name.
        index: DirectoryIndex,
    },
    /// Only a part of an inline extent would be replaced, and it has no parts.
    #[error("the log replaces a part of inline data of inode {inode}")]
    PartOfInline {
        /// The file.
        inode: ObjectId,
    },
}

/// The end of a range of directory indexes that a log speaks for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DirectoryLogRange {
    /// The last index of the range, which belongs to it.
    pub last: DirectoryIndex,
}

impl DirectoryLogRange {
    /// Bytes on disk.
    pub const SIZE: usize = 8;

    /// The key of a range.
    #[must_use]
    pub const fn key(directory: ObjectId, first: DirectoryIndex) -> Key {
        Key::new(directory, ItemType::DIR_LOG_INDEX, first.0)
    }

    /// Reads the item's data.
    ///
    /// # Errors
    /// [`LogFault::Size`].
    pub fn decode(data: &[u8]) -> Result<Self, LogFault> {
        match data.try_into() {
            Ok(bytes) => Ok(Self { last: DirectoryIndex(u64::from_le_bytes(bytes)) }),
            Err(_) => Err(LogFault::Size { found: data.len() }),
        }
    }

    /// The item's bytes.
    #[must_use]
    pub const fn encode(&self) -> [u8; Self::SIZE] {
        self.last.0.to_le_bytes()
    }
}

/// Checks a DIR_LOG_INDEX or DIR_LOG_ITEM. Linux does not.
///
/// # Errors
/// The first rule that it breaks.
pub fn check(key: &Key, data: &[u8], _context: &ItemContext<'_>) -> Result<(), LogFault> {
    let range = DirectoryLogRange::decode(data)?;
    if range.last.0 < key.offset {
        return Err(LogFault::Range { first: DirectoryIndex(key.offset), last: range.last });
    }
    Ok(())
}

structure! {
    /// What [`DirectoryLogRange::decode`] reads.
    RANGE: "DirectoryLogRange", 8 bytes {
        last: 0, 8;
    }
}

/// The field of a range.
pub(crate) fn lay_out(layout: &mut Layout<'_>) {
    layout.structure(RANGE);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::validate::tests::{assert_fault, assert_sound};
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn decode_and_encode_are_inverse(bytes in any::<[u8; 8]>()) {
            prop_assert_eq!(DirectoryLogRange::decode(&bytes).unwrap().encode(), bytes);
        }
    }

    #[test]
    fn a_range_has_a_size_and_an_order() {
        let key = DirectoryLogRange::key(ObjectId(256), DirectoryIndex(5));
        let range = |last| DirectoryLogRange { last: DirectoryIndex(last) }.encode();
        assert_sound(&key, &range(5), None);
        assert_sound(&key, &range(u64::MAX), None);
        assert_fault(
            &key,
            &range(4),
            None,
            LogFault::Range { first: DirectoryIndex(5), last: DirectoryIndex(4) },
        );
        assert_fault(&key, &range(5)[..7], None, LogFault::Size { found: 7 });
    }
}
