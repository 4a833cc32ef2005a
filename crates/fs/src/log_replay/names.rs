//! Adding and removing one name of an inode: the entries of the directory, the reference, and both inodes.

use vlinder_format::directory::{self, DirectoryEntry, DirectoryEntryType, DirectoryIndex};
use vlinder_format::features::IncompatFeatures;
use vlinder_format::inode::InodeItem;
use vlinder_format::inode_ref::{self, ExtendedReference, InodeReference};
use vlinder_format::log::LogFault;
use vlinder_format::{Key, ObjectId};

use super::ReplayError;
use super::subvolume::ReplayedSubvolume;
use crate::item_limit::grows_too_large;

/// What became of a name that was to be added.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Added {
    /// It is there.
    Yes,
    /// The directory or the inode has it already.
    NameTaken,
}

/// Changes names in the subvolume.
pub(super) struct NameChanges<'s, 'r, 'a> {
    subvolume: &'s mut ReplayedSubvolume<'r, 'a>,
}

impl<'s, 'r, 'a> NameChanges<'s, 'r, 'a> {
    pub(super) fn new(subvolume: &'s mut ReplayedSubvolume<'r, 'a>) -> Self {
        Self { subvolume }
    }

    pub(super) fn subvolume(&self) -> &ReplayedSubvolume<'r, 'a> {
        self.subvolume
    }

    /// The subvolume, for changes of what is no name.
    pub(super) fn subvolume_mut(&mut self) -> &mut ReplayedSubvolume<'r, 'a> {
        self.subvolume
    }
}

