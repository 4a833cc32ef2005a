//! Directories: names that were deleted within the ranges that a log speaks for, and names that it adds.

use vlinder_format::directory::{self, DirectoryEntry, DirectoryEntryType, DirectoryIndex};
use vlinder_format::{ItemType, Key, ObjectId};

use super::ReplayError;
use super::logged_items::LoggedItems;
use super::names::{Added, NameChanges};
use super::subvolume::ReplayedSubvolume;

/// Brings the names of directories of a log into the subvolume.
pub(super) struct DirectoryReplay<'s, 'r, 'a> {
    names: NameChanges<'s, 'r, 'a>,
    log: LoggedItems<'r>,
}

impl<'s, 'r, 'a> DirectoryReplay<'s, 'r, 'a> {
    pub(super) fn new(subvolume: &'s mut ReplayedSubvolume<'r, 'a>, log: LoggedItems<'r>) -> Self {
        Self { names: NameChanges::new(subvolume), log }
    }
}

impl DirectoryReplay<'_, '_, '_> {
    /// Removes the names of a directory whose indexes lie in a range of the log that does not hold them. Of a
    /// directory that is new there are none.
    pub(super) fn remove_unlogged(&mut self, number: ObjectId) -> Result<(), ReplayError> {
        if self.names.subvolume().inode(number)?.is_none() {
            return Ok(());
        }
        let mut next = DirectoryIndex(0);
        while let Some((first, last)) = self.log.directory_range(number, next)? {
            self.remove_names_within(number, first, last, true)?;
            match last.0.checked_add(1) {
                Some(behind) => next = DirectoryIndex(behind),
                None => break,
            }
        }
        Ok(())
    }

    /// Removes all names of a directory.
    pub(super) fn remove_all(&mut self, number: ObjectId) -> Result<(), ReplayError> {
        self.remove_names_within(number, DirectoryIndex(0), DirectoryIndex(u64::MAX), false)
    }

    fn remove_names_within(
        &mut self,
        number: ObjectId,
        first: DirectoryIndex,
        last: DirectoryIndex,
        unless_logged: bool,
    ) -> Result<(), ReplayError> {
        let mut from = directory::index_key(number, first);
        while let Some(found) = self.names.subvolume().next_item(&from)? {
            let key = found.key();
            if key.objectid != number || key.item_type != ItemType::DIR_INDEX || key.offset > last.0 {
                break;
            }
            let entry = DirectoryEntry::decode(found.data())
                .map_err(|fault| self.names.subvolume().damage(key, fault))?;
            if !(unless_logged && self.log.has_entry(&key, entry.name)?) {
                let inode = entry.location.objectid;
                self.names.subvolume().known_inode(inode)?;
                self.names.unlink(number, inode, entry.name)?;
            }
            match key.offset.checked_add(1) {
                Some(next) => from.offset = next,
                None => break,
            }
        }
        Ok(())
    }

    /// Brings one name of a directory into the subvolume, unless the log holds a reference to it as well,
    /// which brings it. A name of an inode that there is not is left out: fsync of a directory is none of the
    /// files in it.
    pub(super) fn replay(&mut self, key: &Key, data: &[u8]) -> Result<(), ReplayError> {
        let (number, index) = (key.objectid, DirectoryIndex(key.offset));
        let entry = DirectoryEntry::decode(data).map_err(|fault| self.log.damage(*key, fault))?;
        let wanted = (entry.location, entry.entry_type);
        let inode = entry.location.objectid;
        self.names.subvolume().known_inode(number)?;
        let exists = entry.location.item_type == ItemType::INODE_ITEM
            && self.names.subvolume().inode(inode)?.is_some();
        let by_name = self.names.entry_by_name(number, entry.name)?;
        let name_matches = self.matches_or_goes(number, entry.name, by_name, wanted, exists)?;
        let by_index = self.names.entry_by_index(number, index, entry.name)?;
        let index_matches = self.matches_or_goes(number, entry.name, by_index, wanted, exists)?;
        if (name_matches && index_matches) || !exists || self.log.has_reference(inode, number, entry.name)? {
            return Ok(());
        }
        let added = self.names.link(number, inode, entry.name, index, true)?;
        if added == Added::Yes && entry.entry_type != DirectoryEntryType::DIRECTORY {
            self.names.subvolume_mut().touch(inode);
        }
        Ok(())
    }

    /// Whether a present entry is the wanted one; else it goes, if what is to come in its place exists.
    fn matches_or_goes(
        &mut self,
        number: ObjectId,
        name: &[u8],
        present: Option<(Key, DirectoryEntryType)>,
        wanted: (Key, DirectoryEntryType),
        exists: bool,
    ) -> Result<bool, ReplayError> {
        let Some(present) = present else { return Ok(false) };
        if present == wanted {
            return Ok(true);
        }
        if exists {
            self.names.remove_conflicting(number, present.0.objectid, name)?;
        }
        Ok(false)
    }
}
