//! What can be wrong with a file extent.

use super::compression_id::{CompressionId, LARGEST_COMPRESSED_EXTENT};
use super::raw::{INLINE_HEADER_SIZE, REGULAR_SIZE};
use crate::types::{Logical, ObjectId};

/// A field of a file extent that counts whole sectors.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ExtentField {
    /// The key's offset: where the run begins in the file.
    FileOffset,
    /// The uncompressed length of the extent.
    RamBytes,
    /// Where the extent begins on disk.
    Address,
    /// The length of the extent on disk.
    DiskBytes,
    /// Where the run begins in the extent.
    Offset,
    /// The length of the run.
    FileBytes,
}

impl core::fmt::Display for ExtentField {
    fn fmt(&self, formatter: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        formatter.write_str(match self {
            Self::FileOffset => "offset in the file",
            Self::RamBytes => "uncompressed length",
            Self::Address => "address",
            Self::DiskBytes => "length on disk",
            Self::Offset => "offset in the extent",
            Self::FileBytes => "length in the file",
        })
    }
}

/// How a file extent can be wrong.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum FileExtentFault {
    /// The item is too short for any extent.
    #[error("{found} bytes, where every extent has at least {INLINE_HEADER_SIZE}")]
    Header {
        /// Bytes of the item.
        found: usize,
    },
    /// The item does not have the size of an extent on disk.
    #[error("{found} bytes, where an extent on disk has {REGULAR_SIZE}")]
    Size {
        /// Bytes of the item.
        found: usize,
    },
    /// Neither inline nor regular nor preallocated.
    #[error("extent type {found} is not known")]
    Type {
        /// In the item.
        found: u8,
    },
    /// The inode's item is missing: another inode's item comes before.
    #[error("preceded by an item of inode {found}, not by the inode's own")]
    MissingInode {
        /// Object id of the item before.
        found: ObjectId,
    },
    /// Compressed in a way that is not known.
    #[error("{found} is not known")]
    Compression {
        /// In the item.
        found: CompressionId,
    },
    /// Encrypted, which no version is.
    #[error("encryption {found} is not known")]
    Encryption {
        /// In the item.
        found: u8,
    },
    /// An inline extent that does not begin the file.
    #[error("an inline extent at offset {found}, where only 0 is possible")]
    InlineOffset {
        /// In the key.
        found: u64,
    },
    /// An inline extent whose bytes are not as many as it says.
    #[error("an inline extent of {found} bytes that says {expected}")]
    InlineSize {
        /// Bytes in the item.
        found: u64,
        /// In the item.
        expected: u64,
    },
    /// The target of a symbolic link that is not in the item. Only regular files have extents on disk.
    #[error("the target of a symbolic link lies in an extent on disk, where only an inline one is possible")]
    LinkNotInline,
    /// A field that is not a multiple of the sector size.
    #[error("the {field} is {found}, not a multiple of {sector_size}")]
    Alignment {
        /// Which.
        field: ExtentField,
        /// In the item or key.
        found: u64,
        /// Bytes of a sector.
        sector_size: u32,
    },
    /// A compressed extent larger than any program writes; reading it would take unbounded memory.
    #[error(
        "a compressed extent of {ram_bytes} bytes in {disk_bytes}; at most {LARGEST_COMPRESSED_EXTENT} are compressed together"
    )]
    CompressedSize {
        /// Uncompressed.
        ram_bytes: u64,
        /// On disk.
        disk_bytes: u64,
    },
    /// The run ends past the last offset.
    #[error("{bytes} bytes at offset {offset} end past the last offset")]
    EndOfFile {
        /// In the key.
        offset: u64,
        /// Of the run.
        bytes: u64,
    },
    /// The extent, or the run in it, ends past the last address.
    #[error(
        "an extent of {disk_bytes} bytes at {address}, or its part of {file_bytes} bytes from {offset_bytes}, has no end"
    )]
    EndOfExtent {
        /// In the item.
        address: Logical,
        /// In the item.
        disk_bytes: u64,
        /// In the item.
        offset_bytes: u64,
        /// In the item.
        file_bytes: u64,
    },
    /// The run before reaches into this one.
    #[error("the run before ends at {found}, past offset {offset} where this one begins")]
    Overlap {
        /// End of the run before.
        found: u64,
        /// In the key.
        offset: u64,
    },
}
