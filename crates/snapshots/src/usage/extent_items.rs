//! File extent items as usage counts them: runs of files that have space on disk.

use vlinder_format::file_extent::{CompressionId, FileExtent, FileExtentContent, LARGEST_COMPRESSED_EXTENT};
use vlinder_format::{Block, Damage, Fault, ItemType, Key, Logical, Place};

use super::error::UsageError;

/// A run of a file that lies in an extent: written or preallocated, not a hole and not in the tree.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct FileRun {
    /// Where the extent begins.
    pub extent: Logical,
    /// Where it begins in the file, in bytes.
    pub file_offset: u64,
    /// Where it begins in the (uncompressed) extent, in bytes.
    pub extent_offset: u64,
    /// Its bytes in the file.
    pub file_bytes: u64,
    /// Whether the extent is compressed.
    pub is_compressed: bool,
}

/// Addresses from here on stand for bytes of compressed extents. No chunk lies so high.
const COMPRESSED: u64 = 1 << 63;
/// Bytes of the least extent.
const MIN_SECTOR: u64 = 4096;

impl FileRun {
    /// Where the extent's first byte would be in the file. Runs of one file that agree in it are one
    /// referrer to the extent tree.
    pub(super) const fn origin(&self) -> u64 {
        self.file_offset.wrapping_sub(self.extent_offset)
    }

    /// The bytes that the run shows, as a range of numbers that two runs share where they show the same
    /// bytes: first and end. Bytes of compressed extents have numbers of their own, since none of them has
    /// an address.
    pub(super) const fn shown(&self) -> (u64, u64) {
        let (base, most) = if self.is_compressed {
            // A compressed extent takes a sector of 4 KiB at least.
            let scaled = (self.extent.0 / MIN_SECTOR).wrapping_mul(LARGEST_COMPRESSED_EXTENT);
            (COMPRESSED | scaled, LARGEST_COMPRESSED_EXTENT)
        } else {
            (self.extent.0, u64::MAX)
        };
        let from = if self.extent_offset < most { self.extent_offset } else { most };
        let to = self.extent_offset.saturating_add(self.file_bytes);
        let to = if to < most { to } else { most };
        (base.saturating_add(from), base.saturating_add(to))
    }
}

/// The run that an item of a leaf describes; none for other items, holes and inline data.
pub(super) fn run_at(leaf: &Block, slot: usize) -> Result<Option<FileRun>, UsageError> {
    let key = leaf.key(slot);
    if key.item_type != ItemType::EXTENT_DATA {
        return Ok(None);
    }
    let extent = FileExtent::decode(leaf.data(slot)).map_err(|fault| damage(fault, leaf, slot, key))?;
    let range = match extent.content {
        FileExtentContent::Inline(_) => return Ok(None),
        FileExtentContent::Regular(range) | FileExtentContent::Preallocated(range) => range,
    };
    Ok((!range.is_hole()).then_some(FileRun {
        extent: range.address,
        file_offset: key.offset,
        extent_offset: range.offset_bytes,
        file_bytes: range.file_bytes,
        is_compressed: extent.compression != CompressionId::NONE,
    }))
}

/// An item that breaks its rules, with its place.
pub(super) fn damage(fault: impl Into<Fault>, leaf: &Block, slot: usize, key: Key) -> UsageError {
    let slot = u32::try_from(slot).ok();
    Damage::new(fault, Place { tree: Some(leaf.owner()), block: Some(leaf.logical()), slot, key: Some(key) })
        .into()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run(extent: u64, extent_offset: u64, file_bytes: u64, is_compressed: bool) -> FileRun {
        FileRun { extent: Logical(extent), file_offset: 0, extent_offset, file_bytes, is_compressed }
    }

    #[test]
    fn shown_bytes_of_neighbours_do_not_overlap() {
        assert_eq!(run(8192, 4096, 4096, false).shown(), (12288, 16384));
        let (first, second) = (run(8192, 0, 131_072, true).shown(), run(12288, 0, 131_072, true).shown());
        assert_eq!(first.1 - first.0, 131_072);
        assert_eq!(first.1, second.0);
        assert!(first.0 > run(u64::MAX >> 2, 0, 4096, false).shown().1);
    }

    #[test]
    fn numbers_that_no_sound_item_has_do_not_overflow() {
        let _ = run(u64::MAX, u64::MAX, u64::MAX, true).shown();
        let (from, to) = run(u64::MAX, u64::MAX, u64::MAX, false).shown();
        assert!(from <= to);
        assert_eq!(run(0, 1, 0, false).origin(), u64::MAX);
    }
}
