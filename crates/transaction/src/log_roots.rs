//! The roots of the fsync log: which subvolumes have one, and how their blocks are kept until the log was
//! replayed.
//!
//! The blocks of a log, and the extents of data that only a log knows, are free as far as the extent tree and
//! the free-space tree say. Before anything is changed they are taken out of what may be taken: the blocks as
//! *pinned*, so that they are free again once the replay is durable, the extents as *reserved*, as if just
//! allocated.
//!
//! What the items of a log mean is not known here.

use std::collections::HashMap;

use vlinder_base::sync::Arc;
use vlinder_format::block::BlockFault;
use vlinder_format::file_extent::FileExtent;
use vlinder_format::log::LogFault;
use vlinder_format::root_item::RootItem;
use vlinder_format::{Block, Damage, Fault, Generation, ItemType, Key, Logical, ObjectId, Place, RootId};
use vlinder_tree::{Readahead, Root, RootPointer, WantedBlock};

use crate::commit_queues::CommitQueues;
use crate::engine_core::EngineCore;
use crate::{DataExtent, EngineError, ReadOnlyReason};
use vlinder_forest::OpenTree;
use vlinder_space::TakenPlace;
use vlinder_space::{Pins, Purpose};

/// The log of one subvolume.
pub struct SubvolumeLog {
    /// The subvolume.
    pub tree: Arc<OpenTree>,
    /// The log tree.
    pub log: Arc<Root>,
}

/// A log that was taken up: nothing takes its space any more.
#[derive(Default)]
pub struct FsyncLog {
    /// The logs of the subvolumes that there still are, the highest number first.
    pub subvolumes: Vec<SubvolumeLog>,
    /// Extents that the extent tree does not know, by their first byte: bytes.
    new_extents: HashMap<Logical, u64>,
}

impl FsyncLog {
    /// Whether only the log knows an extent.
    #[must_use]
    pub fn is_new(&self, extent: DataExtent) -> bool {
        self.new_extents.get(&extent.logical) == Some(&extent.length)
    }

    /// The log was replayed: extents that came to nothing are pinned, and free once that is durable.
    pub(crate) fn finish(&self, queues: &CommitQueues, pins: Pins<'_>) -> Result<(), EngineError> {
        for (logical, length) in &self.new_extents {
            if queues.delayed().head(*logical).is_none() {
                pins.pin_reserved(*logical, *length).map_err(|fault| Damage::new(fault, Place::default()))?;
            }
        }
        Ok(())
    }
}

impl FsyncLog {
    /// Takes up the log that the superblock names, after which changes may be made: all in the one
    /// transaction of the handle that replays it
    /// ([`Handle::finish_log`](crate::Handle::finish_log)). None where there is no log, or where the file
    /// system cannot be changed for another reason. Logs of subvolumes that were deleted count for nothing.
    ///
    /// # Errors
    /// Damage of the log, or a place of it that is not free; the engine takes no changes then.
    pub(crate) fn take_up(core: &EngineCore) -> Result<Option<FsyncLog>, EngineError> {
        if core.latch().reason() != Some(ReadOnlyReason::Log) || core.options().leave_log.is_some() {
            return Ok(None);
        }
        let superblock = core.superblock().clone();
        // A log is one generation ahead of the commit that it goes on from.
        let generation = superblock.generation.next();
        let pointer =
            RootPointer { logical: superblock.log_root, generation, level: superblock.log_root_level };
        let roots = Root::new(RootId::TREE_LOG, pointer, Generation(0));
        let mut adoption = Adoption { core, generation, log: FsyncLog::default() };
        adoption.pin_tree(&roots, |_, _| Ok(()))?;
        let first = Key::new(ObjectId(RootId::TREE_LOG.0), ItemType::ROOT_ITEM, 0);
        let mut cursor = core.trees().store().cursor(&roots, &first, Readahead::None)?;
        while let Some((key, data)) = cursor.item()
            && key.objectid == first.objectid
            && key.item_type == ItemType::ROOT_ITEM
        {
            let place = cursor.place();
            let item = RootItem::decode(data).map_err(|fault| Damage::new(fault, place))?;
            let id = RootId(key.offset);
            if !id.is_subvolume() {
                return Err(Damage::new(LogFault::Subvolume { found: id }, place).into());
            }
            let pointer =
                RootPointer { logical: item.address, generation: item.generation, level: item.level };
            let root = Root::new(RootId::TREE_LOG, pointer, Generation(0));
            match core.tree(id) {
                Ok(tree) if !tree.item().is_deleted() => {
                    adoption.pin_tree(&root, Adoption::reserve_extents)?;
                    adoption.log.subvolumes.push(SubvolumeLog { tree, log: root });
                }
                // Linux reads the root of such a log all the same, should this replay not become durable.
                Ok(_) | Err(EngineError::NoSuchTree { .. }) => adoption.pin_block(item.address, place)?,
                Err(error) => return Err(error),
            }
            cursor.advance()?;
        }
        let mut log = adoption.log;
        log.subvolumes.reverse();
        core.dead_trees().find(core.trees(), core.space().reservations())?;
        core.latch().open();
        Ok(Some(log))
    }
}

