//! The least image of a file system that was filled.
//!
//! Its data lie where they stay, its metadata in a scratch file (`build_layout`). When all is there, every
//! tree is written once more, in full leaves, behind the data, into chunks as long as that needs
//! (`least_layout`). Trees of files, checksums and UUIDs keep their items; what tells of addresses of tree
//! blocks and chunks is made anew (`sources`). The extent tree has an item for each block, its own
//! included, so the image is planned again with the blocks that the last plan needed, until nothing changes.

mod build_layout;
mod data_groups;
mod least_layout;
mod sources;
mod writing;

use std::collections::BTreeMap;

use vlinder_device::Device;
use vlinder_format::chunk::STRIPE_LENGTH;
use vlinder_format::superblock::Superblock;
use vlinder_format::{Physical, RootId};
use vlinder_fs::Filesystem;

use super::error::MkfsError;
use super::raw::{self, MkfsParameters, PlannedBlock};
use data_groups::DataGroup;
use least_layout::{Blocks, LeastLayout, least_layout};
use sources::{Filled, PlannedTree};

pub(super) use build_layout::{SCRATCH_BYTES, build_layout, build_parameters, data_end};

/// Groups of metadata keep so many tree blocks free, with which Linux goes on in a full file system: twice
/// what `rm -r` of a quarter of 20,000 files was seen to need (docs/design/mkfs.md).
const FREE_BLOCKS: u64 = 48;
/// Beside these, one free block for this many blocks of metadata.
const FREE_PART: u64 = 64;

/// Tree blocks that Linux wants free before it makes a file: its global reserve, 5.5 MiB with nodes of 16
/// KiB, and what it charges for a name and for data that wait (9.5 MiB were enough).
const WRITER_BLOCKS: u64 = 640;
/// Groups of system chunks get this part of the room, up to as long as `mkfs.btrfs` makes the first. For each
/// chunk of a transaction Linux wants 24 blocks free in them (`check_system_chunk`), else it makes another of
/// 32 MiB.
const SYSTEM_PART: u64 = 64;
const MOST_SYSTEM_BYTES: u64 = 8 << 20;

/// After this many plans, each further one leaves more room than the last, so that planning ends.
const ROUNDS: u64 = 8;

/// Where everything of an image lies.
struct Plan<'a> {
    filled: Filled<'a>,
    place: LeastLayout,
    trees: BTreeMap<RootId, PlannedTree>,
}

/// The layout of an image of `total_bytes`, which has room for the least one.
fn layout_of_size(
    parameters: &MkfsParameters,
    data: &[DataGroup],
    blocks: &Blocks,
    least: LeastLayout,
    total_bytes: u64,
) -> LeastLayout {
    let room = total_bytes.saturating_sub(least.layout.total_bytes);
    let mut place = least_layout(parameters, data, &with_room(blocks, parameters, room));
    // Where a longer chunk comes to lie over a superblock copy, it may need more than the room.
    if place.layout.total_bytes > total_bytes {
        place = least;
    }
    place.layout.total_bytes = total_bytes.max(place.layout.total_bytes);
    place
}

/// The blocks of an image with so much room beside its least size, in which Linux is to write. Its global
/// reserve, which is counted as used, takes all that small groups of metadata and small chunks to come have
/// free; so a part of the room is theirs from the beginning. Where they are too small, Linux makes chunks
/// that are much longer than it needs.
fn with_room(blocks: &Blocks, parameters: &MkfsParameters, room: u64) -> Blocks {
    let copies = u64::from(parameters.metadata_profile.copies());
    // Rounded down, so that what the layout rounds up still fits.
    let whole = |bytes: u64| bytes / STRIPE_LENGTH * STRIPE_LENGTH;
    let metadata = (WRITER_BLOCKS * u64::from(parameters.node_size)).min(room / 4 * 3 / copies);
    let system = (room / SYSTEM_PART).min(MOST_SYSTEM_BYTES);
    Blocks {
        free_bytes: blocks.free_bytes + whole(metadata),
        free_system_bytes: blocks.free_system_bytes + whole(system),
        ..*blocks
    }
}

/// The superblock copies of a finished image, by place, the primary last, and its size.
pub(super) struct Superblocks {
    pub(super) copies: Vec<(Physical, Vec<u8>)>,
    pub(super) size_bytes: u64,
}

