//! An empty file system as bytes: a pure function from [`MkfsParameters`] to what must be written where.
//!
//! Chunks lie where `mkfs.btrfs` 6.2 puts them ([`layout`]); each tree is built in one piece by packing its items
//! ([`trees`], [`blocks`]). Everything is of generation 1. The same parameters give the same bytes.
//!
//! Unlike `mkfs.btrfs` there are no remnants of chunks that only mkfs needed, and the UUID tree is marked as complete,
//! so that Linux does not look through it at the first mount.

mod blocks;
mod layout;
mod superblock;
mod trees;

use vlinder_base::units::Physical;
use vlinder_codec::checksum::ChecksumKind;
use vlinder_device::{Device, DeviceError, DeviceExt, Request};
use vlinder_format::features::{CompatReadOnlyFeatures, IncompatFeatures};
use vlinder_format::inode::Timestamp;
use vlinder_format::superblock::{Label, Superblock, SuperblockMirror};
use vlinder_format::{Generation, Uuid};
use vlinder_volume::Profile;

/// The generation of everything in a new file system.
pub const FIRST_GENERATION: Generation = Generation(1);
/// Bytes at each end of a device that are cleared, so that no other file system is recognised there.
const CLEARED_BYTES: u64 = 2 << 20;

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

/// What can't be made.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ParameterError {
    /// The device is too short for its chunks.
    #[error(
        "{found} bytes are too few for data {data}, metadata {metadata}: {} are needed; {}",
        in_mebibytes(*.needed),
        advice(.smaller, *.found)
    )]
    DeviceTooSmall {
        /// Bytes of the device.
        found: u64,
        /// Bytes that are needed.
        needed: u64,
        /// Of data.
        data: Profile,
        /// Of metadata.
        metadata: Profile,
        /// Options of `mkfs` with which fewer bytes are enough, and how many, most first.
        smaller: Vec<(&'static str, u64)>,
    },
    /// Not a power of two from 4 KiB to 64 KiB.
    #[error("sector size {found} is not a power of two from 4096 to 65536")]
    SectorSize {
        /// Given.
        found: u32,
    },
    /// Not a power of two from the sector size to 64 KiB.
    #[error("node size {found} is not a power of two from the sector size {sector_size} to 65536")]
    NodeSize {
        /// Given.
        found: u32,
        /// Given.
        sector_size: u32,
    },
    /// Only single and DUP can be made.
    #[error("profile {found} needs several devices, which is not supported yet; use single or DUP")]
    Profile {
        /// Given.
        found: Profile,
    },
    /// Mixed groups have one profile.
    #[error("mixed groups need the same profile for data ({data}) and metadata ({metadata})")]
    MixedProfiles {
        /// Given.
        data: Profile,
        /// Given.
        metadata: Profile,
    },
    /// In mixed groups a tree block is as large as a sector.
    #[error("mixed groups need a node size equal to the sector size {sector_size}, not {node_size}")]
    MixedNodeSize {
        /// Given.
        node_size: u32,
        /// Given.
        sector_size: u32,
    },
    /// block-group-tree without what it needs.
    #[error("feature block-group-tree needs free-space-tree and no-holes")]
    BlockGroupTreeNeeds,
}

/// A new file system: what to write where. The rest of the device is not looked at, but see [`Image::write_to`].
#[derive(Clone, Debug)]
pub struct Image {
    /// Every copy of every tree block, by place on the device.
    pub blocks: Vec<(Physical, Vec<u8>)>,
    /// Every superblock copy, the primary last.
    pub superblocks: Vec<(Physical, Vec<u8>)>,
    /// The superblock as a value.
    pub superblock: Superblock,
}

/// Makes an empty file system.
///
/// # Errors
/// Parameters that do not fit together.
pub fn make(parameters: &MkfsParameters) -> Result<Image, ParameterError> {
    check(parameters)?;
    let layout = layout::Layout::plan(parameters)?;
    let forest = trees::Forest::plant(parameters, &layout);
    let blocks = blocks::encode(parameters, &layout, &forest);
    let (superblock, superblocks) = superblock::make(parameters, &layout, &forest);
    Ok(Image { blocks, superblocks, superblock })
}

/// Whole MiB, and bytes where that is not exact.
fn in_mebibytes(bytes: u64) -> String {
    match (bytes >> 20, bytes % (1 << 20)) {
        (whole, 0) => format!("{whole} MiB"),
        _ => format!("{bytes} bytes"),
    }
}

