//! New trees: an empty one, and a snapshot's copy of a root block.

use vlinder_base::sync::{Arc, RwLockWriteGuard};
use vlinder_format::block::BlockIdentity;
use vlinder_format::{Block, Generation, Key, Level, RootId, Uuid};

use crate::apply::Writer;
use crate::learned::Learned;
use crate::root::{Root, RootPointer, RootState};
use crate::tree_blocks::{Pins, TreeBlocks};
use crate::wanted::root_block;
use crate::{AddressPool, ChildReferences, Space, TreeError, Trees};

/// The UUIDs that every block of a file system carries.
#[derive(Clone, Copy, Debug)]
pub struct TreeIdentity {
    /// The file system's (or its metadata) UUID.
    pub fsid: Uuid,
    /// The chunk tree's UUID.
    pub chunk_tree_uuid: Uuid,
}

impl Trees {
    /// Makes an empty tree: one leaf. The caller records the pointer in a root item.
    ///
    /// # Errors
    /// No space.
    pub fn create_tree(
        &self,
        id: RootId,
        generation: Generation,
        identity: &TreeIdentity,
        space: &dyn Space,
        pool: &mut AddressPool,
    ) -> Result<RootPointer, TreeError> {
        pool.fill(space, id, 1)?;
        let header = BlockIdentity {
            logical: pool.take(),
            generation,
            owner: id,
            level: Level::LEAF,
            fsid: identity.fsid,
            chunk_tree_uuid: identity.chunk_tree_uuid,
        };
        let leaf = Block::new(self.source().node_size(), &header);
        space.block_created(id, &leaf, &Key::MIN);
        self.blocks().cache.insert_dirty(Arc::new(leaf));
        Ok(RootPointer { logical: header.logical, generation, level: Level::LEAF })
    }

    /// Makes the tree `id` of a copy of `source`'s root block, whose children both share from now on. The
    /// caller has put everything that belongs into the source, and stopped its writers.
    ///
    /// # Errors
    /// No space, or what reading the root block met.
    pub fn copy_tree(
        &self,
        source: &Arc<Root>,
        id: RootId,
        generation: Generation,
        space: &dyn Space,
        pool: &mut AddressPool,
    ) -> Result<RootPointer, TreeError> {
        pool.fill(space, source.id(), 2)?;
        let mut pins = Pins::default();
        let mut state = locked_with_root_block(self.blocks(), source, &mut pins)?;
        let mut learned = Learned::default();
        let mut writer =
            Writer::new(self.blocks(), source, &mut state, generation, space, pool, &mut pins, &mut learned);
        let root_block = writer.writable_root();
        let mut copy = Block::clone(&root_block);
        copy.assume_identity(writer.pool.take(), generation, id);
        space.block_created(id, &copy, &copy.first_key().unwrap_or_default());
        space.share_children(id, &copy, ChildReferences::Keyed, true);
        let pointer = RootPointer { logical: copy.logical(), generation, level: copy.level() };
        self.blocks().cache.insert_dirty(Arc::new(copy));
        source.mark_snapshot(generation);
        Ok(pointer)
    }

    /// Makes sure that a tree's root block belongs to `generation`, though nothing in the tree changes: a
    /// superblock names the root tree's block and its own generation in one breath.
    ///
    /// # Errors
    /// No space, or what reading the root block met.
    pub fn touch(
        &self,
        root: &Arc<Root>,
        generation: Generation,
        space: &dyn Space,
        pool: &mut AddressPool,
    ) -> Result<(), TreeError> {
        pool.fill(space, root.id(), 1)?;
        let mut pins = Pins::default();
        let mut state = locked_with_root_block(self.blocks(), root, &mut pins)?;
        let mut learned = Learned::default();
        let mut writer =
            Writer::new(self.blocks(), root, &mut state, generation, space, pool, &mut pins, &mut learned);
        writer.writable_root();
        Ok(())
    }
}

/// Locks a root for writing, its block being in memory.
fn locked_with_root_block<'a>(
    blocks: &TreeBlocks,
    root: &'a Root,
    pins: &mut Pins,
) -> Result<RwLockWriteGuard<'a, RootState>, TreeError> {
    loop {
        let state = root.write();
        let wanted = root_block(root.id(), &state);
        if let Some(block) = blocks.resident(&wanted, pins)? {
            pins.hold(&block);
            return Ok(state);
        }
        drop(state);
        blocks.load(&[wanted], pins)?;
    }
}
