//! From a superblock to the trees (the first of the four knots): the system chunks are in the superblock, so
//! the chunk tree can be read; its chunks are given to the volume, all or as they are needed, so every other
//! tree can.

use vlinder_base::sync::Arc;
use vlinder_format::chunk::Chunk;
use vlinder_format::superblock::Superblock;
use vlinder_format::{Generation, ItemType, Key, Logical, RootId};
use vlinder_volume::{Volume, refuse_two_histories};

use crate::chunk_tree::{ChunkTree, add_all};
use crate::{Root, RootPointer, TreeError, TreeMetrics, Trees, VolumeBlocks};

pub use crate::leniency::Leniency;

/// The trees that a superblock points at.
pub struct Bootstrap {
    /// All trees.
    pub trees: Arc<Trees>,
    /// Their blocks on the volume, for the committer, which writes them.
    pub blocks: Arc<VolumeBlocks>,
    /// The chunk tree.
    pub chunk_tree: Arc<Root>,
    /// The root tree.
    pub root_tree: Arc<Root>,
}

/// When chunks are read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ChunkReading {
    /// All of them at once: for a program that may come to allocate, or wants to know what is damaged.
    All,
    /// Each when an address needs it: what opening reads does not grow with the file system. A caller that
    /// wants them all asks the volume ([`Volume::load_chunks`]).
    AsNeeded,
    /// All that can be read and are sound: what others map can't be read then.
    Salvage,
}

/// Opens the trees of a volume, which learns its chunks.
///
/// # Errors
/// What reading the chunk tree met, or a chunk that breaks its rules.
pub fn bootstrap(
    volume: &Arc<Volume>,
    superblock: &Superblock,
    writable: bool,
    cache_bytes: u64,
    metrics: TreeMetrics,
    leniency: Leniency,
    reading: ChunkReading,
) -> Result<Bootstrap, TreeError> {
    let blocks = VolumeBlocks::new(Arc::clone(volume), superblock, writable);
    let blocks = Arc::new(blocks.with_leniency(leniency));
    let source: Arc<dyn crate::BlockSource> = blocks.clone();
    let trees = Arc::new(Trees::new(source, cache_bytes, metrics));
    let chunk_tree = chunk_tree_of(superblock);
    match reading {
        ChunkReading::All => {
            add_all(&trees, &chunk_tree, &mut |logical, chunk| volume.add_chunk(logical, chunk))?
        }
        ChunkReading::Salvage => {
            // What can't be read is told of where somebody wants to read it.
            let _ = salvage_chunks(&trees, &chunk_tree, volume);
        }
        ChunkReading::AsNeeded => {
            let source = ChunkTree::new(&trees, &chunk_tree);
            source.check_known(&trees, volume)?;
            volume.look_up_chunks(Arc::new(source));
        }
    }
    let root_pointer = RootPointer {
        logical: superblock.root,
        generation: superblock.generation,
        level: superblock.root_level,
    };
    let root_tree = Root::new(RootId::ROOT_TREE, root_pointer, Generation(0));
    if reading != ChunkReading::Salvage {
        refuse_two_histories(volume, superblock)?;
    }
    Ok(Bootstrap { trees, blocks, chunk_tree, root_tree })
}

fn chunk_tree_of(superblock: &Superblock) -> Arc<Root> {
    let pointer = RootPointer {
        logical: superblock.chunk_root,
        generation: superblock.chunk_root_generation,
        level: superblock.chunk_root_level,
    };
    Root::new(RootId::CHUNK_TREE, pointer, Generation(0))
}

/// Gives a volume the chunks of a chunk tree that can be read and do not overlap what it knows.
///
/// # Errors
/// Why a part of the tree can't be read, where that is so; the rest was added.
pub fn add_readable_chunks(
    volume: &Arc<Volume>,
    superblock: &Superblock,
    leniency: Leniency,
    metrics: TreeMetrics,
) -> Result<(), TreeError> {
    let blocks = VolumeBlocks::new(Arc::clone(volume), superblock, false);
    let source = Arc::new(blocks.with_leniency(leniency));
    let trees = Trees::new(source, 0, metrics);
    salvage_chunks(&trees, &chunk_tree_of(superblock), volume).map_or(Ok(()), Err)
}

/// Adds the chunks that can be read and are sound; gives why a part of the tree can't be read.
fn salvage_chunks(trees: &Trees, chunk_tree: &Arc<Root>, volume: &Volume) -> Option<TreeError> {
    let mut lost = None;
    for position in trees.salvage(chunk_tree, Key::MIN..=Key::MAX) {
        let position = match position {
            Ok(position) => position,
            Err(part) => {
                lost.get_or_insert(*part.error);
                continue;
            }
        };
        let key = position.key();
        if key.item_type != ItemType::CHUNK_ITEM {
            continue;
        }
        // What a chunk that is left out maps is told of where somebody wants to read it.
        if let Ok(chunk) = Chunk::decode(position.data()) {
            let _ = volume.add_chunk(Logical(key.offset), chunk);
        }
    }
    lost
}
