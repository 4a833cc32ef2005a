//! What a superblock must satisfy to be trusted, and to be written (kernel: `btrfs_validate_super`).

use super::{
    MAGIC, SUPERBLOCK_FLAG_ERROR, SUPERBLOCK_FLAG_METADUMP, SUPERBLOCK_FLAG_METADUMP_V2,
    SUPERBLOCK_FLAG_SEEDING, SUPERBLOCK_FLAG_WRITTEN, SYSTEM_CHUNK_ARRAY_SIZE, Superblock, SuperblockMirror,
    SystemArrayFault,
};
use crate::chunk::{BlockGroupFlags, Chunk};
use crate::features::{CompatReadOnlyFeatures, IncompatFeatures};
use crate::key::Key;
use crate::record::{is_aligned, widen_u64};
use crate::types::{Level, Logical, Physical, Uuid};

/// Flags that Linux knows; any other makes it refuse. (Bit 1 is the relocation flag of tree blocks.)
pub const SUPERBLOCK_FLAGS_KNOWN: u64 = SUPERBLOCK_FLAG_WRITTEN
    | 1 << 1
    | SUPERBLOCK_FLAG_ERROR
    | SUPERBLOCK_FLAG_SEEDING
    | SUPERBLOCK_FLAG_METADUMP
    | SUPERBLOCK_FLAG_METADUMP_V2;

/// Sector and node sizes lie between these.
const SMALLEST_SECTOR: u32 = 4096;
const LARGEST_NODE: u32 = 65536;
/// Checksum kinds are 0 to 3.
const LAST_CHECKSUM_TYPE: u16 = 3;

/// How a superblock can be broken.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum SuperblockFault {
    /// Not 4096 bytes.
    #[error("the superblock has {found} bytes instead of 4096")]
    Size {
        /// Bytes given.
        found: usize,
    },
    /// No magic number: this is no Btrfs, or its superblock was overwritten.
    #[error("no Btrfs: the magic number is 0x{found:016x}")]
    Magic {
        /// In its place.
        found: u64,
    },
    /// The stored checksum is not that of the bytes.
    #[error("the superblock's checksum does not match its content")]
    Checksum,
    /// No such checksum kind.
    #[error("unknown checksum kind {found}")]
    ChecksumType {
        /// In the superblock.
        found: u16,
    },
    /// A flag that says that another tool must finish its work first, or an unknown one.
    #[error(
        "the superblock has unknown flags 0x{unknown:x}; an interrupted btrfstune must be finished first"
    )]
    Flags {
        /// The flags not known.
        unknown: u64,
    },
    /// A root's level is above 7.
    #[error("the {root} has level {found}, above 7")]
    RootLevel {
        /// Which root.
        root: &'static str,
        /// In the superblock.
        found: Level,
    },
    /// Not a power of two from 4 KiB to 64 KiB.
    #[error("sector size {found} is not a power of two from 4096 to 65536")]
    SectorSize {
        /// In the superblock.
        found: u32,
    },
    /// Not a power of two from the sector size to 64 KiB.
    #[error("node size {found} is not a power of two from the sector size {sector_size} to 65536")]
    NodeSize {
        /// In the superblock.
        found: u32,
        /// In the superblock.
        sector_size: u32,
    },
    /// The leaf size differs from the node size.
    #[error("leaf size {found} differs from node size {node_size}")]
    LeafSize {
        /// In the superblock.
        found: u32,
        /// In the superblock.
        node_size: u32,
    },
    /// A root lies between sectors.
    #[error("the {root} lies at {found}, which is no multiple of the sector size")]
    RootAlignment {
        /// Which root.
        root: &'static str,
        /// In the superblock.
        found: Logical,
    },
    /// The device item carries another UUID than the file system.
    #[error("the device item belongs to file system {found}, the superblock to {expected}")]
    DeviceFsid {
        /// In the device item.
        found: Uuid,
        /// The file system's (metadata) UUID.
        expected: Uuid,
    },
    /// Feature block-group-tree without those that it needs.
    #[error("feature block-group-tree needs a valid free-space-tree and no-holes")]
    BlockGroupTreeNeeds,
    /// Fewer bytes used than the six trees of an empty file system take.
    #[error("only {found} bytes are used; six tree blocks always are")]
    BytesUsed {
        /// In the superblock.
        found: u64,
    },
    /// Not a power of two.
    #[error("stripe size {found} is not a power of two")]
    StripeSize {
        /// In the superblock.
        found: u32,
    },
    /// No member device.
    #[error("the file system has no device")]
    DeviceCount,
    /// The copy names another place than where it lies.
    #[error("the superblock claims to lie at {found} instead of {expected}")]
    Location {
        /// In the superblock.
        found: Physical,
        /// Where it was read.
        expected: Physical,
    },
    /// The system chunk array.
    #[error(transparent)]
    SystemArray(#[from] SystemArrayFault),
    /// Incompat features that may not be written.
    #[error("incompat features are not supported for writing: {unknown}")]
    WriteIncompat {
        /// Which.
        unknown: IncompatFeatures,
    },
}

