//! Inode items, and what goes with them first: attributes that were removed, names that were deleted, extents
//! behind the end of a file.

use vlinder_format::directory::{self, DirectoryEntries};
use vlinder_format::inode::{FileType, InodeItem};
use vlinder_format::{Generation, ItemType, Key, ObjectId};

use super::ReplayError;
use super::target::Target;

impl Target<'_, '_> {
    /// Brings an inode of the log into the subvolume.
    pub(super) fn replay_inode(&mut self, number: ObjectId, logged: &[u8]) -> Result<(), ReplayError> {
        let item =
            InodeItem::decode(logged).map_err(|fault| self.log_damage(InodeItem::key(number), fault))?;
        self.remove_unlogged_attributes(number)?;
        if item.file_type() == Some(FileType::Directory) {
            self.remove_unlogged_names(number)?;
        }
        self.put_logged_inode(number, item, logged)?;
        if item.file_type() == Some(FileType::Regular) {
            // Before extents are replayed: preallocated ones may lie behind the end, and stay.
            self.drop_extents_behind_end(number)?;
        }
        self.touched.insert(number);
        Ok(())
    }

    /// The inode item as it is afterwards. The bytes of its extents and the size of a directory follow from
    /// what is replayed. Generation 0 marks an inode that is in the log only so that it exists: one that
    /// there is already is left, but for the size of a file that was fsynced before (0 where it was not).
    fn put_logged_inode(
        &mut self,
        number: ObjectId,
        mut item: InodeItem,
        logged: &[u8],
    ) -> Result<(), ReplayError> {
        let key = InodeItem::key(number);
        let stored = self.item(&key)?;
        if stored.as_deref() == Some(logged) {
            return Ok(());
        }
        let stored = stored
            .map(|data| InodeItem::decode(&data))
            .transpose()
            .map_err(|fault| self.damage(key, fault))?;
        let only_exists = item.generation == Generation(0);
        if let Some(mut stored) = stored.filter(|_| only_exists) {
            let files = [&item, &stored].iter().all(|item| item.file_type() == Some(FileType::Regular));
            if files && item.size_bytes != 0 {
                stored.size_bytes = item.size_bytes;
                self.put(key, &stored.encode())?;
            }
            return Ok(());
        }
        item.allocated_bytes = stored.map_or(0, |stored| stored.allocated_bytes);
        if item.file_type() == Some(FileType::Directory) {
            let directory = stored.filter(|stored| stored.file_type() == Some(FileType::Directory));
            item.size_bytes = directory.map_or(0, |directory| directory.size_bytes);
        }
        if only_exists {
            item.generation = self.handle.generation();
        }
        self.put(key, &item.encode())
    }

    fn drop_extents_behind_end(&mut self, number: ObjectId) -> Result<(), ReplayError> {
        let sector_size = u64::from(self.engine.sector_size());
        let size = self.known_inode(number)?.size_bytes;
        let end = size.checked_next_multiple_of(sector_size).unwrap_or(u64::MAX);
        let dropped = self.drop_extents(number, end, u64::MAX)?;
        let mut item = self.known_inode(number)?;
        item.allocated_bytes = item.allocated_bytes.saturating_sub(dropped);
        self.put_inode(number, item)
    }

    /// A log that holds an inode holds all its attributes: others were removed.
    fn remove_unlogged_attributes(&mut self, number: ObjectId) -> Result<(), ReplayError> {
        let mut from = Key::new(number, ItemType::XATTR_ITEM, 0);
        while let Some(found) = self.next_item(&from)? {
            let key = found.key();
            if key.objectid != number || key.item_type != ItemType::XATTR_ITEM {
                break;
            }
            let mut rest = found.data().to_vec();
            for entry in DirectoryEntries::new(found.data()) {
                let name = entry.map_err(|fault| self.damage(key, fault))?.name;
                if !self.log_has_entry(&key, name)? {
                    directory::remove(&mut rest, name).map_err(|fault| self.damage(key, fault))?;
                }
            }
            if rest != found.data() {
                self.put_rest(key, &rest)?;
            }
            match key.next() {
                Some(next) => from = next,
                None => break,
            }
        }
        Ok(())
    }

    /// Whether the log has an entry of a name under a key: of an attribute, or of a directory by index.
    pub(super) fn log_has_entry(&self, key: &Key, name: &[u8]) -> Result<bool, ReplayError> {
        let Some(logged) = self.log_item(key)? else { return Ok(false) };
        let entry = directory::find(logged.data(), name).map_err(|fault| self.log_damage(*key, fault))?;
        Ok(entry.is_some())
    }
}
