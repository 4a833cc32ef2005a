//! The items of chunks that were made, and of those that go: in the chunk tree, the device tree, the tree of
//! groups and the free-space tree, and the system chunks in the superblock.

use vlinder_format::block_group::BlockGroupItem;
use vlinder_format::device::{DeviceExtent, DeviceItem};
use vlinder_format::{ItemType, Key, ObjectId, RootId};
use vlinder_space::GroupRange;

use crate::EngineError;
use crate::drain::Drain;

impl Drain<'_> {
    /// Writes the items of new chunks; gives whether there were any.
    pub(crate) fn write_new_chunks(&mut self) -> Result<bool, EngineError> {
        let mut any = false;
        loop {
            let new = self.core.chunks().take_new();
            if new.is_empty() {
                return Ok(any);
            }
            any = true;
            for (logical, chunk) in &new {
                let key = Key::new(ObjectId::FIRST_CHUNK_TREE, ItemType::CHUNK_ITEM, logical.0);
                self.handle.editor_mut().put(self.core.trees().chunk(), key, &chunk.encode())?;
                for stripe in &chunk.stripes {
                    let extent = DeviceExtent {
                        chunk_tree: RootId::CHUNK_TREE,
                        chunk_object: ObjectId::FIRST_CHUNK_TREE,
                        chunk_offset: *logical,
                        length: chunk.stripe_bytes().unwrap_or_default(),
                        chunk_tree_uuid: self.core.chunks().chunk_tree_uuid(),
                    };
                    let key = DeviceExtent::key(stripe.device, stripe.physical);
                    self.handle.editor_mut().put(
                        self.core.trees().fixed().device.root(),
                        key,
                        &extent.encode(),
                    )?;
                }
                if let Some(tree) = self.core.trees().free_space_tree() {
                    tree.add_group(
                        self.handle.editor_mut(),
                        GroupRange { start: *logical, length: chunk.length },
                    )?;
                }
            }
            self.write_device_items()?;
            self.write_system_array()?;
        }
    }

    fn write_device_items(&mut self) -> Result<(), EngineError> {
        let items: Vec<DeviceItem> = self.core.chunks().device_items();
        for item in items {
            self.handle.editor_mut().put(
                self.core.trees().chunk(),
                DeviceItem::key(item.device),
                &item.encode(),
            )?;
        }
        Ok(())
    }

    /// The superblock names the system chunks.
    fn write_system_array(&self) -> Result<(), EngineError> {
        let (array, size) = self.core.chunks().system_array()?;
        let mut superblock = self.core.superblock();
        superblock.system_chunk_array = array;
        superblock.system_array_size = size;
        Ok(())
    }

    /// Removes groups that have been empty since the last commit, but one of each kind, and those whose room
    /// is needed.
    pub(crate) fn remove_empty_chunks(&mut self) -> Result<(), EngineError> {
        for group in self.core.space().removable_groups() {
            let logical = group.range.start;
            // References of the transaction, which is about to be committed, are still to be written.
            let waiting = self.core.queues().queued()
                + self.core.queues().awaited(self.core.trees().forest().may_share_blocks());
            if self.core.trees().has_space_cache(logical)?
                || !self.core.space().close_idle(logical, waiting, self.core.chunk_maker().system_bytes())
            {
                continue;
            }
            let Some(chunk) = self.core.volume().chunks().get(logical) else { continue };
            if let Some(tree) = self.core.trees().free_space_tree() {
                tree.remove_group(self.handle.editor_mut(), group.range)?;
            }
            self.handle.editor_mut().remove(
                self.core.trees().fixed().groups.root(),
                BlockGroupItem::key(logical, group.range.length),
            )?;
            for stripe in &chunk.chunk.stripes {
                self.handle.editor_mut().remove(
                    self.core.trees().fixed().device.root(),
                    DeviceExtent::key(stripe.device, stripe.physical),
                )?;
            }
            let key = Key::new(ObjectId::FIRST_CHUNK_TREE, ItemType::CHUNK_ITEM, logical.0);
            self.handle.editor_mut().remove(self.core.trees().chunk(), key)?;
            self.core.space().remove_group(logical);
            self.core.chunks().note_removed(logical, &chunk.chunk);
            self.write_device_items()?;
            self.write_system_array()?;
        }
        Ok(())
    }
}
