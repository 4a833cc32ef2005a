//! What a new file system is to be, as values.

use vlinder_codec::checksum::ChecksumKind;
use vlinder_format::features::{CompatReadOnlyFeatures, IncompatFeatures};
use vlinder_format::inode::Timestamp;
use vlinder_format::superblock::Label;
use vlinder_format::{Generation, Uuid};
use vlinder_volume::Profile;

use super::parameter_error::ParameterError;

/// The generation of everything in a new file system.
pub const FIRST_GENERATION: Generation = Generation(1);

/// The UUIDs of a new file system.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MkfsUuids {
    /// Of the file system.
    pub fsid: Uuid,
    /// Of the chunk tree.
    pub chunk_tree: Uuid,
    /// Of the device.
    pub device: Uuid,
    /// Of the top-level subvolume.
    pub top_level: Uuid,
}

/// The features that can be chosen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MkfsFeatures {
    /// Names of an inode may overflow into extended references.
    pub extref: bool,
    /// Tree blocks have metadata items.
    pub skinny_metadata: bool,
    /// Holes have no items.
    pub no_holes: bool,
    /// Free space has a tree.
    pub free_space_tree: bool,
    /// Block groups have a tree; needs `no_holes` and `free_space_tree`.
    pub block_group_tree: bool,
    /// Data and metadata share chunks; needs one profile for both, and nodes of one sector.
    pub mixed_groups: bool,
}

impl Default for MkfsFeatures {
    /// Those of btrfs-progs 6.19.
    fn default() -> Self {
        Self {
            extref: true,
            skinny_metadata: true,
            no_holes: true,
            free_space_tree: true,
            block_group_tree: true,
            mixed_groups: false,
        }
    }
}

impl MkfsFeatures {
    /// As the superblock has them.
    pub fn incompat(&self) -> IncompatFeatures {
        let choices = [
            (self.extref, IncompatFeatures::EXTENDED_IREF),
            (self.skinny_metadata, IncompatFeatures::SKINNY_METADATA),
            (self.no_holes, IncompatFeatures::NO_HOLES),
            (self.mixed_groups, IncompatFeatures::MIXED_GROUPS),
        ];
        let chosen = choices.into_iter().filter(|(on, _)| *on);
        chosen.fold(IncompatFeatures::MIXED_BACKREF, |all, (_, feature)| all.with(feature))
    }

    /// As the superblock has them.
    pub fn compat_read_only(&self) -> CompatReadOnlyFeatures {
        let tree =
            CompatReadOnlyFeatures::FREE_SPACE_TREE.with(CompatReadOnlyFeatures::FREE_SPACE_TREE_VALID);
        let choices =
            [(self.free_space_tree, tree), (self.block_group_tree, CompatReadOnlyFeatures::BLOCK_GROUP_TREE)];
        let chosen = choices.into_iter().filter(|(on, _)| *on);
        chosen.fold(CompatReadOnlyFeatures::NONE, |all, (_, feature)| all.with(feature))
    }
}

/// All that a new file system is made of.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MkfsParameters {
    /// Its name.
    pub label: Label,
    /// Its UUIDs.
    pub uuids: MkfsUuids,
    /// Bytes of the device; what is left over after the last whole sector is not used.
    pub device_bytes: u64,
    /// Bytes of a sector.
    pub sector_size: u32,
    /// Bytes of a tree block.
    pub node_size: u32,
    /// Kind of every checksum.
    pub checksum_kind: ChecksumKind,
    /// Of data: single or DUP.
    pub data_profile: Profile,
    /// Of metadata and system: single or DUP.
    pub metadata_profile: Profile,
    /// Features.
    pub features: MkfsFeatures,
    /// When the top-level directory was made.
    pub time: Timestamp,
}

impl MkfsParameters {
    /// Whether they fit together.
    pub(super) fn check(&self) -> Result<(), ParameterError> {
        let MkfsParameters { sector_size, node_size, data_profile, metadata_profile, features, .. } = *self;
        let power_between = |value: u32, least| value.is_power_of_two() && (least..=65536).contains(&value);
        if !power_between(sector_size, 4096) {
            return Err(ParameterError::SectorSize { found: sector_size });
        }
        if !power_between(node_size, sector_size) {
            return Err(ParameterError::NodeSize { found: node_size, sector_size });
        }
        for found in [data_profile, metadata_profile] {
            if !found.is_writable() {
                return Err(ParameterError::Profile { found });
            }
        }
        if features.mixed_groups && data_profile != metadata_profile {
            return Err(ParameterError::MixedProfiles { data: data_profile, metadata: metadata_profile });
        }
        if features.mixed_groups && node_size != sector_size {
            return Err(ParameterError::MixedNodeSize { node_size, sector_size });
        }
        if features.block_group_tree && !(features.free_space_tree && features.no_holes) {
            return Err(ParameterError::BlockGroupTreeNeeds);
        }
        Ok(())
    }
}
