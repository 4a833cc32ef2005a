//! What is the same for all chunks of a file system.

use vlinder_codec::checksum::ChecksumKind;
use vlinder_format::features::IncompatFeatures;
use vlinder_format::superblock::{Superblock, SuperblockFault};

/// The sizes and the checksum kind of a file system.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Geometry {
    /// Bytes of a sector.
    pub sector_size: u32,
    /// Bytes of a tree block.
    pub node_size: u32,
    /// Kind of every checksum.
    pub checksum_kind: ChecksumKind,
    /// Whether data and metadata may share chunks.
    pub mixed_groups: bool,
}

impl Geometry {
    /// That of a superblock.
    ///
    /// # Errors
    /// [`SuperblockFault::ChecksumType`].
    pub fn of(superblock: &Superblock) -> Result<Self, SuperblockFault> {
        let found = superblock.checksum_type;
        Ok(Self {
            sector_size: superblock.sector_size,
            node_size: superblock.node_size,
            checksum_kind: ChecksumKind::from_disk(found).ok_or(SuperblockFault::ChecksumType { found })?,
            mixed_groups: superblock.incompat.has(IncompatFeatures::MIXED_GROUPS),
        })
    }
}
