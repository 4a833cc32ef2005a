//! From a superblock to the trees (the first of the four knots): the system chunks are in the superblock, so the chunk
//! tree can be read; its chunks are given to the volume, so every other tree can.

use vlinder_base::sync::Arc;
use vlinder_format::chunk::Chunk;
use vlinder_format::superblock::Superblock;
use vlinder_format::{Damage, Generation, ItemType, Key, Logical, ObjectId, RootId};
use vlinder_volume::Volume;

use crate::{Readahead, Root, RootPointer, TreeError, TreeMetrics, Trees, VolumeBlocks};

/// The trees that a superblock points at.
pub struct Bootstrap {
    /// All trees.
    pub trees: Trees,
    /// Their blocks on the volume, for whoever writes them.
    pub blocks: Arc<VolumeBlocks>,
    /// The chunk tree.
    pub chunk_tree: Arc<Root>,
    /// The root tree.
    pub root_tree: Arc<Root>,
}

/// What is believed although it is damaged.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Leniency {
    /// Blocks without a right checksum, if nothing else is wrong with them (`rescue=ignoremetacsums`).
    pub ignores_checksums: bool,
    /// A chunk tree of which parts can't be read, and chunks that break a rule: what they map can't be read then.
    pub salvages: bool,
}

/// Opens the trees of a volume and gives it all its chunks.
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
) -> Result<Bootstrap, TreeError> {
    let blocks = VolumeBlocks::new(Arc::clone(volume), superblock, writable);
    let blocks = Arc::new(blocks.ignoring_checksums(leniency.ignores_checksums));
    let source: Arc<dyn crate::BlockSource> = blocks.clone();
    let trees = Trees::new(source, cache_bytes, metrics);
    let chunk_tree = chunk_tree_of(superblock);
    if leniency.salvages {
        salvage_chunks(&trees, &chunk_tree, volume);
    } else {
        add_chunks(&trees, &chunk_tree, volume)?;
    }
    let root_pointer = RootPointer {
        logical: superblock.root,
        generation: superblock.generation,
        level: superblock.root_level,
    };
    let root_tree = Root::new(RootId::ROOT_TREE, root_pointer, Generation(0));
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
    let source = Arc::new(blocks.ignoring_checksums(leniency.ignores_checksums));
    let trees = Trees::new(source, 0, metrics);
    salvage_chunks(&trees, &chunk_tree_of(superblock), volume).map_or(Ok(()), Err)
}

fn add_chunks(trees: &Trees, chunk_tree: &Arc<Root>, volume: &Volume) -> Result<(), TreeError> {
    let first = Key::new(ObjectId::FIRST_CHUNK_TREE, ItemType::CHUNK_ITEM, 0);
    let mut cursor = trees.cursor(chunk_tree, &first, Readahead::Forward(16))?;
    while let Some((key, data)) = cursor.item() {
        if key.item_type == ItemType::CHUNK_ITEM {
            let chunk = Chunk::decode(data).map_err(|fault| Damage::new(fault, cursor.place()))?;
            volume.add_chunk(Logical(key.offset), chunk)?;
        }
        cursor.advance()?;
    }
    Ok(())
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
