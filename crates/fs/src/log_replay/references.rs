//! References of inodes to their names: each brings its name into the directory. Names of the same inode in
//! the same directory that the log does not hold were removed; other inodes give way.

use vlinder_format::directory::DirectoryIndex;
use vlinder_format::inode_ref::{
    self, ExtendedReferences, InodeReferenceFault, InodeReferences, find_extended,
};
use vlinder_format::log::LogFault;
use vlinder_format::{ItemType, Key, ObjectId};

use super::ReplayError;
use super::logged_items::LoggedItems;
use super::names::{Added, NameChanges};
use super::subvolume::ReplayedSubvolume;

/// One name of an item of references.
#[derive(Clone, Debug)]
struct LoggedName {
    parent: ObjectId,
    index: DirectoryIndex,
    name: Vec<u8>,
}

/// The names of an INODE_REF or INODE_EXTREF.
fn names_of(key: &Key, data: &[u8]) -> Result<Vec<LoggedName>, InodeReferenceFault> {
    if key.item_type == ItemType::INODE_EXTREF {
        let name = |reference: inode_ref::ExtendedReference<'_>| LoggedName {
            parent: reference.parent,
            index: reference.index,
            name: reference.name.to_vec(),
        };
        return ExtendedReferences::new(data).map(|reference| reference.map(name)).collect();
    }
    let name = |reference: inode_ref::InodeReference<'_>| LoggedName {
        parent: ObjectId(key.offset),
        index: reference.index,
        name: reference.name.to_vec(),
    };
    InodeReferences::new(data).map(|reference| reference.map(name)).collect()
}

/// Brings the references of a log, and their names, into the subvolume.
pub(super) struct ReferenceReplay<'s, 'r, 'a> {
    names: NameChanges<'s, 'r, 'a>,
    log: LoggedItems<'r>,
}

impl<'s, 'r, 'a> ReferenceReplay<'s, 'r, 'a> {
    pub(super) fn new(subvolume: &'s mut ReplayedSubvolume<'r, 'a>, log: LoggedItems<'r>) -> Self {
        Self { names: NameChanges::new(subvolume), log }
    }
}

impl ReferenceReplay<'_, '_, '_> {
    /// Brings the names of one item of references, and the item, into the subvolume. Where their directory is
    /// neither there nor in the log, nothing is done.
    pub(super) fn replay(&mut self, key: Key, data: &[u8]) -> Result<(), ReplayError> {
        let inode = key.objectid;
        let names = names_of(&key, data).map_err(|fault| self.log.damage(key, fault))?;
        let Some(first) = names.first() else { return Ok(()) };
        if self.names.subvolume().inode(first.parent)?.is_none() {
            return Ok(());
        }
        self.names.subvolume().known_inode(inode)?;
        for name in &names {
            if self.names.subvolume().inode(name.parent)?.is_none() || self.has_name(inode, name)? {
                continue;
            }
            if !self.make_way(inode, name)? {
                return Ok(());
            }
            let LoggedName { parent, index, name } = name;
            if self.names.link(*parent, inode, name, *index, false)? == Added::NameTaken {
                let fault = LogFault::Taken { directory: *parent, index: *index };
                return Err(self.log.damage(key, fault).into());
            }
        }
        self.remove_replaced_names(&key, &names)?;
        self.names.subvolume_mut().put(key, data)
    }

    /// Whether the directory has the name at its index and by its hash, both for this inode.
    fn has_name(&self, inode: ObjectId, name: &LoggedName) -> Result<bool, ReplayError> {
        let by_index = self.names.entry_by_index(name.parent, name.index, &name.name)?;
        let by_name = self.names.entry_by_name(name.parent, &name.name)?;
        Ok([by_index, by_name].iter().all(|entry| entry.is_some_and(|(key, _)| key.objectid == inode)))
    }

    /// Removes what is in the way of a name: names that the inode had in the same item and the log does not
    /// hold, and the name or index itself where another has it. False for the reference of the root directory
    /// to itself, which stays.
    fn make_way(&mut self, inode: ObjectId, name: &LoggedName) -> Result<bool, ReplayError> {
        let key = inode_ref::key(inode, name.parent);
        if let Some(item) = self.names.subvolume().item(&key)? {
            if inode == name.parent {
                return Ok(false);
            }
            self.remove_unlogged_references(&key, &item, name.parent)?;
        }
        let key = inode_ref::extended_key(inode, name.parent, &name.name);
        if let Some(item) = self.names.subvolume().item(&key)? {
            let has_it = find_extended(&item, name.parent, &name.name);
            if has_it.map_err(|fault| self.names.subvolume().damage(key, fault))?.is_some() {
                self.remove_unlogged_references(&key, &item, name.parent)?;
            }
        }
        if let Some((location, _)) = self.names.entry_by_index(name.parent, name.index, &name.name)? {
            self.names.remove_conflicting(name.parent, location.objectid, &name.name)?;
        }
        if let Some((location, _)) = self.names.entry_by_name(name.parent, &name.name)? {
            self.names.remove_conflicting(name.parent, location.objectid, &name.name)?;
        }
        Ok(true)
    }

    fn remove_unlogged_references(
        &mut self,
        key: &Key,
        item: &[u8],
        parent: ObjectId,
    ) -> Result<(), ReplayError> {
        let names = names_of(key, item).map_err(|fault| self.names.subvolume().damage(*key, fault))?;
        for stored in names.iter().filter(|stored| stored.parent == parent) {
            if !self.log.has_name(key, parent, &stored.name)? {
                self.names.unlink(parent, key.objectid, &stored.name)?;
            }
        }
        Ok(())
    }

    /// Names of the stored item that the log's item of the same key does not hold go, before that replaces
    /// it.
    fn remove_replaced_names(&mut self, key: &Key, logged: &[LoggedName]) -> Result<(), ReplayError> {
        let Some(item) = self.names.subvolume().item(key)? else { return Ok(()) };
        let names = names_of(key, &item).map_err(|fault| self.names.subvolume().damage(*key, fault))?;
        for stored in names {
            let is_logged =
                logged.iter().any(|name| name.parent == stored.parent && name.name == stored.name);
            if !is_logged {
                self.names.subvolume().known_inode(stored.parent)?;
                self.names.unlink(stored.parent, key.objectid, &stored.name)?;
            }
        }
        Ok(())
    }
}
