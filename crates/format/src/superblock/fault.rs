//! What can be wrong with a superblock.

use super::system_array::SystemArrayFault;
use crate::features::IncompatFeatures;
use crate::types::{Level, Logical, Physical, Uuid};

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