/// Makes the least image of a filled file system, of which everything is committed, on the device on which it
/// was filled. `size` says how long the file system becomes whose chunks take so many bytes. Until the
/// superblocks are written, the device has the file system as it was filled.
///
/// # Errors
/// Those of `size`; what the trees and the device met.
pub(super) fn compact(
    filesystem: &Filesystem,
    parameters: &MkfsParameters,
    device: &dyn Device,
    size: &dyn Fn(u64) -> Result<u64, MkfsError>,
) -> Result<Superblocks, MkfsError> {
    let plan = Plan::new(filesystem, parameters, size)?;
    let superblock = plan.superblock();
    let chunks = &plan.place.layout.chunks;
    for group in &plan.filled.data {
        writing::move_second_copy(group, chunks, device)?;
    }
    writing::write_trees(&plan.filled, &plan.trees, chunks, superblock.features(), device)?;
    let size_bytes = superblock.total_bytes;
    Ok(Superblocks { copies: raw::copies(parameters, &superblock), size_bytes })
}

impl<'a> Plan<'a> {
    fn new(
        filesystem: &'a Filesystem,
        parameters: &'a MkfsParameters,
        size: &dyn Fn(u64) -> Result<u64, MkfsError>,
    ) -> Result<Self, MkfsError> {
        let filled = Filled::new(filesystem, parameters)?;
        let mut trees = filled.unchanged_trees()?;
        let mut rounds = 0_u64;
        loop {
            let mut blocks = count(&trees, parameters.node_size);
            // Where a longer chunk lies over a superblock copy, free space has an item more, and could have a
            // leaf more and less in turn.
            blocks.free_bytes += rounds.saturating_sub(ROUNDS) * STRIPE_LENGTH;
            rounds += 1;
            let least = least_layout(parameters, &filled.data, &blocks);
            let total_bytes = size(least.layout.total_bytes)?;
            let place = layout_of_size(parameters, &filled.data, &blocks, least, total_bytes);
            put(&mut trees, &place);
            let mut is_settled = true;
            for (root, source) in filled.made_trees(&trees, &place) {
                let blocks = source.pack(filesystem, parameters.node_size)?;
                is_settled &= trees.get(&root).is_some_and(|last| same_shape(&last.blocks, &blocks));
                let tree = trees
                    .entry(root)
                    .or_insert_with(|| PlannedTree { source: source.clone(), blocks: Vec::new() });
                tree.source = source;
                if !is_settled {
                    tree.blocks = blocks;
                }
            }
            if is_settled {
                return Ok(Self { filled, place, trees });
            }
        }
    }

    fn superblock(&self) -> Superblock {
        let Self { filled, place, trees } = self;
        let root = |id: RootId| {
            let block = trees.get(&id).and_then(|tree| tree.blocks.last());
            let block = block.expect("every file system has these trees");
            (block.logical, block.level)
        };
        let blocks = trees.values().map(|tree| u64::try_from(tree.blocks.len()).unwrap_or(u64::MAX));
        let data: u64 = filled.data.iter().map(|group| group.used_bytes).sum();
        let bytes_used = data + blocks.sum::<u64>() * u64::from(filled.parameters.node_size);
        let built = filled.filesystem.engine().superblock();
        raw::moved(filled.parameters, &place.layout, built, &root, bytes_used)
    }
}

fn count(trees: &BTreeMap<RootId, PlannedTree>, node_size: u32) -> Blocks {
    let mut blocks = Blocks { system: 0, metadata: 0, free_bytes: 0, free_system_bytes: 0 };
    for (root, tree) in trees {
        let count = u64::try_from(tree.blocks.len()).unwrap_or(u64::MAX);
        *(if *root == RootId::CHUNK_TREE { &mut blocks.system } else { &mut blocks.metadata }) += count;
    }
    blocks.free_bytes = (FREE_BLOCKS + blocks.metadata / FREE_PART) * u64::from(node_size);
    blocks
}

/// Gives every block its address, tree by tree.
fn put(trees: &mut BTreeMap<RootId, PlannedTree>, place: &LeastLayout) {
    let mut system = place.system_places.iter();
    let mut metadata = place.metadata_places.iter();
    for (root, tree) in trees {
        let places = if *root == RootId::CHUNK_TREE { &mut system } else { &mut metadata };
        for (block, logical) in tree.blocks.iter_mut().zip(places) {
            block.logical = *logical;
        }
    }
}

/// Whether two trees have the same blocks but for their addresses.
fn same_shape(last: &[PlannedBlock], next: &[PlannedBlock]) -> bool {
    let one = |block: &PlannedBlock| (block.level, block.first_key, block.content.clone());
    last.iter().map(one).eq(next.iter().map(one))
}
