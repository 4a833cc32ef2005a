//! Directories: names that were deleted within the ranges that a log speaks for, and names that it adds.

use vlinder_format::directory::{self, DirectoryEntry, DirectoryEntryType, DirectoryIndex};
use vlinder_format::log::DirectoryLogRange;
use vlinder_format::{Damage, ItemType, Key, ObjectId, RootId, inode_ref};

use super::ReplayError;
use super::names::Added;
use super::target::Target;

impl Target<'_, '_> {
    /// Removes the names of a directory whose indexes lie in a range of the log that does not hold them. Of a
    /// directory that is new there are none.
    pub(super) fn remove_unlogged_names(&mut self, number: ObjectId) -> Result<(), ReplayError> {
        if self.inode(number)?.is_none() {
            return Ok(());
        }
        let mut next = DirectoryIndex(0);
        loop {
            let from = DirectoryLogRange::key(number, next);
            let before = self.engine.forest().trees().floor(self.log, &from)?;
            // A range that began before may go on here.
            let before = before.filter(|found| is_range_of(&found.key(), number));
            let covers = |found: &vlinder_tree::Position| {
                DirectoryLogRange::decode(found.data()).is_ok_and(|range| range.last >= next)
            };
            let found = match before.filter(covers) {
                Some(found) => Some(found),
                None => self.engine.forest().trees().ceiling(self.log, &from)?,
            };
            let Some(found) = found.filter(|found| is_range_of(&found.key(), number)) else { return Ok(()) };
            let range = DirectoryLogRange::decode(found.data())
                .map_err(|fault| Damage::new(fault, found.place(RootId::TREE_LOG)))?;
            let first = next.max(DirectoryIndex(found.key().offset));
            self.remove_names_within(number, first, range.last, true)?;
            match range.last.0.checked_add(1) {
                Some(behind) => next = DirectoryIndex(behind),
                None => return Ok(()),
            }
        }
    }

    /// Removes all names of a directory.
    pub(super) fn remove_all_names(&mut self, number: ObjectId) -> Result<(), ReplayError> {
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
        while let Some(found) = self.next_item(&from)? {
            let key = found.key();
            if key.objectid != number || key.item_type != ItemType::DIR_INDEX || key.offset > last.0 {
                break;
            }
            let entry = DirectoryEntry::decode(found.data()).map_err(|fault| self.damage(key, fault))?;
            if !(unless_logged && self.log_has_entry(&key, entry.name)?) {
                let inode = entry.location.objectid;
                self.known_inode(inode)?;
                self.unlink(number, inode, entry.name)?;
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
    pub(super) fn replay_name(&mut self, key: &Key, data: &[u8]) -> Result<(), ReplayError> {
        let (number, index) = (key.objectid, DirectoryIndex(key.offset));
        let entry = DirectoryEntry::decode(data).map_err(|fault| self.log_damage(*key, fault))?;
        let wanted = (entry.location, entry.entry_type);
        let inode = entry.location.objectid;
        self.known_inode(number)?;
        let exists = entry.location.item_type == ItemType::INODE_ITEM && self.inode(inode)?.is_some();
        let by_name = self.entry_by_name(number, entry.name)?;
        let name_matches = self.matches_or_goes(number, entry.name, by_name, wanted, exists)?;
        let by_index = self.entry_by_index(number, index, entry.name)?;
        let index_matches = self.matches_or_goes(number, entry.name, by_index, wanted, exists)?;
        if (name_matches && index_matches) || !exists || self.log_has_reference(inode, number, entry.name)? {
            return Ok(());
        }
        let added = self.link(number, inode, entry.name, index, true)?;
        if added == Added::Yes && entry.entry_type != DirectoryEntryType::DIRECTORY {
            self.touched.insert(inode);
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
            self.remove_conflicting(number, present.0.objectid, name)?;
        }
        Ok(false)
    }

    /// Whether the log holds the reference of an inode to a name. Linux looks for an extended one under the
    /// number of the directory instead of the hash, so it finds none but by chance; what is added for that
    /// reason goes again when the reference is replayed. To end with the same items the same is done here.
    fn log_has_reference(&self, inode: ObjectId, parent: ObjectId, name: &[u8]) -> Result<bool, ReplayError> {
        let extended = Key::new(inode, ItemType::INODE_EXTREF, parent.0);
        Ok(self.log_has_name(&inode_ref::key(inode, parent), parent, name)?
            || self.log_has_name(&extended, parent, name)?)
    }
}

fn is_range_of(key: &Key, directory: ObjectId) -> bool {
    key.objectid == directory && key.item_type == ItemType::DIR_LOG_INDEX
}
