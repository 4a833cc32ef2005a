//! The bytes of one tree block, and its header.

use vlinder_base::buffers;

use super::header::BlockHeader;
use super::identity::{BackReferenceRevision, BlockIdentity};
use super::offsets::{
    BYTENR, CHECKSUM_SIZE, CHUNK_TREE_UUID, FLAGS, FLAGS_MASK, FSID, GENERATION, LEVEL, NRITEMS, OWNER,
    entry_count, get_u64, level_of, put, widen,
};
use super::validate::{BlockFault, BlockRules, validate};
use crate::types::{Generation, Level, Logical, RootId};

/// The bytes of one tree block, structurally sound.
#[derive(PartialEq, Eq)]
pub struct Block {
    bytes: Box<[u8]>,
}

impl Clone for Block {
    fn clone(&self) -> Self {
        Self { bytes: buffers::copied(&self.bytes) }
    }
}

impl Drop for Block {
    fn drop(&mut self) {
        buffers::give_back(core::mem::take(&mut self.bytes));
    }
}

impl core::fmt::Debug for Block {
    fn fmt(&self, formatter: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        formatter
            .debug_struct("Block")
            .field("logical", &self.logical())
            .field("generation", &self.generation())
            .field("owner", &self.owner())
            .field("level", &self.level())
            .field("len", &self.len())
            .finish_non_exhaustive()
    }
}

#[allow(
    clippy::indexing_slicing,
    clippy::arithmetic_side_effects,
    reason = "every offset lies below HEADER_SIZE, and a block is longer than its header"
)]
impl Block {
    /// An empty block with the given identity, in `node_size` bytes.
    pub fn new(node_size: u32, identity: &BlockIdentity) -> Self {
        let mut bytes = buffers::zeroed(widen(node_size));
        write_header(&mut bytes, identity);
        Self { bytes }
    }

    /// Takes bytes read from a device, after validating their structure.
    ///
    /// # Errors
    /// The first rule that the bytes break, with the slot where there is one.
    pub fn parse(bytes: Box<[u8]>, rules: &BlockRules) -> Result<Self, (BlockFault, Option<u32>)> {
        validate(&bytes, rules)?;
        Ok(Self { bytes })
    }

    /// Validates the structure again, as before each write.
    ///
    /// # Errors
    /// As [`Block::parse`].
    pub fn validate(&self, rules: &BlockRules) -> Result<(), (BlockFault, Option<u32>)> {
        validate(&self.bytes, rules)
    }

    /// All bytes, checksum field included.
    #[inline]
    pub fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// All bytes, to be changed. The caller keeps their structure sound.
    #[inline]
    pub(super) fn bytes_mut(&mut self) -> &mut [u8] {
        &mut self.bytes
    }

    /// What the header says beside this.
    pub fn header(&self) -> BlockHeader<'_> {
        BlockHeader::new(&self.bytes)
    }

    /// Number of items or pointers.
    #[inline]
    pub fn len(&self) -> usize {
        entry_count(&self.bytes)
    }

    /// Whether there is no item or pointer.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Whether this is a leaf.
    #[inline]
    pub fn is_leaf(&self) -> bool {
        self.level() == Level::LEAF
    }

    /// Makes this block another one with the same content: the copy of copy-on-write. It is unwritten; a
    /// relocation flag is not passed on.
    pub fn assume_identity(&mut self, logical: Logical, generation: Generation, owner: RootId) {
        put(&mut self.bytes, BYTENR, &logical.0.to_le_bytes());
        put(&mut self.bytes, GENERATION, &generation.0.to_le_bytes());
        put(&mut self.bytes, OWNER, &owner.0.to_le_bytes());
        put(&mut self.bytes, FLAGS, &(u64::from(BackReferenceRevision::MIXED.0) << 56).to_le_bytes());
    }

    /// The bytes that the checksum covers.
    pub fn checksummed_bytes(&self) -> &[u8] {
        &self.bytes[CHECKSUM_SIZE..]
    }

    /// Stores the checksum, padded with zeros to 32 bytes.
    pub fn store_checksum(&mut self, checksum: &[u8; CHECKSUM_SIZE]) {
        put(&mut self.bytes, 0, checksum);
    }

    /// The address that the block claims as its own.
    #[inline]
    pub fn logical(&self) -> Logical {
        Logical(get_u64(&self.bytes, BYTENR))
    }

    /// Sets or clears flags.
    pub fn set_flag(&mut self, flag: u64, on: bool) {
        let field = get_u64(&self.bytes, FLAGS);
        let field = if on { field | (flag & FLAGS_MASK) } else { field & !(flag & FLAGS_MASK) };
        put(&mut self.bytes, FLAGS, &field.to_le_bytes());
    }

    /// Whether a flag is set.
    pub fn has_flag(&self, flag: u64) -> bool {
        get_u64(&self.bytes, FLAGS) & FLAGS_MASK & flag != 0
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
        level_of(&self.bytes)
    }
}

impl AsRef<[u8]> for Block {
    fn as_ref(&self) -> &[u8] {
        &self.bytes
    }
}

/// Writes every header field but the checksum; the block is empty, unwritten and of the mixed revision.
#[allow(clippy::indexing_slicing, reason = "a block is longer than its header")]
fn write_header(bytes: &mut [u8], identity: &BlockIdentity) {
    put(bytes, FSID, &identity.fsid.0);
    put(bytes, BYTENR, &identity.logical.0.to_le_bytes());
    put(bytes, FLAGS, &(u64::from(BackReferenceRevision::MIXED.0) << 56).to_le_bytes());
    put(bytes, CHUNK_TREE_UUID, &identity.chunk_tree_uuid.0);
    put(bytes, GENERATION, &identity.generation.0.to_le_bytes());
    put(bytes, OWNER, &identity.owner.0.to_le_bytes());
    put(bytes, NRITEMS, &0u32.to_le_bytes());
    bytes[LEVEL] = identity.level.0;
}
