//! The data extents that the items of a leaf refer to.

use vlinder_format::file_extent::{FileExtent, FileExtentContent};
use vlinder_format::{Block, ItemType, Logical, ObjectId};

/// The data extents that a leaf's items refer to: place, length, inode, and file offset less offset into the
/// extent.
pub(crate) fn data_extents(block: &Block) -> impl Iterator<Item = (Logical, u64, ObjectId, u64)> + '_ {
    (0..block.len()).filter_map(|slot| data_extent_at(block, slot))
}

/// The data extent that a leaf's item refers to, if it refers to one; as [`data_extents`].
pub(crate) fn data_extent_at(block: &Block, slot: usize) -> Option<(Logical, u64, ObjectId, u64)> {
    let key = block.key(slot);
    if key.item_type != ItemType::EXTENT_DATA {
        return None;
    }
    // The leaf was judged when it was read, so the item decodes.
    match FileExtent::decode(block.data(slot)).ok()?.content {
        FileExtentContent::Regular(range) | FileExtentContent::Preallocated(range) if !range.is_hole() => {
            let offset = key.offset.wrapping_sub(range.offset_bytes);
            Some((range.address, range.disk_bytes, key.objectid, offset))
        }
        _ => None,
    }
}
