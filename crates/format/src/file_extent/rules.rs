//! What must hold of a file extent (kernel: `check_extent_data_item`).

use super::compression_id::{CompressionId, LARGEST_COMPRESSED_EXTENT};
use super::fault::{ExtentField, FileExtentFault};
use super::item::{ExtentRange, FileExtent, FileExtentContent, length_of};
use crate::key::{ItemType, Key};
use crate::record::{is_aligned, widen_u64};
use crate::rules::ItemContext;

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

/// Whether a run reaches past the extent that it is part of. No rule of a leaf, for Linux takes such an item;
/// but nobody writes it. (The uncompressed length of an extent that is not compressed is no bound: Linux let
/// it differ.)
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
