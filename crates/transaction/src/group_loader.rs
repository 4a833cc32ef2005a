//! Reads what the trees tell of block groups: how much of each is used, and its free ranges.

use vlinder_format::block_group::BlockGroupItem;
use vlinder_format::{Damage, ItemType, Key, RootId};
use vlinder_space::{FreeRanges, Group, GroupRange, SpaceManager};
use vlinder_tree::{Readahead, TreeError};
use vlinder_volume::Volume;

use crate::EngineError;
use crate::chunk_work::ChunkWork;
use crate::latch::Latch;
use crate::system_trees::SystemTrees;
use crate::unwinding::Unfinished;

/// Brings what the trees tell of groups to the space manager.
#[derive(Clone, Copy)]
pub(crate) struct GroupLoader<'a> {
    trees: &'a SystemTrees,
    space: &'a SpaceManager,
    chunks: &'a ChunkWork,
}

impl<'a> GroupLoader<'a> {
    pub(crate) fn new(trees: &'a SystemTrees, space: &'a SpaceManager, chunks: &'a ChunkWork) -> Self {
        Self { trees, space, chunks }
    }

    /// Reads every group's item. Without all of them the bytes in use cannot be counted, so nothing may be
    /// written.
    pub(crate) fn load_items(&self, volume: &Volume, latch: &Latch) -> Result<(), EngineError> {
        let fixed = self.trees.fixed();
        let root = fixed.groups.root();
        // A tree of their own is walked; among all extents each is looked for.
        let mut walk = match fixed.groups.id() {
            RootId::BLOCK_GROUP_TREE => {
                Some(self.trees.store().cursor(root, &Key::MIN, Readahead::Forward(16))?)
            }
            _ => None,
        };
        for chunk in volume.chunks().snapshot() {
            let range = GroupRange { start: chunk.logical, length: chunk.chunk.length };
            let key = BlockGroupItem::key(range.start, range.length);
            let found = match &mut walk {
                Some(cursor) => {
                    while cursor.key().is_some_and(|at| at < key) {
                        if !cursor.advance_in_leaf() {
                            cursor.seek(&key)?;
                        }
                    }
                    cursor.position().filter(|position| position.key() == key).cloned()
                }
                None => self.trees.store().get(root, &key)?,
            };
            let Some(found) = found else {
                latch.note_missing_group(range.start);
                continue;
            };
            let item = BlockGroupItem::decode(found.data())
                .map_err(|fault| Damage::new(fault, found.place(fixed.groups.id())))?;
            let excluded = self
                .chunks
                .excluded(range.start)
                .iter()
                .map(|hole| hole.end.0.saturating_sub(hole.start.0))
                .sum();
            let closed = !chunk.profile.is_writable() && !volume.keeps_writes_in_memory();
            self.space.add_group(Group::existing(range, item.flags, item.used, excluded, closed));
        }
        Ok(())
    }

    /// Reads the free ranges of a group and hands them to the space manager.
    pub(crate) fn load(&self, group: GroupRange) -> Result<(), TreeError> {
        // Others wait for it.
        let unfinished = Unfinished::new(|| self.space.loaded(group, None, &[]));
        let free = match self.trees.free_space_tree() {
            Some(tree) => tree.load(self.trees.store(), group)?,
            None => self.free_between_extents(group)?,
        };
        self.space.loaded(group, Some(free), &self.chunks.excluded(group.start));
        unfinished.end();
        Ok(())
    }

    /// What the extent tree leaves free of a group, for file systems without a free-space tree.
    fn free_between_extents(&self, group: GroupRange) -> Result<FreeRanges, TreeError> {
        let mut free = FreeRanges::default();
        let mut at = group.start.0;
        let first = Key::new(group.start.0.into(), ItemType(0), 0);
        let extents = self.trees.fixed().extent.root();
        let mut cursor = self.trees.store().cursor(extents, &first, Readahead::Forward(32))?;
        while let Some(key) = cursor.key()
            && key.objectid.0 < group.end()
        {
            let length = match key.item_type {
                ItemType::EXTENT_ITEM => key.offset,
                ItemType::METADATA_ITEM => u64::from(self.trees.node_size()),
                _ => 0,
            };
            if length > 0 {
                free.add(at, key.objectid.0.saturating_sub(at));
                at = at.max(key.objectid.0.saturating_add(length));
            }
            cursor.advance()?;
        }
        free.add(at, group.end().saturating_sub(at));
        Ok(free)
    }
}