/// A log that is being taken up.
struct Adoption<'a> {
    core: &'a EngineCore,
    /// Of all its blocks.
    generation: Generation,
    log: FsyncLog,
}

impl Adoption<'_> {
    /// Pins every block of a log tree; each leaf is shown. It ends since no block can be pinned twice.
    fn pin_tree(
        &mut self,
        root: &Arc<Root>,
        each_leaf: impl Fn(&mut Self, &Block) -> Result<(), EngineError>,
    ) -> Result<(), EngineError> {
        let generation = self.generation;
        let mut waiting = vec![WantedBlock::root(root)];
        while let Some(wanted) = waiting.pop() {
            let place = Place { tree: Some(wanted.tree), block: Some(wanted.logical), ..Place::default() };
            if wanted.generation != generation {
                let fault = BlockFault::Generation { found: wanted.generation, expected: generation };
                return Err(Damage::new(fault, place).into());
            }
            self.pin_block(wanted.logical, place)?;
            let block = self.core.trees().store().block(&wanted)?;
            if block.is_leaf() {
                each_leaf(self, &block)?;
            } else {
                waiting
                    .extend((0..block.len()).map(|slot| WantedBlock::child(RootId::TREE_LOG, &block, slot)));
            }
        }
        Ok(())
    }

    /// Pins one block.
    fn pin_block(&self, logical: Logical, place: Place) -> Result<(), EngineError> {
        let length = u64::from(self.core.trees().node_size());
        self.take(Purpose::Metadata, logical, length, place)?;
        Ok(self
            .core
            .space()
            .pins()
            .pin_reserved(logical, length)
            .map_err(|fault| Damage::new(fault, place))?)
    }

    /// Reserves the extents of data that only the log knows.
    fn reserve_extents(&mut self, leaf: &Block) -> Result<(), EngineError> {
        for slot in 0..leaf.len() {
            let key = leaf.key(slot);
            if key.item_type != ItemType::EXTENT_DATA {
                continue;
            }
            let place = Place {
                tree: Some(RootId::TREE_LOG),
                block: Some(leaf.logical()),
                slot: u32::try_from(slot).ok(),
                key: Some(key),
            };
            let item = FileExtent::decode(leaf.data(slot)).map_err(|fault| Damage::new(fault, place))?;
            let Some(range) = item.range().filter(|range| !range.is_hole()) else { continue };
            let (start, length) = (range.address, range.disk_bytes);
            let stored = Key::new(ObjectId(start.0), ItemType::EXTENT_ITEM, length);
            let is_known = self.log.new_extents.get(&start) == Some(&length)
                || self.core.trees().store().get(self.core.trees().fixed().extent.root(), &stored)?.is_some();
            if !is_known {
                self.take(Purpose::Data, start, length, place)?;
                self.log.new_extents.insert(start, length);
            }
        }
        Ok(())
    }

    fn take(&self, purpose: Purpose, start: Logical, length: u64, place: Place) -> Result<(), EngineError> {
        loop {
            match self.core.space().take_place(purpose, start, length) {
                TakenPlace::Done => return Ok(()),
                TakenPlace::Load(group) => self.core.group_loader().load(group)?,
                TakenPlace::Wait => {}
                TakenPlace::NotFree => {
                    let fault: Fault = LogFault::InUse { start, length }.into();
                    return Err(Damage::new(fault, place).into());
                }
            }
        }
    }
}
