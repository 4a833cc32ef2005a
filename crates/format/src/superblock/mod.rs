//! The superblock: 4096 bytes that name the file system, its features, and where its roots and system chunks are.
//!
//! It lies at 64 KiB of each device, with copies at 64 MiB and 256 GiB where the device is long enough
//! ([`SuperblockMirror`]). Bytes 0..32 hold the checksum of the other 4064, of the kind that the superblock names.
//! All integers are little-endian, all lengths and addresses bytes. Fields came with features as noted; what has no
//! meaning yet is kept.
//!
//! ```text
//! 0 csum | 32 fsid | 48 bytenr | 56 flags | 64 magic | 72 generation | 80 root | 88 chunk root | 96 log root
//! 104 (log root transid) | 112 total bytes | 120 bytes used | 128 root dir | 136 devices | 144 sector size
//! 148 node size | 152 leaf size | 156 stripe size | 160 system array size | 164 chunk root generation | 172 compat
//! 180 compat_ro | 188 incompat | 196 checksum kind | 198 levels of root, chunk root, log root | 201 device item
//! 299 label | 555 cache generation | 563 UUID tree generation | 571 metadata UUID | 587 global roots
//! 595 reserved | 811 system chunk array | 2859 four backup roots | 3531 padding
//! ```

mod check;
mod label;
mod system_array;

pub use check::{SUPERBLOCK_FLAGS_KNOWN, SuperblockFault};
pub use label::{Label, LabelFault};
pub use system_array::{SYSTEM_CHUNK_ARRAY_SIZE, SystemArrayFault, SystemChunkArray, SystemChunks};

use crate::device::DeviceItem;
use crate::features::{CompatFeatures, CompatReadOnlyFeatures, Features, IncompatFeatures};
use crate::layout::{Inner, Layout, PlacedField, Record};
use crate::record::{Reserved, record};
use crate::types::{Generation, Level, Logical, ObjectId, Physical, Uuid};

/// `_BHRfS_M`.
pub const MAGIC: u64 = u64::from_le_bytes(*b"_BHRfS_M");
/// Bytes of a superblock.
pub const SUPERBLOCK_SIZE: usize = 4096;
/// Backup roots in a superblock.
pub const BACKUP_ROOTS: usize = 4;

/// The superblock was written (in all of them).
pub const SUPERBLOCK_FLAG_WRITTEN: u64 = 1;
/// The file system met errors.
pub const SUPERBLOCK_FLAG_ERROR: u64 = 1 << 2;
/// A seed: read only, to be extended by other devices.
pub const SUPERBLOCK_FLAG_SEEDING: u64 = 1 << 32;
/// A restored metadata image.
pub const SUPERBLOCK_FLAG_METADUMP: u64 = 1 << 33;
/// A restored metadata image, second form.
pub const SUPERBLOCK_FLAG_METADUMP_V2: u64 = 1 << 34;
/// An unfinished change of the UUID by rewriting every block.
pub const SUPERBLOCK_FLAG_CHANGING_FSID: u64 = 1 << 35;
/// An unfinished change of the UUID through the metadata UUID.
pub const SUPERBLOCK_FLAG_CHANGING_FSID_V2: u64 = 1 << 36;

/// Which copy of a device's superblock.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum SuperblockMirror {
    /// At 64 KiB, the one that counts.
    Primary,
    /// At 64 MiB.
    Second,
    /// At 256 GiB.
    Third,
}

impl SuperblockMirror {
    /// All of them.
    pub const ALL: [Self; 3] = [Self::Primary, Self::Second, Self::Third];

    /// First byte on the device.
    pub const fn offset(self) -> Physical {
        match self {
            Self::Primary => Physical(64 << 10),
            Self::Second => Physical(64 << 20),
            Self::Third => Physical(256 << 30),
        }
    }

    /// Whether a device of this many bytes has this copy. Linux wants at least one byte behind it.
    pub const fn fits(self, device_bytes: u64) -> bool {
        self.offset().0.saturating_add(4096) < device_bytes
    }
}

record! {
    /// Roots of an earlier commit: 168 bytes, four of them in each superblock, written round-robin.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
    pub struct BackupRoot in RawBackupRoot, 168 bytes {
        /// Root tree.
        tree_root: Logical,
        /// Its generation; 0 in a slot never written.
        tree_root_generation: Generation,
        /// Chunk tree.
        chunk_root: Logical,
        /// Its generation.
        chunk_root_generation: Generation,
        /// Extent tree (with block-group-tree: that tree, in older Linux).
        extent_root: Logical,
        /// Its generation.
        extent_root_generation: Generation,
        /// Top-level subvolume.
        fs_root: Logical,
        /// Its generation.
        fs_root_generation: Generation,
        /// Device tree.
        device_root: Logical,
        /// Its generation.
        device_root_generation: Generation,
        /// Checksum tree.
        checksum_root: Logical,
        /// Its generation.
        checksum_root_generation: Generation,
        /// As in the superblock then.
        total_bytes: u64,
        /// As in the superblock then.
        bytes_used: u64,
        /// As in the superblock then.
        device_count: u64,
        /// Unused.
        reserved_words: Reserved<32>,
        /// Of the root tree.
        tree_root_level: Level,
        /// Of the chunk tree.
        chunk_root_level: Level,
        /// Of the extent tree.
        extent_root_level: Level,
        /// Of the top-level subvolume.
        fs_root_level: Level,
        /// Of the device tree.
        device_root_level: Level,
        /// Of the checksum tree.
        checksum_root_level: Level,
        /// Unused.
        reserved_bytes: Reserved<10>,
    }
}

impl<const COUNT: usize> crate::record::Field for [BackupRoot; COUNT] {
    type Raw = [RawBackupRoot; COUNT];
    const INNER: Inner = Inner::Many(BackupRoot::STRUCTURE);
    fn from_raw(raw: &Self::Raw) -> Self {
        raw.each_ref().map(BackupRoot::from_raw)
    }
    fn to_raw(&self) -> Self::Raw {
        self.each_ref().map(BackupRoot::to_raw)
    }
}

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

    /// The 4096 bytes for one mirror: with that location, and with the checksum that `checksum` gives for the bytes
    /// after the checksum field.
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

#[cfg(test)]
mod tests;
