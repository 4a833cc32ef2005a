//! What must hold of a file extent (kernel: `check_extent_data_item`).

use super::{
    CompressionId, ExtentRange, FileExtent, FileExtentContent, INLINE_HEADER_SIZE, LARGEST_COMPRESSED_EXTENT,
    REGULAR_SIZE, length_of,
};
use crate::key::{ItemType, Key};
use crate::record::{is_aligned, widen_u64};
use crate::types::{Logical, ObjectId};
use crate::validate::ItemContext;

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

/// Checks an EXTENT_DATA item.
///
/// # Errors
/// The first rule that it breaks.
pub fn check(key: &Key, data: &[u8], context: &ItemContext<'_>) -> Result<(), FileExtentFault> {
    let sector_size = context.rules.sector_size;
    aligned(ExtentField::FileOffset, key.offset, sector_size)?;
    if let Some(found) = context.foreign_inode_before(key) {
        return Err(FileExtentFault::MissingInode { found });
    }
    let extent = FileExtent::decode(data)?;
    if !extent.compression.is_known() {
        return Err(FileExtentFault::Compression { found: extent.compression });
    }
    if extent.encryption != 0 {
        return Err(FileExtentFault::Encryption { found: extent.encryption });
    }
    match extent.content {
        FileExtentContent::Inline(bytes) => check_inline(key, &extent, length_of(bytes)),
        FileExtentContent::Regular(range) | FileExtentContent::Preallocated(range) => {
            check_range(key, &extent, &range, sector_size)?;
            check_overlap(key, context)
        }
    }
}

fn check_inline(key: &Key, extent: &FileExtent<'_>, found: u64) -> Result<(), FileExtentFault> {
    if key.offset != 0 {
        return Err(FileExtentFault::InlineOffset { found: key.offset });
    }
    if extent.compression == CompressionId::NONE {
        let expected = extent.ram_bytes;
        return if found == expected { Ok(()) } else { Err(FileExtentFault::InlineSize { found, expected }) };
    }
    check_compressed(extent, found)
}

fn check_range(
    key: &Key,
    extent: &FileExtent<'_>,
    range: &ExtentRange,
    sector_size: u32,
) -> Result<(), FileExtentFault> {
    aligned(ExtentField::RamBytes, extent.ram_bytes, sector_size)?;
    aligned(ExtentField::Address, range.address.0, sector_size)?;
    aligned(ExtentField::DiskBytes, range.disk_bytes, sector_size)?;
    aligned(ExtentField::Offset, range.offset_bytes, sector_size)?;
    aligned(ExtentField::FileBytes, range.file_bytes, sector_size)?;
    if key.offset.checked_add(range.file_bytes).is_none() {
        return Err(FileExtentFault::EndOfFile { offset: key.offset, bytes: range.file_bytes });
    }
    let ends = [
        range.address.0.checked_add(range.disk_bytes),
        range.offset_bytes.checked_add(range.file_bytes),
        range.address.0.checked_add(range.offset_bytes).and_then(|start| start.checked_add(range.file_bytes)),
    ];
    if ends.contains(&None) {
        return Err(FileExtentFault::EndOfExtent {
            address: range.address,
            disk_bytes: range.disk_bytes,
            offset_bytes: range.offset_bytes,
            file_bytes: range.file_bytes,
        });
    }
    if extent.compression == CompressionId::NONE {
        Ok(())
    } else {
        check_compressed(extent, range.disk_bytes)
    }
}

/// Readers allocate what a compressed extent says; this bounds it.
fn check_compressed(extent: &FileExtent<'_>, disk_bytes: u64) -> Result<(), FileExtentFault> {
    if extent.ram_bytes > LARGEST_COMPRESSED_EXTENT || disk_bytes > LARGEST_COMPRESSED_EXTENT {
        return Err(FileExtentFault::CompressedSize { ram_bytes: extent.ram_bytes, disk_bytes });
    }
    Ok(())
}

/// A run must not reach into the next; the run before was checked by itself already, so that its end exists.
fn check_overlap(key: &Key, context: &ItemContext<'_>) -> Result<(), FileExtentFault> {
    let Some((previous, data)) = context.previous else {
        return Ok(());
    };
    if previous.objectid != key.objectid || previous.item_type != ItemType::EXTENT_DATA {
        return Ok(());
    }
    let extent = FileExtent::decode(data)?;
    let end = previous.offset.saturating_add(extent.file_bytes());
    let end = match extent.content {
        FileExtentContent::Inline(_) => {
            end.checked_next_multiple_of(widen_u64(context.rules.sector_size)).unwrap_or(u64::MAX)
        }
        FileExtentContent::Regular(_) | FileExtentContent::Preallocated(_) => end,
    };
    if end > key.offset {
        return Err(FileExtentFault::Overlap { found: end, offset: key.offset });
    }
    Ok(())
}

/// Whether a run reaches past the extent that it is part of. No rule of a leaf, for Linux takes such an item; but nobody writes it.
/// (The uncompressed length of an extent that is not compressed is no bound: Linux let it differ.)
pub(crate) fn is_past_its_extent(data: &[u8]) -> bool {
    let Ok(extent) = FileExtent::decode(data) else { return false };
    let (FileExtentContent::Regular(range) | FileExtentContent::Preallocated(range)) = extent.content else {
        return false;
    };
    let is_plain = extent.compression == CompressionId::NONE;
    let whole = if is_plain { range.disk_bytes } else { extent.ram_bytes };
    !range.is_hole() && range.offset_bytes.checked_add(range.file_bytes).is_none_or(|end| end > whole)
}

fn aligned(field: ExtentField, found: u64, sector_size: u32) -> Result<(), FileExtentFault> {
    if is_aligned(found, sector_size) {
        Ok(())
    } else {
        Err(FileExtentFault::Alignment { field, found, sector_size })
    }
}