impl NameChanges<'_, '_, '_> {
    /// Removes a name. The inode's change time is that of the replay; the directory's times are the log's
    /// matter. Links are counted in the end.
    pub(super) fn unlink(
        &mut self,
        directory: ObjectId,
        inode: ObjectId,
        name: &[u8],
    ) -> Result<(), ReplayError> {
        let key = directory::item_key(directory, name);
        let missing = self.subvolume.damage(key, LogFault::NoName { directory, inode });
        let mut item = self.subvolume.item(&key)?.unwrap_or_default();
        if !directory::remove(&mut item, name).map_err(|fault| self.subvolume.damage(key, fault))? {
            return Err(missing.into());
        }
        self.subvolume.put_rest(key, &item)?;
        let index = self.remove_reference(inode, directory, name)?.ok_or(missing)?;
        self.subvolume.remove(directory::index_key(directory, index))?;
        let mut parent = self.subvolume.known_inode(directory)?;
        parent.size_bytes = parent.size_bytes.saturating_sub(twice_length(name));
        count_change(&mut parent);
        self.subvolume.put_inode(directory, parent)?;
        let mut item = self.subvolume.known_inode(inode)?;
        count_change(&mut item);
        item.change_time = self.subvolume.now();
        self.subvolume.put_inode(inode, item)?;
        self.subvolume.touch(inode);
        Ok(())
    }

    /// Removes a name from the inode that has it.
    pub(super) fn remove_conflicting(
        &mut self,
        directory: ObjectId,
        inode: ObjectId,
        name: &[u8],
    ) -> Result<(), ReplayError> {
        self.subvolume.known_inode(inode)?;
        self.unlink(directory, inode, name)
    }

    /// Removes the reference to a name; gives the name's index, none where the inode has no such reference.
    fn remove_reference(
        &mut self,
        inode: ObjectId,
        parent: ObjectId,
        name: &[u8],
    ) -> Result<Option<DirectoryIndex>, ReplayError> {
        let key = inode_ref::key(inode, parent);
        if let Some(mut item) = self.subvolume.item(&key)? {
            let found = inode_ref::find(&item, name).map_err(|fault| self.subvolume.damage(key, fault))?;
            if let Some(InodeReference { index, .. }) = found {
                inode_ref::remove(&mut item, name).map_err(|fault| self.subvolume.damage(key, fault))?;
                self.subvolume.put_rest(key, &item)?;
                return Ok(Some(index));
            }
        }
        let key = inode_ref::extended_key(inode, parent, name);
        let Some(mut item) = self.subvolume.item(&key)? else { return Ok(None) };
        let found = inode_ref::find_extended(&item, parent, name)
            .map_err(|fault| self.subvolume.damage(key, fault))?;
        let Some(ExtendedReference { index, .. }) = found else { return Ok(None) };
        inode_ref::remove_extended(&mut item, parent, name)
            .map_err(|fault| self.subvolume.damage(key, fault))?;
        self.subvolume.put_rest(key, &item)?;
        Ok(Some(index))
    }

    /// Adds a name to a directory, with a reference of the inode unless that comes from the log.
    pub(super) fn link(
        &mut self,
        directory: ObjectId,
        inode: ObjectId,
        name: &[u8],
        index: DirectoryIndex,
        with_reference: bool,
    ) -> Result<Added, ReplayError> {
        let key = directory::item_key(directory, name);
        let index_key = directory::index_key(directory, index);
        let taken = self.subvolume.damage(index_key, LogFault::Taken { directory, index });
        let file_type = self.subvolume.known_inode(inode)?.file_type();
        let missing = LogFault::NoInode { inode };
        // The root directory of a subvolume has no name in its own tree.
        let file_type = file_type
            .filter(|_| inode != ObjectId::FIRST_FREE)
            .ok_or_else(|| self.subvolume.damage(InodeItem::key(inode), missing))?;
        let mut item = self.subvolume.item(&key)?.unwrap_or_default();
        if directory::find(&item, name).map_err(|fault| self.subvolume.damage(key, fault))?.is_some() {
            return Ok(Added::NameTaken);
        }
        if self.subvolume.item(&index_key)?.is_some() {
            return Err(taken.into());
        }
        let entry = DirectoryEntry {
            location: InodeItem::key(inode),
            transaction: self.subvolume.generation(),
            entry_type: DirectoryEntryType::from(file_type),
            name,
            data: &[],
        };
        if !item.is_empty() && grows_too_large(item.len() + entry.encoded_len(), self.node_size()) {
            return Err(taken.into());
        }
        if with_reference && !self.add_reference(inode, directory, name, index)? {
            return Ok(Added::NameTaken);
        }
        entry.append_to(&mut item);
        self.subvolume.put(key, &item)?;
        self.subvolume.put(index_key, &entry.encode())?;
        let mut parent = self.subvolume.known_inode(directory)?;
        parent.size_bytes = parent.size_bytes.saturating_add(twice_length(name));
        count_change(&mut parent);
        self.subvolume.put_inode(directory, parent)?;
        Ok(Added::Yes)
    }

    /// Adds a reference; false where the inode has it already.
    fn add_reference(
        &mut self,
        inode: ObjectId,
        parent: ObjectId,
        name: &[u8],
        index: DirectoryIndex,
    ) -> Result<bool, ReplayError> {
        let reference = InodeReference { index, name };
        let key = inode_ref::key(inode, parent);
        let mut item = self.subvolume.item(&key)?.unwrap_or_default();
        if inode_ref::find(&item, name).map_err(|fault| self.subvolume.damage(key, fault))?.is_some() {
            return Ok(false);
        }
        if !grows_too_large(item.len() + reference.encoded_len(), self.node_size()) {
            reference.append_to(&mut item);
            self.subvolume.put(key, &item)?;
            return Ok(true);
        }
        let full = self.subvolume.damage(key, LogFault::Taken { directory: parent, index });
        if !self.subvolume.engine().superblock().incompat.has(IncompatFeatures::EXTENDED_IREF) {
            return Err(full.into());
        }
        let reference = ExtendedReference { parent, index, name };
        let key = inode_ref::extended_key(inode, parent, name);
        let mut item = self.subvolume.item(&key)?.unwrap_or_default();
        if inode_ref::find_extended(&item, parent, name)
            .map_err(|fault| self.subvolume.damage(key, fault))?
            .is_some()
        {
            return Ok(false);
        }
        if grows_too_large(item.len() + reference.encoded_len(), self.node_size()) {
            return Err(full.into());
        }
        reference.append_to(&mut item);
        self.subvolume.put(key, &item)?;
        Ok(true)
    }

    fn node_size(&self) -> usize {
        usize::try_from(self.subvolume.engine().volume().geometry().node_size).unwrap_or(usize::MAX)
    }

    /// The inode that a name stands for, by the directory's entry of the name.
    pub(super) fn entry_by_name(
        &self,
        directory: ObjectId,
        name: &[u8],
    ) -> Result<Option<(Key, DirectoryEntryType)>, ReplayError> {
        self.entry_at(&directory::item_key(directory, name), name)
    }

    /// The same by the entry at an index, if that is of the name.
    pub(super) fn entry_by_index(
        &self,
        directory: ObjectId,
        index: DirectoryIndex,
        name: &[u8],
    ) -> Result<Option<(Key, DirectoryEntryType)>, ReplayError> {
        self.entry_at(&directory::index_key(directory, index), name)
    }

    fn entry_at(&self, key: &Key, name: &[u8]) -> Result<Option<(Key, DirectoryEntryType)>, ReplayError> {
        let Some(item) = self.subvolume.item(key)? else { return Ok(None) };
        let entry = directory::find(&item, name).map_err(|fault| self.subvolume.damage(*key, fault))?;
        Ok(entry.map(|entry| (entry.location, entry.entry_type)))
    }
}

/// What a name counts in the size of its directory.
fn twice_length(name: &[u8]) -> u64 {
    u64::try_from(name.len()).unwrap_or(u64::MAX).saturating_mul(2)
}

fn count_change(item: &mut InodeItem) {
    item.sequence = item.sequence.wrapping_add(1);
}
