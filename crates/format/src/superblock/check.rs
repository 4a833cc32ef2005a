//! What a superblock must satisfy to be trusted, and to be written (kernel: `btrfs_validate_super`).

use super::fault::SuperblockFault;
use super::flags::SUPERBLOCK_FLAGS_KNOWN;
use super::mirror::SuperblockMirror;
use super::record::{MAGIC, Superblock};
use super::system_array::{SYSTEM_CHUNK_ARRAY_SIZE, SystemArrayFault};
use crate::chunk::{BlockGroupFlags, Chunk};
use crate::features::{CompatReadOnlyFeatures, IncompatFeatures};
use crate::key::Key;
use crate::record::{is_aligned, widen_u64};
use crate::types::Level;

/// Sector and node sizes lie between these.
const SMALLEST_SECTOR: u32 = 4096;
const LARGEST_NODE: u32 = 65536;
/// Checksum kinds are 0 to 3.
const LAST_CHECKSUM_TYPE: u16 = 3;

impl Superblock {
    /// Checks a superblock that was read from `mirror`. The checksum and the features supported are the
    /// caller's to judge: the first needs the kind's code, the second decides between refusing and opening
    /// read-only.
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

    /// As [`Self::check_for_read`], for `rescue=ignoresuperflags`: flags that are not known count for
    /// nothing.
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

    /// Checks a superblock that is about to be written to the primary place: everything of
    /// [`Self::check_for_read`], and no incompat feature that vlinder does not keep right.
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
