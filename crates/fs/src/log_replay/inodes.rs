//! Inode items, and what goes with them first: attributes that were removed, names that were deleted, extents
//! behind the end of a file.

use vlinder_format::inode::{FileType, InodeItem};
use vlinder_format::{Generation, ObjectId};

use super::ReplayError;
use super::attributes::AttributeReplay;
use super::directories::DirectoryReplay;
use super::extents::ExtentReplay;
use super::logged_items::LoggedItems;
use super::subvolume::ReplayedSubvolume;

/// Brings the inodes of a log into the subvolume.
pub(super) struct InodeReplay<'s, 'r, 'a> {
    subvolume: &'s mut ReplayedSubvolume<'r, 'a>,
    log: LoggedItems<'r>,
}

impl<'s, 'r, 'a> InodeReplay<'s, 'r, 'a> {
    pub(super) fn new(subvolume: &'s mut ReplayedSubvolume<'r, 'a>, log: LoggedItems<'r>) -> Self {
        Self { subvolume, log }
    }
}

impl InodeReplay<'_, '_, '_> {
    /// Brings an inode of the log into the subvolume.
    pub(super) fn replay(&mut self, number: ObjectId, logged: &[u8]) -> Result<(), ReplayError> {
        let item =
            InodeItem::decode(logged).map_err(|fault| self.log.damage(InodeItem::key(number), fault))?;
        AttributeReplay::new(self.subvolume, self.log).remove_unlogged(number)?;
        if item.file_type() == Some(FileType::Directory) {
            DirectoryReplay::new(self.subvolume, self.log).remove_unlogged(number)?;
        }
        self.put_logged_inode(number, item, logged)?;
        if item.file_type() == Some(FileType::Regular) {
            // Before extents are replayed: preallocated ones may lie behind the end, and stay.
            self.drop_extents_behind_end(number)?;
        }
        self.subvolume.touch(number);
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
        let stored = self.subvolume.item(&key)?;
        if stored.as_deref() == Some(logged) {
            return Ok(());
        }
        let stored = stored
            .map(|data| InodeItem::decode(&data))
            .transpose()
            .map_err(|fault| self.subvolume.damage(key, fault))?;
        let only_exists = item.generation == Generation(0);
        if let Some(mut stored) = stored.filter(|_| only_exists) {
            let files = [&item, &stored].iter().all(|item| item.file_type() == Some(FileType::Regular));
            if files && item.size_bytes != 0 {
                stored.size_bytes = item.size_bytes;
                self.subvolume.put(key, &stored.encode())?;
            }
            return Ok(());
        }
        item.allocated_bytes = stored.map_or(0, |stored| stored.allocated_bytes);
        if item.file_type() == Some(FileType::Directory) {
            let directory = stored.filter(|stored| stored.file_type() == Some(FileType::Directory));
            item.size_bytes = directory.map_or(0, |directory| directory.size_bytes);
        }
        if only_exists {
            item.generation = self.subvolume.generation();
        }
        self.subvolume.put(key, &item.encode())
    }

    fn drop_extents_behind_end(&mut self, number: ObjectId) -> Result<(), ReplayError> {
        let sector_size = u64::from(self.subvolume.engine().sector_size());
        let size = self.subvolume.known_inode(number)?.size_bytes;
        let end = size.checked_next_multiple_of(sector_size).unwrap_or(u64::MAX);
        let dropped = ExtentReplay::new(self.subvolume, self.log).drop_range(number, end, u64::MAX)?;
        let mut item = self.subvolume.known_inode(number)?;
        item.allocated_bytes = item.allocated_bytes.saturating_sub(dropped);
        self.subvolume.put_inode(number, item)
    }
}
