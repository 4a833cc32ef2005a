//! The header of a tree block: 101 bytes (`struct btrfs_header`).

use super::{Block, BlockIdentity};
use crate::key::Key;
use crate::layout::{Inner, Layout, PlacedField, structure};
use crate::types::{Generation, Level, Logical, RootId, Uuid};

/// Bytes of the header.
pub const HEADER_SIZE: usize = 101;
/// Bytes at the start that hold the checksum of the rest.
pub const CHECKSUM_SIZE: usize = 32;
/// The block was written (`BTRFS_HEADER_FLAG_WRITTEN`); a change must go to another address.
pub const BLOCK_FLAG_WRITTEN: u64 = 1;
/// The block belongs to, or its children are referenced by, a relocation (`BTRFS_HEADER_FLAG_RELOC`).
pub const BLOCK_FLAG_RELOCATION: u64 = 2;

const FSID: usize = 32;
const BYTENR: usize = 48;
const FLAGS: usize = 56;
const CHUNK_TREE_UUID: usize = 64;
const GENERATION: usize = 80;
const OWNER: usize = 88;
pub(super) const NRITEMS: usize = 96;
pub(super) const LEVEL: usize = 100;
/// The top byte of the flags field is the back reference revision.
const FLAGS_MASK: u64 = (1 << 56) - 1;

structure! {
    /// What the accessors of a block's header read.
    HEADER: "BlockHeader", 101 bytes {
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
    ITEM_HEADER: "ItemHeader", 25 bytes {
        key: 0, 17, Inner::One(Key::STRUCTURE);
        data_offset: 17, 4;
        data_size: 21, 4;
    }
}

structure! {
    /// What stands in a node for each child.
    POINTER: "ChildPointer", 33 bytes {
        key: 0, 17, Inner::One(Key::STRUCTURE);
        logical: 17, 8;
        generation: 25, 8;
    }
}

/// The top byte of the flags field.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BackReferenceRevision(pub u8);

impl BackReferenceRevision {
    /// The only revision written since 2009 (`BTRFS_MIXED_BACKREF_REV`).
    pub const MIXED: Self = Self(1);
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
pub(super) fn put(bytes: &mut [u8], at: usize, value: &[u8]) {
    bytes[at..at + value.len()].copy_from_slice(value);
}

#[allow(
    clippy::indexing_slicing,
    clippy::arithmetic_side_effects,
    reason = "every offset lies below HEADER_SIZE, and a block is longer than its header"
)]
impl Block {
    /// Writes every header field but the checksum; the block is empty, unwritten and of the mixed revision.
    pub(super) fn initialize_header(&mut self, identity: &BlockIdentity) {
        put(&mut self.bytes, FSID, &identity.fsid.0);
        put(&mut self.bytes, BYTENR, &identity.logical.0.to_le_bytes());
        put(&mut self.bytes, FLAGS, &(u64::from(BackReferenceRevision::MIXED.0) << 56).to_le_bytes());
        put(&mut self.bytes, CHUNK_TREE_UUID, &identity.chunk_tree_uuid.0);
        put(&mut self.bytes, GENERATION, &identity.generation.0.to_le_bytes());
        put(&mut self.bytes, OWNER, &identity.owner.0.to_le_bytes());
        put(&mut self.bytes, NRITEMS, &0u32.to_le_bytes());
        self.bytes[LEVEL] = identity.level.0;
    }

    /// Makes this block another one with the same content: the copy of copy-on-write. It is unwritten; a
    /// relocation flag is not passed on.
    pub fn assume_identity(&mut self, logical: Logical, generation: Generation, owner: RootId) {
        put(&mut self.bytes, BYTENR, &logical.0.to_le_bytes());
        put(&mut self.bytes, GENERATION, &generation.0.to_le_bytes());
        put(&mut self.bytes, OWNER, &owner.0.to_le_bytes());
        put(&mut self.bytes, FLAGS, &(u64::from(BackReferenceRevision::MIXED.0) << 56).to_le_bytes());
    }

    /// The stored checksum field, of which the checksum's own size counts.
    pub fn stored_checksum(&self) -> &[u8] {
        &self.bytes[..CHECKSUM_SIZE]
    }

    /// The bytes that the checksum covers.
    pub fn checksummed_bytes(&self) -> &[u8] {
        &self.bytes[CHECKSUM_SIZE..]
    }

    /// Stores the checksum, padded with zeros to 32 bytes.
    pub fn store_checksum(&mut self, checksum: &[u8; CHECKSUM_SIZE]) {
        put(&mut self.bytes, 0, checksum);
    }

    /// The file system that this block belongs to.
    pub fn fsid(&self) -> Uuid {
        self.uuid_at(FSID)
    }

    /// The chunk tree that maps this block's address.
    pub fn chunk_tree_uuid(&self) -> Uuid {
        self.uuid_at(CHUNK_TREE_UUID)
    }

    /// The address that the block claims as its own.
    #[inline]
    pub fn logical(&self) -> Logical {
        Logical(get_u64(&self.bytes, BYTENR))
    }

    /// Flags without the revision.
    pub fn flags(&self) -> u64 {
        get_u64(&self.bytes, FLAGS) & FLAGS_MASK
    }

    /// Sets or clears flags.
    pub fn set_flag(&mut self, flag: u64, on: bool) {
        let field = get_u64(&self.bytes, FLAGS);
        let field = if on { field | (flag & FLAGS_MASK) } else { field & !(flag & FLAGS_MASK) };
        put(&mut self.bytes, FLAGS, &field.to_le_bytes());
    }

    /// Whether a flag is set.
    pub fn has_flag(&self, flag: u64) -> bool {
        self.flags() & flag != 0
    }

    /// The revision in the top byte of the flags field.
    pub fn back_reference_revision(&self) -> BackReferenceRevision {
        BackReferenceRevision(self.bytes[FLAGS + 7])
    }

    /// The transaction that wrote the block.
    #[inline]
    pub fn generation(&self) -> Generation {
        Generation(get_u64(&self.bytes, GENERATION))
    }

    /// The tree that made the block; a shared block may be reached from others.
    pub fn owner(&self) -> RootId {
        RootId(get_u64(&self.bytes, OWNER))
    }

    /// Height above the leaves.
    #[inline]
    pub fn level(&self) -> Level {
        Level(self.bytes[LEVEL])
    }

    pub(super) fn set_len(&mut self, len: usize) {
        put(&mut self.bytes, NRITEMS, &narrow(len).to_le_bytes());
    }

    /// The fields of the header, and of the item headers or pointers; those of items' data are their families'.
    pub fn header_fields(&self) -> Vec<PlacedField> {
        let mut layout = Layout::new(&self.bytes);
        layout.structure(HEADER);
        for _ in 0..self.len() {
            layout.structure(if self.is_leaf() { ITEM_HEADER } else { POINTER });
        }
        layout.into_fields()
    }

    fn uuid_at(&self, at: usize) -> Uuid {
        let mut uuid = [0; 16];
        uuid.copy_from_slice(&self.bytes[at..at + 16]);
        Uuid(uuid)
    }
}
