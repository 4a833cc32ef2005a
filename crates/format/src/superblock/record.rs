//! The fields of a superblock, and its bytes.

use super::backup_root::BackupRoot;
use super::fault::SuperblockFault;
use super::label::Label;
use super::mirror::SuperblockMirror;
use super::system_array::{SystemChunkArray, SystemChunks};
use crate::device::DeviceItem;
use crate::features::{CompatFeatures, CompatReadOnlyFeatures, Features, IncompatFeatures};
use crate::layout::{Layout, PlacedField};
use crate::record::{Reserved, record};
use crate::types::{Generation, Level, Logical, ObjectId, Physical, Uuid};

/// `_BHRfS_M`.
pub const MAGIC: u64 = u64::from_le_bytes(*b"_BHRfS_M");
/// Bytes of a superblock.
pub const SUPERBLOCK_SIZE: usize = 4096;

record! {
    /// The superblock.
    #[derive(Clone, Debug, PartialEq, Eq)]
    pub struct Superblock in RawSuperblock, 4096 bytes {
        /// Checksum of the bytes after it, as stored; padded with zeros.
        checksum: [u8; 32],
        /// The UUID that users see.
        fsid: Uuid,
        /// Where this copy lies (`bytenr`).
        location: Physical,
        /// `SUPERBLOCK_FLAG_…`.
        flags: u64,
        /// [`MAGIC`].
        magic: u64,
        /// The last committed transaction.
        generation: Generation,
        /// Root tree.
        root: Logical,
        /// Chunk tree.
        chunk_root: Logical,
        /// Tree of log roots; 0 if there is no fsync log.
        log_root: Logical,
        /// Never used: the log's generation is `generation` + 1.
        log_root_transaction: u64,
        /// Bytes of all devices.
        total_bytes: u64,
        /// Bytes of all block groups' `used`, each copy counted once.
        bytes_used: u64,
        /// The directory in the root tree: 6.
        root_directory: ObjectId,
        /// Member devices.
        device_count: u64,
        /// Unit of data: 4 KiB to 64 KiB.
        sector_size: u32,
        /// Unit of tree blocks: sector size to 64 KiB.
        node_size: u32,
        /// Equal to the node size.
        leaf_size: u32,
        /// A power of two; the sector size in practice.
        stripe_size: u32,
        /// Bytes of the system chunk array that are used.
        system_array_size: u32,
        /// Generation of the chunk tree's root.
        chunk_root_generation: Generation,
        /// Features that may be ignored.
        compat: CompatFeatures,
        /// Features that must be known to write.
        compat_read_only: CompatReadOnlyFeatures,
        /// Features that must be known to read.
        incompat: IncompatFeatures,
        /// Kind of every checksum: 0 crc32c, 1 xxhash64, 2 sha256, 3 blake2b.
        checksum_type: u16,
        /// Of the root tree.
        root_level: Level,
        /// Of the chunk tree.
        chunk_root_level: Level,
        /// Of the tree of log roots.
        log_root_level: Level,
        /// This device's item.
        device_item: DeviceItem,
        /// The name that users give.
        label: Label,
        /// With the v1 space cache: its generation; 2^64 - 1 or 0 without.
        cache_generation: Generation,
        /// Generation at which the UUID tree was last complete.
        uuid_tree_generation: Generation,
        /// With feature metadata_uuid: the UUID in tree blocks.
        metadata_uuid: Uuid,
        /// With feature extent_tree_v2: number of global roots.
        global_root_count: u64,
        /// No meaning yet.
        reserved: Reserved<216>,
        /// Chunks of type SYSTEM, each after its key.
        system_chunk_array: SystemChunkArray,
        /// Roots of the last four commits.
        backup_roots: [BackupRoot; 4],
        /// No meaning.
        padding: Reserved<565>,
    }
}

/// Where the system chunk array begins.
const SYSTEM_CHUNK_ARRAY_START: usize = core::mem::offset_of!(RawSuperblock, system_chunk_array);

impl Superblock {
    /// Reads a superblock; anything of the right length decodes, the checks come after.
    ///
    /// # Errors
    /// [`SuperblockFault::Size`].
    pub fn decode(bytes: &[u8]) -> Result<Self, SuperblockFault> {
        Self::read_whole(bytes).ok_or(SuperblockFault::Size { found: bytes.len() })
    }

    /// The 4096 bytes, with the checksum as it is in the value; see [`Superblock::encode_with_checksum`].
    pub fn encode(&self) -> [u8; SUPERBLOCK_SIZE] {
        self.to_array()
    }

    /// The 4096 bytes for one mirror: with that location, and with the checksum that `checksum` gives for the
    /// bytes after the checksum field.
    pub fn encode_with_checksum(
        &self,
        mirror: SuperblockMirror,
        checksum: impl FnOnce(&[u8]) -> [u8; 32],
    ) -> [u8; SUPERBLOCK_SIZE] {
        let mut copy = self.clone();
        copy.location = mirror.offset();
        let mut bytes = copy.encode();
        let (field, covered) = bytes.split_at_mut(32);
        field.copy_from_slice(&checksum(covered));
        bytes
    }

    /// The bytes that the checksum covers.
    pub fn checksummed_bytes(bytes: &[u8; SUPERBLOCK_SIZE]) -> &[u8] {
        bytes.split_at(32).1
    }

    /// The three sets of features.
    pub const fn features(&self) -> Features {
        Features { compat: self.compat, compat_read_only: self.compat_read_only, incompat: self.incompat }
    }

    /// The UUID that tree blocks and device items carry.
    pub const fn tree_block_uuid(&self) -> Uuid {
        if self.incompat.has(IncompatFeatures::METADATA_UUID) { self.metadata_uuid } else { self.fsid }
    }

    /// Whether there is an fsync log to replay.
    pub const fn has_log(&self) -> bool {
        self.log_root.0 != 0
    }

    /// The fields of a superblock's bytes, in order.
    #[must_use]
    pub fn fields(bytes: &[u8]) -> Vec<PlacedField> {
        let mut layout = Layout::new(bytes);
        let Some(superblock) = layout.record::<Self>() else { return Vec::new() };
        let mut fields = layout.into_fields();
        fields.extend(superblock.system_chunk_array.fields(superblock.system_array_size).into_iter().map(
            |field| PlacedField { start: field.start.saturating_add(SYSTEM_CHUNK_ARRAY_START), ..field },
        ));
        fields.sort_by_key(|field| field.start);
        fields
    }

    /// The chunks of the system array.
    pub fn system_chunks(&self) -> SystemChunks<'_> {
        self.system_chunk_array.iterate(self.system_array_size)
    }
}
