//! The names of a subvolume as its tree has them.

use std::collections::HashMap;

use vlinder_base::sync::{Arc, Mutex};
use vlinder_forest::{ForestError, StoredName, SubvolumeTree};
use vlinder_format::inode::InodeItem;
use vlinder_format::{Damage, Fault, ItemType, Key, ObjectId, Place};
use vlinder_tree::{Root, Trees};

use super::{Identity, InodeFacts, Link, Names, SendError};

/// Inodes that are remembered; all of them are forgotten when there are more.
const MAX_REMEMBERED: usize = 1 << 14;

/// The names in a tree that stands still: a read-only snapshot in a leased state.
pub struct TreeNames<'a> {
    tree: SubvolumeTree<'a>,
    /// Directories are asked for again and again, by each name in them.
    directories: Mutex<HashMap<ObjectId, InodeFacts>>,
}

impl<'a> TreeNames<'a> {
    /// The names in a tree.
    pub fn new(trees: &'a Trees, root: Arc<Root>) -> Self {
        Self { tree: SubvolumeTree::new(trees, root), directories: Mutex::default() }
    }

    /// The tree, for look-ups.
    pub(super) fn tree(&self) -> &SubvolumeTree<'a> {
        &self.tree
    }

    /// The item of an inode; none if there is no such inode, or one without names.
    ///
    /// # Errors
    /// What reading met.
    pub fn item(&self, number: ObjectId) -> Result<Option<InodeItem>, SendError> {
        Ok(self.tree.inode(number)?.filter(|item| item.link_count > 0))
    }

    /// What the planning of names asks about an inode that must be there.
    ///
    /// # Errors
    /// What reading met; there is no such inode.
    pub(super) fn facts(&self, number: ObjectId) -> Result<InodeFacts, SendError> {
        self.inode(number)?.ok_or(SendError::MissingInode { inode: number })
    }

    /// A path of a file in this tree.
    ///
    /// # Errors
    /// What reading met; a path that is longer than any, or goes in a circle.
    pub(super) fn path(&self, number: ObjectId) -> Result<Vec<u8>, SendError> {
        let mut identity = self.facts(number)?.identity;
        let (mut components, mut bytes) = (Vec::new(), 0);
        while identity != Identity::ROOT {
            let link = self.links(identity)?.into_iter().next();
            let link = link.ok_or(SendError::WrongNames { inode: identity.number, names: 0 })?;
            bytes += link.name.len() + 1;
            if bytes > usize::from(u16::MAX) {
                return Err(SendError::PathTooLong { inode: number });
            }
            components.push(link.name);
            identity = link.parent;
        }
        components.reverse();
        Ok(components.join(&b'/'))
    }

    /// The items of an inode's extended attributes.
    ///
    /// # Errors
    /// What reading met.
    pub fn attributes(&self, number: ObjectId) -> Result<Vec<(Key, Vec<u8>)>, SendError> {
        Ok(self.tree.attributes(number)?)
    }

    /// The target of a symbolic link.
    ///
    /// # Errors
    /// What reading met; a link whose target is not in its item, or shorter than its size says.
    pub fn symlink_target(&self, number: ObjectId, item: &InodeItem) -> Result<Vec<u8>, SendError> {
        self.tree.symlink_target(number, item)?.ok_or(SendError::MissingContent { inode: number })
    }

    fn identity(&self, number: ObjectId) -> Result<Identity, SendError> {
        Ok(self.facts(number)?.identity)
    }
}

impl Names for TreeNames<'_> {
    fn inode(&self, number: ObjectId) -> Result<Option<InodeFacts>, SendError> {
        if let Some(facts) = self.directories.lock().get(&number) {
            return Ok(Some(*facts));
        }
        let Some(item) = self.item(number)? else { return Ok(None) };
        let facts = facts(number, &item);
        if facts.is_directory {
            let mut directories = self.directories.lock();
            if directories.len() >= MAX_REMEMBERED {
                directories.clear();
            }
            directories.insert(number, facts);
        }
        Ok(Some(facts))
    }

    fn links(&self, inode: Identity) -> Result<Vec<Link>, SendError> {
        let with_parent = |StoredName { parent, name }| Ok(Link { parent: self.identity(parent)?, name });
        self.tree.names(inode.number)?.into_iter().map(with_parent).collect()
    }

    fn entry(&self, directory: Identity, name: &[u8]) -> Result<Option<InodeFacts>, SendError> {
        match self.tree.entry(directory.number, name)? {
            // A subvolume stands in its directory by the key of its root item.
            Some(location) if location.item_type == ItemType::INODE_ITEM => self.inode(location.objectid),
            _ => Ok(None),
        }
    }
}

/// What the planning of names asks about an inode.
pub(super) fn facts(number: ObjectId, item: &InodeItem) -> InodeFacts {
    let identity = Identity { number, generation: item.generation };
    InodeFacts {
        identity: if number == Identity::ROOT.number { Identity::ROOT } else { identity },
        is_directory: item.mode.is_directory(),
    }
}

/// What is wrong with an item whose block is not known any more.
pub(super) fn item_fault(fault: impl Into<Fault>, key: Key) -> SendError {
    damage(fault, Place { key: Some(key), ..Place::default() })
}

pub(super) fn damage(fault: impl Into<Fault>, place: Place) -> SendError {
    SendError::Forest(ForestError::Damage(Damage::new(fault, place)))
}
