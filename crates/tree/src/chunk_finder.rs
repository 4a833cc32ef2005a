//! Chunks of a chunk tree that nothing leads to any more: its leaves, old ones too, still lie in the system
//! chunks, which the superblock names. As `btrfs rescue chunk-recover`, which looks through whole devices.

use std::collections::BTreeMap;

use vlinder_base::sync::Arc;
use vlinder_format::chunk::{BlockGroupFlags, Chunk, Stripe};
use vlinder_format::superblock::Superblock;
use vlinder_format::{Generation, ItemType, Logical, Physical, RootId};
use vlinder_volume::Volume;

use crate::VolumeBlocks;

/// Bytes that are looked through at most, each copy counted. Linux makes system chunks of 8 to 32 MiB, one or
/// two of them.
const MAX_BYTES: u64 = 256 << 20;
/// Bytes that are read at once; a block may begin in these and end behind them.
const PIECE: u64 = 1 << 20;
/// Chunks that are kept, at some 200 bytes each.
const MAX_CHUNKS: usize = 100_000;

/// What was found, and where.
#[derive(Debug, Default)]
pub struct FoundChunks {
    /// Chunks by address, as the newest leaf that names each says, with the leaf's generation.
    pub chunks: BTreeMap<Logical, (Generation, Chunk)>,
    /// How many leaves there were, copies and old ones counted.
    pub leaves: u64,
    /// Bytes of devices that were looked through.
    pub searched_bytes: u64,
    /// Bytes of system chunks that were not, for they can't be read or are more than are looked through.
    pub left_bytes: u64,
}

impl FoundChunks {
    fn add(&mut self, logical: Logical, generation: Generation, chunk: Chunk) {
        let is_new = match self.chunks.get(&logical) {
            Some((known, _)) => *known < generation,
            None => self.chunks.len() < MAX_CHUNKS,
        };
        if is_new {
            self.chunks.insert(logical, (generation, chunk));
        }
    }
}

/// Looks for leaves of the chunk tree, not newer than the superblock, in the system chunks that the volume
/// knows.
pub fn find_chunks(volume: &Arc<Volume>, superblock: &Superblock) -> FoundChunks {
    let blocks = VolumeBlocks::new(Arc::clone(volume), superblock, false);
    let mut found = FoundChunks::default();
    for mapped in volume.chunks().snapshot() {
        if !mapped.chunk.flags.has(BlockGroupFlags::SYSTEM) {
            continue;
        }
        let bytes = mapped.chunk.stripe_bytes().unwrap_or(0);
        for stripe in &mapped.chunk.stripes {
            search(volume, &blocks, stripe, bytes, &mut found);
        }
    }
    found
}

/// Looks through a stripe of so many bytes.
fn search(volume: &Volume, blocks: &VolumeBlocks, stripe: &Stripe, bytes: u64, found: &mut FoundChunks) {
    let geometry = volume.geometry();
    let (node_size, sector_size) = (u64::from(geometry.node_size), u64::from(geometry.sector_size).max(1));
    let left = MAX_BYTES.saturating_sub(found.searched_bytes);
    let end = bytes.min(left);
    found.left_bytes = found.left_bytes.saturating_add(bytes.saturating_sub(end));
    let mut start: u64 = 0;
    while start < end {
        let piece = PIECE.min(end.saturating_sub(start));
        // With the part behind it that a block which begins in it may have.
        let length =
            piece.saturating_add(node_size).saturating_sub(sector_size).min(end.saturating_sub(start));
        let physical = Physical(stripe.physical.0.saturating_add(start));
        let length = usize::try_from(length).unwrap_or(0);
        let read = volume.member(stripe.device).and_then(|member| member.read(physical, length).ok());
        match read {
            Some(bytes) => leaves_in(blocks, &bytes, sector_size, node_size, found),
            None => found.left_bytes = found.left_bytes.saturating_add(piece),
        }
        found.searched_bytes = found.searched_bytes.saturating_add(piece);
        start = start.saturating_add(piece);
    }
}

fn leaves_in(blocks: &VolumeBlocks, bytes: &[u8], sector_size: u64, node_size: u64, found: &mut FoundChunks) {
    let as_length = |bytes: u64| usize::try_from(bytes).unwrap_or(usize::MAX);
    for start in (0..bytes.len()).step_by(as_length(sector_size)) {
        let end = start.saturating_add(as_length(node_size));
        let block = bytes.get(start..end).and_then(|bytes| blocks.leaf_among(bytes, RootId::CHUNK_TREE));
        let Some(leaf) = block else { continue };
        found.leaves = found.leaves.saturating_add(1);
        for slot in (0..leaf.len()).filter(|slot| leaf.key(*slot).item_type == ItemType::CHUNK_ITEM) {
            if let Ok(chunk) = Chunk::decode(leaf.data(slot)) {
                found.add(Logical(leaf.key(slot).offset), leaf.generation(), chunk);
            }
        }
    }
}