impl Superblock {
    /// Checks a superblock that was read from `mirror`. The checksum and the features supported are the caller's to
    /// judge: the first needs the kind's code, the second decides between refusing and opening read-only.
    ///
    /// # Errors
    /// The first rule broken.
    pub fn check_for_read(&self, mirror: SuperblockMirror) -> Result<(), SuperblockFault> {
        let unknown = self.flags & !SUPERBLOCK_FLAGS_KNOWN;
        if self.magic == MAGIC && unknown != 0 {
            return Err(SuperblockFault::Flags { unknown });
        }
        self.check_for_rescue(mirror)
    }

    /// As [`Self::check_for_read`], for `rescue=ignoresuperflags`: flags that are not known count for nothing.
    ///
    /// # Errors
    /// The first rule broken.
    pub fn check_for_rescue(&self, mirror: SuperblockMirror) -> Result<(), SuperblockFault> {
        if self.magic != MAGIC {
            return Err(SuperblockFault::Magic { found: self.magic });
        }
        if self.checksum_type > LAST_CHECKSUM_TYPE {
            return Err(SuperblockFault::ChecksumType { found: self.checksum_type });
        }
        self.check_sizes()?;
        self.check_roots()?;
        self.check_identity(mirror)?;
        self.check_system_array()
    }

    /// Checks a superblock that is about to be written to the primary place: everything of [`Self::check_for_read`],
    /// and no incompat feature that vlinder does not keep right.
    ///
    /// # Errors
    /// The first rule broken.
    pub fn check_for_write(&self) -> Result<(), SuperblockFault> {
        self.check_for_read(SuperblockMirror::Primary)?;
        let unknown = self.incompat.without(IncompatFeatures::SUPPORTED_FOR_WRITING);
        if unknown.is_empty() { Ok(()) } else { Err(SuperblockFault::WriteIncompat { unknown }) }
    }

    fn check_sizes(&self) -> Result<(), SuperblockFault> {
        let (sector_size, node_size) = (self.sector_size, self.node_size);
        if !sector_size.is_power_of_two() || !(SMALLEST_SECTOR..=LARGEST_NODE).contains(&sector_size) {
            return Err(SuperblockFault::SectorSize { found: sector_size });
        }
        if !node_size.is_power_of_two() || !(sector_size..=LARGEST_NODE).contains(&node_size) {
            return Err(SuperblockFault::NodeSize { found: node_size, sector_size });
        }
        if self.leaf_size != node_size {
            return Err(SuperblockFault::LeafSize { found: self.leaf_size, node_size });
        }
        if !self.stripe_size.is_power_of_two() {
            return Err(SuperblockFault::StripeSize { found: self.stripe_size });
        }
        if self.bytes_used < widen_u64(node_size).saturating_mul(6) {
            return Err(SuperblockFault::BytesUsed { found: self.bytes_used });
        }
        Ok(())
    }

    fn check_roots(&self) -> Result<(), SuperblockFault> {
        let roots = [
            ("root tree", self.root, self.root_level),
            ("chunk tree", self.chunk_root, self.chunk_root_level),
            ("log tree", self.log_root, self.log_root_level),
        ];
        for (root, logical, level) in roots {
            if level.index() >= Level::COUNT {
                return Err(SuperblockFault::RootLevel { root, found: level });
            }
            if !is_aligned(logical.0, self.sector_size) {
                return Err(SuperblockFault::RootAlignment { root, found: logical });
            }
        }
        Ok(())
    }

    fn check_identity(&self, mirror: SuperblockMirror) -> Result<(), SuperblockFault> {
        let expected = self.tree_block_uuid();
        if self.device_item.fsid != expected {
            return Err(SuperblockFault::DeviceFsid { found: self.device_item.fsid, expected });
        }
        let needed =
            CompatReadOnlyFeatures::FREE_SPACE_TREE.with(CompatReadOnlyFeatures::FREE_SPACE_TREE_VALID);
        if self.compat_read_only.has(CompatReadOnlyFeatures::BLOCK_GROUP_TREE)
            && !(self.compat_read_only.has(needed) && self.incompat.has(IncompatFeatures::NO_HOLES))
        {
            return Err(SuperblockFault::BlockGroupTreeNeeds);
        }
        if self.device_count == 0 {
            return Err(SuperblockFault::DeviceCount);
        }
        if self.location != mirror.offset() {
            return Err(SuperblockFault::Location { found: self.location, expected: mirror.offset() });
        }
        Ok(())
    }

    fn check_system_array(&self) -> Result<(), SuperblockFault> {
        let smallest = Key::SIZE.saturating_add(Chunk::size(1));
        let size = self.system_array_size;
        if !usize::try_from(size).is_ok_and(|size| (smallest..=SYSTEM_CHUNK_ARRAY_SIZE).contains(&size)) {
            return Err(SystemArrayFault::Size { found: size }.into());
        }
        let mixed = self.incompat.has(IncompatFeatures::MIXED_GROUPS);
        for entry in self.system_chunks() {
            let (logical, chunk) = entry?;
            if !chunk.flags.has(BlockGroupFlags::SYSTEM) {
                return Err(SystemArrayFault::NotSystem { logical }.into());
            }
            chunk
                .check(logical, self.sector_size, mixed)
                .map_err(|source| SystemArrayFault::Chunk { logical, source })?;
        }
        Ok(())
    }
}
