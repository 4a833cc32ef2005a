//! Block groups: how much of a chunk's addresses is allocated.

use crate::chunk::BlockGroupFlags;
use crate::key::{ItemType, Key};
use crate::layout::Layout;
use crate::record::record;
use crate::rules::ItemContext;
use crate::types::{Logical, ObjectId};

record! {
    /// A block group: 24 bytes.
    ///
    /// Key (logical start, BLOCK_GROUP_ITEM, length) in the extent tree; with feature block-group-tree in
    /// that tree. One for each chunk, with the same start, length and type.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub struct BlockGroupItem in RawBlockGroupItem, 24 bytes {
        /// Bytes of the group that extents take.
        used: u64,
        /// Object id of the chunk's key: always 256.
        chunk_object: ObjectId,
        /// Content and profile, those of the chunk.
        flags: BlockGroupFlags,
    }
}

/// How a block group item can be broken.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum BlockGroupFault {
    /// The item has another size.
    #[error("the block group item has {found} bytes instead of 24")]
    Size {
        /// Bytes of the item.
        found: usize,
    },
    /// The group has no bytes, or ends past the last address.
    #[error("the block group has the impossible length {found}")]
    Length {
        /// Offset of the key.
        found: u64,
    },
    /// Another chunk object than 256.
    #[error("the block group names chunk object {found} instead of 256")]
    ChunkObject {
        /// In the item.
        found: ObjectId,
    },
    /// More is used than there is.
    #[error("{found} bytes of the block group's {length} are used")]
    Used {
        /// In the item.
        found: u64,
        /// Offset of the key.
        length: u64,
    },
    /// More is to be freed than is in use.
    #[error("{freed} bytes of the block group are freed, but only {used} are in use; check the file system")]
    Freed {
        /// Bytes in use.
        used: u64,
        /// Bytes that lost their last reference.
        freed: u64,
    },
    /// More than one profile, or a content that can't be.
    #[error("the block group has the impossible type {found} (0x{:x})", .found.0)]
    Flags {
        /// In the item.
        found: BlockGroupFlags,
    },
}

impl BlockGroupItem {
    /// Where the item of a group lies.
    pub const fn key(start: Logical, length: u64) -> Key {
        Key::new(ObjectId(start.0), ItemType::BLOCK_GROUP_ITEM, length)
    }

    /// A group of the ordinary chunk tree.
    pub const fn new(used: u64, flags: BlockGroupFlags) -> Self {
        Self { used, chunk_object: ObjectId::FIRST_CHUNK_TREE, flags }
    }

    /// Reads the item's data.
    ///
    /// # Errors
    /// [`BlockGroupFault::Size`].
    pub fn decode(bytes: &[u8]) -> Result<Self, BlockGroupFault> {
        Self::read_whole(bytes).ok_or(BlockGroupFault::Size { found: bytes.len() })
    }

    /// The item's data.
    pub fn encode(&self) -> [u8; Self::SIZE] {
        self.to_array()
    }

    /// Checks the item against its key (kernel: `check_block_group_item`; also that the end is an address).
    ///
    /// # Errors
    /// The first rule broken.
    pub fn check(&self, key: &Key) -> Result<(), BlockGroupFault> {
        if key.offset == 0 || key.objectid.0.checked_add(key.offset).is_none() {
            return Err(BlockGroupFault::Length { found: key.offset });
        }
        if self.chunk_object != ObjectId::FIRST_CHUNK_TREE {
            return Err(BlockGroupFault::ChunkObject { found: self.chunk_object });
        }
        if self.used > key.offset {
            return Err(BlockGroupFault::Used { found: self.used, length: key.offset });
        }
        let mixed = BlockGroupFlags::DATA.with(BlockGroupFlags::METADATA);
        let content = self.flags.content();
        let possible = content == mixed
            || [BlockGroupFlags::DATA, BlockGroupFlags::METADATA, BlockGroupFlags::SYSTEM].contains(&content);
        if self.flags.profile().0.count_ones() > 1 || !possible {
            return Err(BlockGroupFault::Flags { found: self.flags });
        }
        Ok(())
    }
}

/// The rules for a BLOCK_GROUP_ITEM of a leaf.
pub(crate) fn check(key: &Key, data: &[u8], _context: &ItemContext<'_>) -> Result<(), BlockGroupFault> {
    BlockGroupItem::decode(data)?.check(key)
}

/// The fields of a block group item.
pub(crate) fn lay_out(layout: &mut Layout<'_>) {
    layout.record::<BlockGroupItem>();
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn each_rule_has_its_fault() {
        let key = BlockGroupItem::key(Logical(1 << 20), 100);
        let item = BlockGroupItem::new(100, BlockGroupFlags::DATA.with(BlockGroupFlags::RAID1));
        item.check(&key).unwrap();
        assert_eq!(BlockGroupItem::decode(&[0; 25]), Err(BlockGroupFault::Size { found: 25 }));
        assert_eq!(item.check(&Key { offset: 0, ..key }), Err(BlockGroupFault::Length { found: 0 }));
        let endless = Key { offset: u64::MAX, ..key };
        assert_eq!(item.check(&endless), Err(BlockGroupFault::Length { found: u64::MAX }));
        assert_eq!(
            item.check(&Key { offset: 99, ..key }),
            Err(BlockGroupFault::Used { found: 100, length: 99 })
        );
        let odd = BlockGroupItem { chunk_object: ObjectId(1), ..item };
        assert_eq!(odd.check(&key), Err(BlockGroupFault::ChunkObject { found: ObjectId(1) }));
        for bits in [0, 0b11, 0b110, 0b111, 1 | 0b11 << 3] {
            let odd = BlockGroupItem { flags: BlockGroupFlags(bits), ..item };
            assert_eq!(odd.check(&key), Err(BlockGroupFault::Flags { found: BlockGroupFlags(bits) }));
        }
        let mixed = BlockGroupItem { flags: BlockGroupFlags(0b101), ..item };
        mixed.check(&key).unwrap();
    }

    proptest! {
        #[test]
        fn bytes_come_back(bytes in any::<[u8; 24]>()) {
            prop_assert_eq!(BlockGroupItem::decode(&bytes).unwrap().encode(), bytes);
        }
    }
}
