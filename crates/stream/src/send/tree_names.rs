//! The names of a subvolume as its tree has them.

use std::collections::HashMap;

use vlinder_base::sync::{Arc, Mutex};
use vlinder_forest::ForestError;
use vlinder_format::directory;
use vlinder_format::inode::InodeItem;
use vlinder_format::inode_ref::{ExtendedReferences, InodeReferences};
use vlinder_format::{Damage, Fault, ItemType, Key, ObjectId, Place};
use vlinder_tree::{Readahead, Root, Trees};

use super::{Identity, InodeFacts, Link, Names, SendError};

/// Inodes that are remembered; all of them are forgotten when there are more.
const MAX_REMEMBERED: usize = 1 << 14;

/// The names in a tree that stands still: a read-only snapshot in a leased state.
pub struct TreeNames<'a> {
    trees: &'a Trees,
    root: Arc<Root>,
    /// Directories are asked for again and again, by each name in them.
    directories: Mutex<HashMap<ObjectId, InodeFacts>>,
}

impl<'a> TreeNames<'a> {
    /// The names in a tree.
    pub fn new(trees: &'a Trees, root: Arc<Root>) -> Self {
        Self { trees, root, directories: Mutex::default() }
    }

    /// The item of an inode; none if there is no such inode, or one without names.
    ///
    /// # Errors
    /// What reading met.
    pub fn item(&self, number: ObjectId) -> Result<Option<InodeItem>, SendError> {
        let key = Key::new(number, ItemType::INODE_ITEM, 0);
        let Some(position) = self.trees.get(&self.root, &key).map_err(ForestError::from)? else {
            return Ok(None);
        };
        let place = position.place(self.root.id());
        let item = InodeItem::decode(position.data()).map_err(|fault| damage(fault, place))?;
        Ok(Some(item).filter(|item| item.link_count > 0))
    }

    fn identity(&self, number: ObjectId) -> Result<Identity, SendError> {
        let facts = self.inode(number)?.ok_or(SendError::MissingInode { inode: number })?;
        Ok(facts.identity)
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
        let mut links = Vec::new();
        let mut add = |parent: ObjectId, name: &[u8]| {
            links.push((parent, name.to_vec()));
        };
        let first = Key::new(inode.number, ItemType::INODE_REF, 0);
        let mut cursor = self.trees.cursor(&self.root, &first, Readahead::None).map_err(ForestError::from)?;
        while let Some((key, data)) = cursor.item() {
            if key.objectid != inode.number || key.item_type > ItemType::INODE_EXTREF {
                break;
            }
            let place = cursor.place();
            if key.item_type == ItemType::INODE_REF {
                for reference in InodeReferences::new(data) {
                    let reference = reference.map_err(|fault| damage(fault, place))?;
                    add(ObjectId(key.offset), reference.name);
                }
            } else {
                for reference in ExtendedReferences::new(data) {
                    let reference = reference.map_err(|fault| damage(fault, place))?;
                    add(reference.parent, reference.name);
                }
            }
            cursor.advance().map_err(ForestError::from)?;
        }
        let with_parent = |(parent, name)| Ok(Link { parent: self.identity(parent)?, name });
        links.into_iter().map(with_parent).collect()
    }

    fn entry(&self, directory: Identity, name: &[u8]) -> Result<Option<InodeFacts>, SendError> {
        let key = directory::item_key(directory.number, name);
        let Some(position) = self.trees.get(&self.root, &key).map_err(ForestError::from)? else {
            return Ok(None);
        };
        let place = position.place(self.root.id());
        let found = directory::find(position.data(), name).map_err(|fault| damage(fault, place))?;
        match found {
            // A subvolume stands in its directory by the key of its root item.
            Some(entry) if entry.location.item_type == ItemType::INODE_ITEM => {
                self.inode(entry.location.objectid)
            }
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

fn damage(fault: impl Into<Fault>, place: Place) -> SendError {
    SendError::Forest(ForestError::Damage(Damage::new(fault, place)))
}
