//! Where the chunks of a finished image lie: as a pure function of what they hold.
//!
//! ```text
//! device:   | 1 MiB | data | system | metadata |
//! logical:  | system | metadata |      | data |
//! ```
//! Data lie where they were written while the image was filled; the last of their chunks is cut behind its
//! last extent. The other chunks follow. In mixed groups tree blocks lie behind the data in the last chunk of
//! data. Every chunk is a multiple of 64 KiB, the stripe length, which Linux and btrfs-progs rely on.

use vlinder_format::chunk::{BlockGroupFlags, Profile, STRIPE_LENGTH};
use vlinder_format::superblock::SuperblockMirror;
use vlinder_format::{Logical, Physical};
use vlinder_volume::MappedChunk;

use super::build_layout::FIRST_BYTE;
use super::data_groups::DataGroup;
use crate::mkfs::raw::{Layout, MkfsParameters, chunk_at};

/// The longest chunk of metadata, as Linux has it on large file systems.
const LONGEST_METADATA: u64 = 1 << 30;
/// System groups keep room for so many tree blocks beside twice those that are there: Linux and vlinder
/// change the chunk tree only where a path of it finds room, with splits.
const FREE_SYSTEM_BLOCKS: u64 = 30;

/// What the image holds beside its data.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Blocks {
    /// Of the chunk tree.
    pub(super) system: u64,
    /// Of all other trees.
    pub(super) metadata: u64,
    /// Bytes that the groups of metadata keep free.
    pub(super) free_bytes: u64,
    /// Bytes that the system group keeps free beyond what it needs to be changed.
    pub(super) free_system_bytes: u64,
}

/// The chunks, and the places of all tree blocks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct LeastLayout {
    /// By logical address; as long as the last chunk's end.
    pub(super) layout: Layout,
    /// Of tree blocks of the chunk tree, in their order.
    pub(super) system_places: Vec<Logical>,
    /// Of all other tree blocks.
    pub(super) metadata_places: Vec<Logical>,
}

/// Plans an image.
pub(super) fn least_layout(parameters: &MkfsParameters, data: &[DataGroup], blocks: &Blocks) -> LeastLayout {
    let mut placer = ChunkPlacer { parameters, chunks: Vec::new(), physical: FIRST_BYTE };
    let is_mixed = parameters.features.mixed_groups;
    let node_bytes = u64::from(parameters.node_size);
    let mut metadata_places = Vec::new();
    for (number, group) in data.iter().enumerate() {
        let is_last = number + 1 == data.len();
        if is_mixed && is_last {
            metadata_places = placer.add_mixed_tail(group, blocks);
        } else {
            placer.add_data(group, is_last);
        }
    }
    let system_bytes = ((2 * blocks.system + FREE_SYSTEM_BLOCKS) * node_bytes + blocks.free_system_bytes)
        .next_multiple_of(STRIPE_LENGTH);
    let system = placer.add(BlockGroupFlags::SYSTEM, FIRST_BYTE, system_bytes);
    let system_places = places(&system, system.logical, blocks.system, node_bytes);
    if metadata_places.is_empty() {
        metadata_places = placer.add_metadata(system.end(), data, blocks);
    }
    let ends = placer
        .chunks
        .iter()
        .flat_map(|chunk| chunk.chunk.stripes.iter().map(|stripe| stripe.physical.0 + chunk.chunk.length));
    let total_bytes = ends.max().unwrap_or(FIRST_BYTE);
    placer.chunks.sort_by_key(|chunk| chunk.logical);
    LeastLayout { layout: Layout { chunks: placer.chunks, total_bytes }, system_places, metadata_places }
}

struct ChunkPlacer<'a> {
    parameters: &'a MkfsParameters,
    chunks: Vec<MappedChunk>,
    /// Behind all chunks on the device.
    physical: u64,
}

