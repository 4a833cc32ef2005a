//! An empty file system as bytes: a pure function from [`MkfsParameters`] to what must be written where.
//!
//! Chunks lie where `mkfs.btrfs` 6.2 puts them ([`layout`]); each tree is built in one piece by packing its
//! items ([`trees`], [`packing`], [`blocks`]). Everything is of generation 1. The same parameters give the
//! same bytes.
//!
//! Unlike `mkfs.btrfs` there are no remnants of chunks that only mkfs needed, and the UUID tree is marked as
//! complete, so that Linux does not look through it at the first mount.

mod blocks;
mod image;
mod layout;
mod packing;
mod parameter_error;
mod parameters;
mod superblock;
mod trees;

pub(super) use blocks::Sealing;
pub use image::Image;
pub(super) use layout::{Layout, chunk_at, too_small};
pub(super) use packing::{Items, Packing, PlannedBlock};
pub use parameter_error::ParameterError;
pub use parameters::{FIRST_GENERATION, MkfsFeatures, MkfsParameters, MkfsUuids};
pub(super) use superblock::{copies, moved};
pub(super) use trees::{chunk_items, device_extents, tree_block_item};

/// Makes an empty file system.
///
/// # Errors
/// Parameters that do not fit together.
pub fn make(parameters: &MkfsParameters) -> Result<Image, ParameterError> {
    parameters.check()?;
    Ok(make_in(parameters, &layout::Layout::plan(parameters)?))
}

/// Makes an empty file system of parameters that fit together, in chunks that were decided before.
pub(super) fn make_in(parameters: &MkfsParameters, layout: &Layout) -> Image {
    let forest = trees::Forest::plant(parameters, layout);
    let blocks = blocks::encode(parameters, layout, &forest);
    let (superblock, superblocks) = superblock::make(parameters, layout, &forest);
    Image { blocks, superblocks, superblock }
}

/// The shortest device for these parameters: what `mkfs.btrfs` demands, or more where its own chunks would
/// not fit.
///
/// # Errors
/// Parameters that do not fit together.
pub fn smallest_device(parameters: &MkfsParameters) -> Result<u64, ParameterError> {
    parameters.check()?;
    Ok(layout::smallest_device(parameters))
}

#[cfg(test)]
mod tests;
