//! The names of a subvolume as its tree has them.

use std::collections::HashMap;

use vlinder_base::sync::{Arc, Mutex};
use vlinder_codec::compress::{Compression, decompress};
use vlinder_forest::ForestError;
use vlinder_format::directory;
use vlinder_format::file_extent::{CompressionId, FileExtent, FileExtentContent};
use vlinder_format::inode::InodeItem;
use vlinder_format::inode_ref::{ExtendedReferences, InodeReferences};
use vlinder_format::{Damage, Fault, FileOffset, ItemType, Key, ObjectId, Place};
use vlinder_tree::{Readahead, Root, Trees};

use super::{Identity, InodeFacts, Link, Names, SendError};

/// Inodes that are remembered; all of them are forgotten when there are more.
const MAX_REMEMBERED: usize = 1 << 14;

/// No sector is larger, and no inline extent is larger than a sector.
const MAX_INLINE_BYTES: usize = 64 << 10;

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

    /// Where the blocks are read.
    pub(super) fn trees(&self) -> &'a Trees {
        self.trees
    }

    /// The tree.
    pub(super) fn root(&self) -> &Arc<Root> {
        &self.root
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
        let first = Key::new(number, ItemType::XATTR_ITEM, 0);
        let mut cursor = self.trees.cursor(&self.root, &first, Readahead::None).map_err(ForestError::from)?;
        let mut items = Vec::new();
        while let Some((key, data)) = cursor.item() {
            if (key.objectid, key.item_type) != (number, ItemType::XATTR_ITEM) {
                break;
            }
            items.push((key, data.to_vec()));
            cursor.advance().map_err(ForestError::from)?;
        }
        Ok(items)
    }

    /// The target of a symbolic link.
    ///
    /// # Errors
    /// What reading met; a link whose target is not in its item, or shorter than its size says.
    pub fn symlink_target(&self, number: ObjectId, item: &InodeItem) -> Result<Vec<u8>, SendError> {
        let key = FileExtent::key(number, FileOffset(0));
        let found = self.trees.get(&self.root, &key).map_err(ForestError::from)?;
        let found = found.ok_or(SendError::MissingContent { inode: number })?;
        let place = found.place(self.root.id());
        let extent = FileExtent::decode(found.data()).map_err(|fault| damage(fault, place))?;
        let mut target = inline_bytes(&extent).ok_or(SendError::MissingContent { inode: number })?;
        let size = usize::try_from(item.size_bytes).unwrap_or(usize::MAX);
        if size > target.len() {
            return Err(SendError::MissingContent { inode: number });
        }
        target.truncate(size);
        // Some btrfs-convert put a NUL behind the target; Linux reads up to it.
        let end = target.iter().position(|byte| *byte == 0).unwrap_or(size);
        target.truncate(end);
        Ok(target)
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
        let mut links = Vec::new();
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
                    links.push((ObjectId(key.offset), reference.name.to_vec()));
                }
            } else {
                for reference in ExtendedReferences::new(data) {
                    let reference = reference.map_err(|fault| damage(fault, place))?;
                    links.push((reference.parent, reference.name.to_vec()));
                }
            }
            // The next leaf is read for nothing if the inode has all its names here.
            if !cursor.advance_in_leaf() {
                let item = self.item(inode.number)?;
                if item.is_some_and(|item| item.link_count as usize <= links.len()) {
                    break;
                }
                cursor.advance().map_err(ForestError::from)?;
            }
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

/// The bytes of an inline extent, decompressed; none for any other, and where they can't be decompressed.
fn inline_bytes(extent: &FileExtent<'_>) -> Option<Vec<u8>> {
    let FileExtentContent::Inline(stored) = extent.content else { return None };
    if extent.compression == CompressionId::NONE {
        return Some(stored.to_vec());
    }
    let compression = Compression::from_disk(extent.compression.0)?;
    let length = usize::try_from(extent.ram_bytes).unwrap_or(usize::MAX).min(MAX_INLINE_BYTES);
    let mut bytes = vec![0; length];
    decompress(compression, stored, &mut bytes, MAX_INLINE_BYTES).ok()?;
    Some(bytes)
}

/// What is wrong with an item whose block is not known any more.
pub(super) fn item_fault(fault: impl Into<Fault>, key: Key) -> SendError {
    damage(fault, Place { key: Some(key), ..Place::default() })
}

pub(super) fn damage(fault: impl Into<Fault>, place: Place) -> SendError {
    SendError::Forest(ForestError::Damage(Damage::new(fault, place)))
}
