//! What a name in a directory stands for, and which name a file has.

use vlinder_data::InodeId;
use vlinder_format::directory::{self, DirectoryEntry, DirectoryEntryType};
use vlinder_format::inode_ref::{self, InodeReferences};
use vlinder_format::{Damage, ItemType, Key, ObjectId, RootId};

use crate::inode::Inode;
use crate::subvolume::place::DirectoryTree;
use crate::subvolume::place_in_tree;
use crate::{Refusal, Result};

/// What a name in a directory stands for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct NameTarget {
    /// The inode, or the root directory of a subvolume, or the placeholder of one that is not there.
    pub(crate) id: InodeId,
    /// The location in the entry.
    pub(crate) location: Key,
    /// The entry's type.
    pub(crate) entry_type: DirectoryEntryType,
}

impl NameTarget {
    /// The subvolume that the entry names, there or not.
    pub(crate) fn subvolume(&self) -> Option<RootId> {
        (self.location.item_type == ItemType::ROOT_ITEM).then_some(RootId(self.location.objectid.0))
    }
}

impl DirectoryTree {
    /// What a name stands for; the caller holds the directory's operation lock.
    pub(crate) fn find_target(&self, directory: &Inode, name: &[u8]) -> Result<Option<NameTarget>> {
        if directory.is_placeholder() {
            return Ok(None);
        }
        let key = directory::item_key(directory.number(), name);
        let subvolume = directory.subvolume();
        let Some(found) = self.engine().forest().trees().get(subvolume.tree().root(), &key)? else {
            return Ok(None);
        };
        let entry = directory::find(found.data(), name)
            .map_err(|fault| Damage::new(fault, found.place(subvolume.id())))?;
        entry.map(|entry| self.resolve(directory, &entry, key)).transpose()
    }

    /// The id behind an entry.
    fn resolve(&self, directory: &Inode, entry: &DirectoryEntry<'_>, key: Key) -> Result<NameTarget> {
        let root = directory.id().root;
        let location = entry.location;
        let id = match location.item_type {
            ItemType::INODE_ITEM => InodeId::new(root, location.objectid),
            ItemType::ROOT_ITEM => {
                let nested = RootId(location.objectid.0);
                if self.is_mounted_at(nested, directory, entry.name)? {
                    InodeId::root_of(nested)
                } else {
                    directory.subvolume().note_absent(nested, directory.number());
                    InodeId::placeholder(root, nested)
                }
            }
            found => {
                let fault = directory::DirectoryFault::LocationType { found };
                return Err(Damage::new(fault, place_in_tree(directory.subvolume(), key)).into());
            }
        };
        Ok(NameTarget { id, location, entry_type: entry.entry_type })
    }

    /// The directory that a directory lies in; that of the shown root, and of a subvolume without a name, is
    /// itself.
    ///
    /// # Errors
    /// What reading met.
    pub(crate) fn lookup_parent(&self, directory: &Inode) -> Result<InodeId> {
        let id = directory.id();
        if id == self.root_id() {
            return Ok(id);
        }
        if id.is_subvolume_root() {
            return Ok(self.place_of_subvolume(id.root)?.map_or(id, |place| place.directory));
        }
        if let Some(absent) = id.absent {
            let place = directory.subvolume().place_of_absent(absent).unwrap_or(ObjectId::FIRST_FREE);
            return Ok(InodeId::new(id.root, place));
        }
        let first = inode_ref::key(id.number, ObjectId(0));
        let found = self.engine().forest().trees().ceiling(directory.subvolume().tree().root(), &first)?;
        let found = found.filter(|position| {
            position.key().objectid == id.number && position.key().item_type == ItemType::INODE_REF
        });
        let parent = found.ok_or(Refusal::NotFound)?.key().offset;
        Ok(InodeId::new(id.root, ObjectId(parent)))
    }

    /// One name of a file, for showing where it is: its directory, and the name there.
    ///
    /// # Errors
    /// What reading met.
    pub(crate) fn first_name(&self, inode: &Inode) -> Result<Option<(InodeId, Vec<u8>)>> {
        let id = inode.id();
        if id.is_subvolume_root() {
            return Ok(self.place_of_subvolume(id.root)?.map(|place| (place.directory, place.name)));
        }
        let first = inode_ref::key(id.number, ObjectId(0));
        let tree = inode.subvolume().tree();
        let Some(found) = self.engine().forest().trees().ceiling(tree.root(), &first)? else {
            return Ok(None);
        };
        if found.key().objectid != id.number {
            return Ok(None);
        }
        let damage = |fault: inode_ref::InodeReferenceFault| Damage::new(fault, found.place(id.root));
        match found.key().item_type {
            ItemType::INODE_REF => {
                let Some(reference) = InodeReferences::new(found.data()).next() else { return Ok(None) };
                let reference = reference.map_err(damage)?;
                let parent = InodeId::new(id.root, ObjectId(found.key().offset));
                Ok(Some((parent, reference.name.to_vec())))
            }
            ItemType::INODE_EXTREF => {
                let Some(reference) = inode_ref::ExtendedReferences::new(found.data()).next() else {
                    return Ok(None);
                };
                let reference = reference.map_err(damage)?;
                Ok(Some((InodeId::new(id.root, reference.parent), reference.name.to_vec())))
            }
            _ => Ok(None),
        }
    }
}
