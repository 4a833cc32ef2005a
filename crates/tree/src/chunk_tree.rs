//! The chunk tree, as what a volume asks for chunks: one by one, or all.

use vlinder_base::sync::{Arc, Weak};
use vlinder_format::chunk::Chunk;
use vlinder_format::{Damage, ItemType, Key, Logical, ObjectId};
use vlinder_volume::{AddChunk, ChunkSource, ChunkTreeFault, Volume, VolumeError};

use crate::{Position, Readahead, Root, TreeError, Trees};

/// Looks for chunks in the chunk tree.
pub(crate) struct ChunkTree {
    /// The trees reach the volume, which reaches this.
    trees: Weak<Trees>,
    root: Arc<Root>,
}

impl ChunkTree {
    pub(crate) fn new(trees: &Arc<Trees>, root: &Arc<Root>) -> Self {
        Self { trees: Arc::downgrade(trees), root: Arc::clone(root) }
    }

    /// Compares the chunks that are known before the tree is read with what it says of their ranges.
    pub(crate) fn check_known(&self, trees: &Trees, volume: &Volume) -> Result<(), TreeError> {
        for known in volume.chunks().snapshot() {
            let key = chunk_key(known.logical);
            let found =
                [self.before(trees, known.logical)?, trees.get(&self.root, &key)?, self.after(trees, &key)?];
            for found in found.into_iter().flatten() {
                let (logical, chunk) = (start(&found), self.decode(&found)?);
                if logical < known.end() && end(logical, &chunk) > known.logical {
                    volume.add_chunk(logical, chunk)?;
                }
            }
        }
        Ok(())
    }

    /// The item of the last chunk that starts before an address.
    fn before(&self, trees: &Trees, logical: Logical) -> Result<Option<Position>, TreeError> {
        match logical.0.checked_sub(1) {
            Some(last) => self.at_or_before(trees, Logical(last)),
            None => Ok(None),
        }
    }

    /// The item of the last chunk that starts at an address or before it.
    fn at_or_before(&self, trees: &Trees, logical: Logical) -> Result<Option<Position>, TreeError> {
        Ok(trees.floor(&self.root, &chunk_key(logical))?.filter(is_chunk))
    }

    /// The item of the first chunk behind a key.
    fn after(&self, trees: &Trees, key: &Key) -> Result<Option<Position>, TreeError> {
        let Some(next) = key.next() else { return Ok(None) };
        Ok(trees.ceiling(&self.root, &next)?.filter(is_chunk))
    }

    /// Adds a chunk, if it keeps apart from those beside it. (The volume compares it with those that it
    /// knows.)
    fn admit(&self, trees: &Trees, found: &Position, add: &mut AddChunk<'_>) -> Result<(), TreeError> {
        let (logical, chunk) = (start(found), self.decode(found)?);
        let overlap = |logical, other| Err(VolumeError::ChunkOverlap { logical, other }.into());
        if let Some(before) = self.before(trees, logical)?
            && end(start(&before), &self.decode(&before)?) > logical
        {
            return overlap(logical, start(&before));
        }
        if let Some(next) = self.after(trees, &found.key())?
            && end(logical, &chunk) > start(&next)
        {
            return overlap(start(&next), logical);
        }
        Ok(add(logical, chunk)?)
    }

    fn decode(&self, found: &Position) -> Result<Chunk, Damage> {
        Chunk::decode(found.data()).map_err(|fault| Damage::new(fault, found.place(self.root.id())))
    }
}

impl ChunkSource for ChunkTree {
    fn look_up(&self, logical: Logical, add: &mut AddChunk<'_>) -> Result<(), VolumeError> {
        let Some(trees) = self.trees.upgrade() else { return Ok(()) };
        let mut look_up = || {
            let Some(found) = self.at_or_before(&trees, logical)? else { return Ok(()) };
            if end(start(&found), &self.decode(&found)?) <= logical {
                return Ok(());
            }
            self.admit(&trees, &found, add)
        };
        look_up().map_err(|error| fault(error, logical))
    }

    fn load_all(&self, add: &mut AddChunk<'_>) -> Result<(), VolumeError> {
        let Some(trees) = self.trees.upgrade() else { return Ok(()) };
        add_all(&trees, &self.root, add).map_err(|error| fault(error, Logical(0)))
    }
}

/// Adds the chunks of a whole chunk tree.
pub(crate) fn add_all(trees: &Trees, root: &Arc<Root>, add: &mut AddChunk<'_>) -> Result<(), TreeError> {
    let mut cursor = trees.cursor(root, &chunk_key(Logical(0)), Readahead::Forward(16))?;
    while let Some((key, data)) = cursor.item() {
        if key.item_type == ItemType::CHUNK_ITEM {
            let chunk = Chunk::decode(data).map_err(|fault| Damage::new(fault, cursor.place()))?;
            add(Logical(key.offset), chunk)?;
        }
        cursor.advance()?;
    }
    Ok(())
}

fn chunk_key(logical: Logical) -> Key {
    Key::new(ObjectId::FIRST_CHUNK_TREE, ItemType::CHUNK_ITEM, logical.0)
}

fn is_chunk(found: &Position) -> bool {
    found.key().item_type == ItemType::CHUNK_ITEM
}

fn start(found: &Position) -> Logical {
    Logical(found.key().offset)
}

fn end(start: Logical, chunk: &Chunk) -> Logical {
    Logical(start.0.saturating_add(chunk.length))
}

fn fault(error: TreeError, logical: Logical) -> VolumeError {
    match error {
        TreeError::Volume(error) => VolumeError::ChunkTree(ChunkTreeFault::Volume(Box::new(error))),
        TreeError::Damage(damage) => VolumeError::ChunkTree(ChunkTreeFault::Damage(Box::new(damage))),
        // A search in a tree that nobody changes meets nothing else.
        _ => VolumeError::Unmapped { logical, length: 1 },
    }
}