/// What to do about a size that is too small: the options with which it would do, or how far it is from the least.
fn advice(smaller: &[(&'static str, u64)], found: u64) -> String {
    let enough: Vec<&str> =
        smaller.iter().filter(|(_, needed)| *needed <= found).map(|(option, _)| *option).collect();
    match smaller.last() {
        _ if !enough.is_empty() => format!("give more, or {}", enough.join(" or ")),
        Some((option, needed)) => format!("give more (with {option}, {} are enough)", in_mebibytes(*needed)),
        None => "give more".to_owned(),
    }
}

/// That a device is too short for these parameters, with the options that need less.
pub(super) fn too_small(parameters: &MkfsParameters, found: u64, needed: u64) -> ParameterError {
    let (data, metadata) = (parameters.data_profile, parameters.metadata_profile);
    let (single, mixed) = (Profile::Single, parameters.features.mixed_groups);
    let with = |data_profile, metadata_profile, mixed_groups| {
        let features = MkfsFeatures { mixed_groups, ..parameters.features };
        let node_size = if mixed_groups { parameters.sector_size } else { parameters.node_size };
        MkfsParameters { data_profile, metadata_profile, features, node_size, ..parameters.clone() }
    };
    let mut choices =
        vec![("-d single -m single", with(single, single, mixed)), ("--mixed", with(single, single, true))];
    if !mixed {
        choices.insert(0, ("-m single", with(data, single, false)));
        choices.insert(0, ("-d single", with(single, metadata, false)));
    }
    let mut smaller: Vec<(&'static str, u64)> = Vec::new();
    for (option, other) in choices {
        let size = layout::smallest_device(&other);
        if size < smaller.last().map_or(needed, |(_, least)| *least) {
            smaller.push((option, size));
        }
    }
    ParameterError::DeviceTooSmall { found, needed, data, metadata, smaller }
}

/// The shortest device for these parameters: what `mkfs.btrfs` demands, or more where its own chunks would not fit.
///
/// # Errors
/// Parameters that do not fit together.
pub fn smallest_device(parameters: &MkfsParameters) -> Result<u64, ParameterError> {
    check(parameters)?;
    Ok(layout::smallest_device(parameters))
}

impl Image {
    /// Writes the file system to a device: first clears the superblock copies and both ends, so that a cut leaves no
    /// other file system to be found, and writes the new superblocks last.
    ///
    /// # Errors
    /// The device's; the device then has no file system.
    pub fn write_to(&self, device: &dyn Device) -> Result<(), DeviceError> {
        self.write_blocks_to(device)?;
        for (place, bytes) in &self.superblocks {
            device.write_at(*place, bytes.clone())?;
        }
        device.flush()
    }

    /// As [`write_to`](Self::write_to), without the new superblocks.
    ///
    /// # Errors
    /// As there.
    pub fn write_blocks_to(&self, device: &dyn Device) -> Result<(), DeviceError> {
        let length = device.length();
        let end = length.saturating_sub(CLEARED_BYTES);
        let ends = [(0, CLEARED_BYTES.min(length)), (end, length - end)];
        let zeros = |length: u64| vec![0; usize::try_from(length).unwrap_or(0)];
        let mut clear: Vec<Request> =
            ends.iter().map(|(start, length)| Request::write(Physical(*start), zeros(*length))).collect();
        // All that the device has, beyond the file system too: a copy of an older one says where its blocks were.
        let mirrors = SuperblockMirror::ALL.into_iter().filter(|mirror| mirror.fits(length));
        let superblock_bytes = u64::try_from(Superblock::SIZE).unwrap_or(0);
        clear.extend(mirrors.map(|mirror| Request::write(mirror.offset(), zeros(superblock_bytes))));
        for request in clear {
            device.one(request)?;
        }
        device.flush()?;
        let blocks = self.blocks.iter().map(|(place, bytes)| Request::write(*place, bytes.clone())).collect();
        device.submit(blocks).wait_all()?;
        device.flush()
    }
}

fn check(parameters: &MkfsParameters) -> Result<(), ParameterError> {
    let MkfsParameters { sector_size, node_size, data_profile, metadata_profile, features, .. } = *parameters;
    let power_between = |value: u32, least| value.is_power_of_two() && (least..=65536).contains(&value);
    if !power_between(sector_size, 4096) {
        return Err(ParameterError::SectorSize { found: sector_size });
    }
    if !power_between(node_size, sector_size) {
        return Err(ParameterError::NodeSize { found: node_size, sector_size });
    }
    for found in [data_profile, metadata_profile] {
        if !matches!(found, Profile::Single | Profile::Dup) {
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

#[cfg(test)]
mod tests;
