//! What the header of a block says beside what the block is asked for all the time: for those that judge a
//! block, show one, or make one like it.

use super::identity::BackReferenceRevision;
use super::offsets::{
    CHECKSUM_SIZE, CHUNK_TREE_UUID, FLAGS, FLAGS_MASK, FSID, HEADER, ITEM_HEADER, POINTER, entry_count,
    get_u64, get_uuid, level_of,
};
use crate::layout::{Layout, PlacedField};
use crate::types::{Level, Uuid};

/// The header of a block.
#[derive(Clone, Copy)]
pub struct BlockHeader<'a> {
    /// All bytes of the block.
    bytes: &'a [u8],
}

#[allow(
    clippy::indexing_slicing,
    clippy::arithmetic_side_effects,
    reason = "every offset lies below HEADER_SIZE, and a block is longer than its header"
)]
impl<'a> BlockHeader<'a> {
    /// The header of a block of which these are all bytes.
    pub(super) const fn new(bytes: &'a [u8]) -> Self {
        Self { bytes }
    }

    /// The stored checksum field, of which the checksum's own size counts.
    pub fn stored_checksum(&self) -> &'a [u8] {
        &self.bytes[..CHECKSUM_SIZE]
    }

    /// The file system that the block belongs to.
    pub fn fsid(&self) -> Uuid {
        get_uuid(self.bytes, FSID)
    }

    /// The chunk tree that maps the block's address.
    pub fn chunk_tree_uuid(&self) -> Uuid {
        get_uuid(self.bytes, CHUNK_TREE_UUID)
    }

    /// Flags without the revision.
    pub fn flags(&self) -> u64 {
        get_u64(self.bytes, FLAGS) & FLAGS_MASK
    }

    /// The revision in the top byte of the flags field.
    pub fn back_reference_revision(&self) -> BackReferenceRevision {
        BackReferenceRevision(self.bytes[FLAGS + 7])
    }

    /// The fields of the header, and of the item headers or pointers; those of items' data are their
    /// families'.
    pub fn fields(&self) -> Vec<PlacedField> {
        let mut layout = Layout::new(self.bytes);
        layout.structure(HEADER);
        let is_leaf = level_of(self.bytes) == Level::LEAF;
        for _ in 0..entry_count(self.bytes) {
            layout.structure(if is_leaf { ITEM_HEADER } else { POINTER });
        }
        layout.into_fields()
    }
}