impl ChunkPlacer<'_> {
    fn node_bytes(&self) -> u64 {
        u64::from(self.parameters.node_size)
    }

    fn push(&mut self, chunk: MappedChunk) {
        let end = |stripe: &vlinder_format::chunk::Stripe| stripe.physical.0 + chunk.chunk.length;
        self.physical = chunk.chunk.stripes.iter().map(end).max().unwrap_or(0).max(self.physical);
        self.chunks.push(chunk);
    }

    /// A chunk of tree blocks behind all others.
    fn add(&mut self, content: BlockGroupFlags, logical: u64, length: u64) -> MappedChunk {
        let profile = self.parameters.metadata_profile;
        let physical = Physical(self.physical);
        let chunk = chunk_at(self.parameters, content, profile, Logical(logical), physical, length);
        self.push(chunk.clone());
        chunk
    }

    fn add_data(&mut self, group: &DataGroup, is_last: bool) {
        let length = if is_last { group.least_length() } else { group.chunk.chunk.length };
        let content = self.data_content();
        let chunk = resized(self.parameters, group, content, length);
        self.push(chunk);
    }

    fn data_content(&self) -> BlockGroupFlags {
        if self.parameters.features.mixed_groups {
            BlockGroupFlags::DATA.with(BlockGroupFlags::METADATA)
        } else {
            BlockGroupFlags::DATA
        }
    }

    /// The last chunk of mixed groups, with all tree blocks behind its data.
    fn add_mixed_tail(&mut self, group: &DataGroup, blocks: &Blocks) -> Vec<Logical> {
        let node_bytes = self.node_bytes();
        let used = group.end.0 - group.chunk.logical.0;
        let needed = used + blocks.metadata * node_bytes + blocks.free_bytes;
        let mut length = needed.next_multiple_of(STRIPE_LENGTH);
        loop {
            let chunk = resized(self.parameters, group, self.data_content(), length);
            let start = Logical(group.end.0.next_multiple_of(node_bytes));
            let found = places(&chunk, start, blocks.metadata, node_bytes);
            if has_room(&chunk, &found, blocks) {
                self.push(chunk);
                return found;
            }
            length += STRIPE_LENGTH;
        }
    }

    /// Chunks of metadata from `logical` on, or behind the data where there is no room in front of them.
    fn add_metadata(&mut self, logical: Logical, data: &[DataGroup], blocks: &Blocks) -> Vec<Logical> {
        let node_bytes = self.node_bytes();
        let content = if self.parameters.features.mixed_groups {
            self.data_content()
        } else {
            BlockGroupFlags::METADATA
        };
        let first_data = data.iter().map(|group| group.chunk.logical).min();
        let about = (blocks.metadata * node_bytes + blocks.free_bytes) * 2 + LONGEST_METADATA;
        let mut logical = match first_data {
            Some(first) if logical.0 + about > first.0 => data[data.len() - 1].chunk.end().0,
            _ => logical.0.next_multiple_of(node_bytes.max(STRIPE_LENGTH)),
        };
        let mut found: Vec<Logical> = Vec::new();
        loop {
            let missing = blocks.metadata - u64::try_from(found.len()).unwrap_or(u64::MAX);
            let mut length = (missing * node_bytes + blocks.free_bytes)
                .next_multiple_of(STRIPE_LENGTH)
                .min(LONGEST_METADATA);
            loop {
                let profile = self.parameters.metadata_profile;
                let place = Physical(self.physical);
                let chunk = chunk_at(self.parameters, content, profile, Logical(logical), place, length);
                let here = places(&chunk, chunk.logical, missing, node_bytes);
                let rest = Blocks { metadata: missing, ..*blocks };
                let is_enough = has_room(&chunk, &here, &rest);
                if is_enough || length >= LONGEST_METADATA {
                    found.extend(here);
                    logical = chunk.end().0;
                    self.push(chunk);
                    if is_enough {
                        return found;
                    }
                    break;
                }
                length += STRIPE_LENGTH;
            }
        }
    }
}

/// Whether these places are all that are needed, and what is to stay free does.
fn has_room(chunk: &MappedChunk, places: &[Logical], blocks: &Blocks) -> bool {
    let Some(last) = places.last() else { return blocks.metadata == 0 };
    let excluded = chunk.superblock_ranges().into_iter().filter(|range| range.start > *last);
    let excluded: u64 = excluded.map(|range| range.end.0 - range.start.0).sum();
    u64::try_from(places.len()).unwrap_or(0) == blocks.metadata
        && chunk.end().0 - last.0 >= blocks.free_bytes + excluded
}

/// The first `count` places of tree blocks in a chunk from `start` on, apart from superblock copies; fewer
/// where it has no more.
fn places(chunk: &MappedChunk, start: Logical, count: u64, node_bytes: u64) -> Vec<Logical> {
    let excluded = chunk.superblock_ranges();
    let last = chunk.end().0;
    let mut found = Vec::new();
    let mut next = start.0;
    while u64::try_from(found.len()).unwrap_or(u64::MAX) < count && next + node_bytes <= last {
        let hit = excluded.iter().find(|range| next < range.end.0 && range.start.0 < next + node_bytes);
        match hit {
            Some(range) => next = range.end.0.next_multiple_of(node_bytes),
            None => {
                found.push(Logical(next));
                next += node_bytes;
            }
        }
    }
    found
}

/// The chunk of a data group with another length. Its first copy stays where it is; the second of a cut chunk
/// lies behind the first, and where the device has a superblock copy there, behind that: the group was filled
/// without a thought of it.
fn resized(
    parameters: &MkfsParameters,
    group: &DataGroup,
    content: BlockGroupFlags,
    length: u64,
) -> MappedChunk {
    let MappedChunk { logical, ref chunk, profile } = group.chunk;
    let first = chunk.stripes[0].physical;
    let mut resized = chunk_at(parameters, content, profile, logical, first, length);
    if length == chunk.length {
        resized.chunk.stripes.clone_from(&chunk.stripes);
    } else if profile == Profile::Dup {
        let mut start = resized.chunk.stripes[1].physical.0;
        for mirror in SuperblockMirror::ALL {
            let copy = mirror.offset().0;
            if start < copy + STRIPE_LENGTH && copy < start + length {
                start = copy + STRIPE_LENGTH;
            }
        }
        resized.chunk.stripes[1].physical = Physical(start);
    }
    resized
}

#[cfg(test)]
mod tests;
