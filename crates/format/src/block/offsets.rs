//! Where the fields and entries of a tree block lie, and how fields are read and written
//! (`struct btrfs_header`, `struct btrfs_item`, `struct btrfs_key_ptr`).

use crate::key::Key;
use crate::layout::{Inner, structure};
use crate::types::{Level, Uuid};

/// Bytes of the header.
pub const HEADER_SIZE: usize = 101;
/// Bytes of an item header in a leaf: key, data offset u32, data size u32.
pub const ITEM_HEADER_SIZE: usize = 25;
/// Bytes of a pointer in a node: key, logical u64, generation u64.
pub const POINTER_SIZE: usize = 33;
/// Bytes at the start that hold the checksum of the rest.
pub const CHECKSUM_SIZE: usize = 32;
/// The block was written (`BTRFS_HEADER_FLAG_WRITTEN`); a change must go to another address.
pub const BLOCK_FLAG_WRITTEN: u64 = 1;
/// The block belongs to, or its children are referenced by, a relocation (`BTRFS_HEADER_FLAG_RELOC`).
pub const BLOCK_FLAG_RELOCATION: u64 = 2;

pub(super) const FSID: usize = 32;
pub(super) const BYTENR: usize = 48;
pub(super) const FLAGS: usize = 56;
pub(super) const CHUNK_TREE_UUID: usize = 64;
pub(super) const GENERATION: usize = 80;
pub(super) const OWNER: usize = 88;
pub(super) const NRITEMS: usize = 96;
pub(super) const LEVEL: usize = 100;
/// Position of the data offset in an item header.
pub(super) const ITEM_DATA_OFFSET: usize = Key::SIZE;
/// Position of the data size in an item header.
pub(super) const ITEM_DATA_SIZE: usize = Key::SIZE + 4;
/// The top byte of the flags field is the back reference revision.
pub(super) const FLAGS_MASK: u64 = (1 << 56) - 1;

structure! {
    /// What the accessors of a block's header read.
    pub(super) HEADER: "BlockHeader", 101 bytes {
        checksum: 0, 32;
        fsid: 32, 16;
        bytenr: 48, 8;
        flags: 56, 7;
        back_reference_revision: 63, 1;
        chunk_tree_uuid: 64, 16;
        generation: 80, 8;
        owner: 88, 8;
        nritems: 96, 4;
        level: 100, 1;
    }
}

structure! {
    /// What stands in a leaf for each item.
    pub(super) ITEM_HEADER: "ItemHeader", 25 bytes {
        key: 0, 17, Inner::One(Key::STRUCTURE);
        data_offset: 17, 4;
        data_size: 21, 4;
    }
}

structure! {
    /// What stands in a node for each child.
    pub(super) POINTER: "ChildPointer", 33 bytes {
        key: 0, 17, Inner::One(Key::STRUCTURE);
        logical: 17, 8;
        generation: 25, 8;
    }
}

/// A usize of a u32; every platform that vlinder runs on has at least 32-bit addresses.
#[allow(clippy::as_conversions, reason = "usize has at least 32 bits, asserted below")]
pub(super) const fn widen(value: u32) -> usize {
    value as usize
}
const _: () = assert!(usize::BITS >= 32);

/// A u32 of a size inside one block; blocks are at most 64 KiB.
pub(super) fn narrow(value: usize) -> u32 {
    let narrowed = u32::try_from(value).unwrap_or(u32::MAX);
    assert!(narrowed <= 65536, "{value} is no size inside a tree block");
    narrowed
}

#[allow(
    clippy::indexing_slicing,
    clippy::arithmetic_side_effects,
    reason = "offsets lie in a block that validate() accepted"
)]
#[inline]
pub(super) fn get_u64(bytes: &[u8], at: usize) -> u64 {
    let mut field = [0; 8];
    field.copy_from_slice(&bytes[at..at + 8]);
    u64::from_le_bytes(field)
}

#[allow(
    clippy::indexing_slicing,
    clippy::arithmetic_side_effects,
    reason = "offsets lie in a block that validate() accepted"
)]
#[inline]
pub(super) fn get_u32(bytes: &[u8], at: usize) -> u32 {
    let mut field = [0; 4];
    field.copy_from_slice(&bytes[at..at + 4]);
    u32::from_le_bytes(field)
}

#[allow(
    clippy::indexing_slicing,
    clippy::arithmetic_side_effects,
    reason = "offsets lie in a block that validate() accepted"
)]
pub(super) fn get_uuid(bytes: &[u8], at: usize) -> Uuid {
    let mut uuid = [0; 16];
    uuid.copy_from_slice(&bytes[at..at + 16]);
    Uuid(uuid)
}

#[allow(
    clippy::indexing_slicing,
    clippy::arithmetic_side_effects,
    reason = "offsets lie in a block that validate() accepted"
)]
#[inline]
pub(super) fn get_key(bytes: &[u8], at: usize) -> Key {
    let mut key = [0; Key::SIZE];
    key.copy_from_slice(&bytes[at..at + Key::SIZE]);
    Key::decode(&key)
}

#[allow(
    clippy::indexing_slicing,
    clippy::arithmetic_side_effects,
    reason = "offsets lie in a block that validate() accepted"
)]
pub(super) fn put(bytes: &mut [u8], at: usize, value: &[u8]) {
    bytes[at..at + value.len()].copy_from_slice(value);
}

/// Number of items or pointers.
#[inline]
pub(super) fn entry_count(bytes: &[u8]) -> usize {
    widen(get_u32(bytes, NRITEMS))
}

/// Height above the leaves.
#[allow(clippy::indexing_slicing, reason = "a block is longer than its header")]
#[inline]
pub(super) fn level_of(bytes: &[u8]) -> Level {
    Level(bytes[LEVEL])
}

/// Bytes of an item's header, or of a pointer.
#[inline]
pub(super) fn entry_size(bytes: &[u8]) -> usize {
    if level_of(bytes) == Level::LEAF { ITEM_HEADER_SIZE } else { POINTER_SIZE }
}

/// Position in the block of the entry at `slot`: an item header or a pointer.
#[allow(clippy::arithmetic_side_effects, reason = "a slot out of range is our own mistake and is asserted")]
#[inline]
pub(super) fn entry_start(bytes: &[u8], slot: usize) -> usize {
    let count = entry_count(bytes);
    assert!(slot < count, "slot {slot} of {count}");
    HEADER_SIZE + slot * entry_size(bytes)
}

/// Position in the block of an item's data: start and end.
#[allow(clippy::arithmetic_side_effects, reason = "validate() proved every offset to lie in the block")]
#[inline]
pub(super) fn data_range(bytes: &[u8], slot: usize) -> (usize, usize) {
    assert!(level_of(bytes) == Level::LEAF, "a node has no items");
    let start = entry_start(bytes, slot);
    let offset = HEADER_SIZE + widen(get_u32(bytes, start + ITEM_DATA_OFFSET));
    (offset, offset + widen(get_u32(bytes, start + ITEM_DATA_SIZE)))
}

/// Position in the block where item data begin: that of the last item, or the end.
pub(super) fn data_front(bytes: &[u8]) -> usize {
    entry_count(bytes).checked_sub(1).map_or(bytes.len(), |slot| data_range(bytes, slot).0)
}
