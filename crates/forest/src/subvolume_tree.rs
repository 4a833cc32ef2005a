//! The inodes and names of a subvolume as its tree has them.

use vlinder_base::sync::Arc;
use vlinder_codec::compress::{Compression, decompress};
use vlinder_format::directory;
use vlinder_format::file_extent::{CompressionId, FileExtent, FileExtentContent};
use vlinder_format::inode::InodeItem;
use vlinder_format::inode_ref::{ExtendedReferences, InodeReferences};
use vlinder_format::{Damage, Fault, FileOffset, ItemType, Key, ObjectId, Place};
use vlinder_tree::{Readahead, Root, Trees};

use crate::ForestError;

/// No sector is larger, and no inline extent is larger than a sector.
const MAX_INLINE_BYTES: usize = 64 << 10;

/// A name of an inode as the inode's own items have it.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct StoredName {
    /// The number of the directory.
    pub parent: ObjectId,
    /// The name in it.
    pub name: Vec<u8>,
}

/// Look-ups in the tree of a subvolume that stands still: a read-only snapshot, or a tree of a leased state.
pub struct SubvolumeTree<'a> {
    trees: &'a Trees,
    root: Arc<Root>,
}

impl<'a> SubvolumeTree<'a> {
    /// A subvolume's tree, whose blocks come from `trees`.
    #[must_use]
    pub fn new(trees: &'a Trees, root: Arc<Root>) -> Self {
        Self { trees, root }
    }

    /// Where the blocks are read.
    #[must_use]
    pub fn trees(&self) -> &'a Trees {
        self.trees
    }

    /// The tree.
    #[must_use]
    pub fn root(&self) -> &Arc<Root> {
        &self.root
    }

    /// The item of an inode; none if there is no such inode.
    ///
    /// # Errors
    /// What reading met.
    pub fn inode(&self, number: ObjectId) -> Result<Option<InodeItem>, ForestError> {
        let key = Key::new(number, ItemType::INODE_ITEM, 0);
        let Some(position) = self.trees.get(&self.root, &key)? else { return Ok(None) };
        let place = position.place(self.root.id());
        Ok(Some(InodeItem::decode(position.data()).map_err(|fault| damage(fault, place))?))
    }

    /// All names of an inode, in the order of its items: that is of the directories' numbers, but for names
    /// that had no room there.
    ///
    /// # Errors
    /// What reading met.
    pub fn names(&self, number: ObjectId) -> Result<Vec<StoredName>, ForestError> {
        let mut names = Vec::new();
        let first = Key::new(number, ItemType::INODE_REF, 0);
        let mut cursor = self.trees.cursor(&self.root, &first, Readahead::None)?;
        while let Some((key, data)) = cursor.item() {
            if key.objectid != number || key.item_type > ItemType::INODE_EXTREF {
                break;
            }
            let place = cursor.place();
            if key.item_type == ItemType::INODE_REF {
                for reference in InodeReferences::new(data) {
                    let reference = reference.map_err(|fault| damage(fault, place))?;
                    let parent = ObjectId(key.offset);
                    names.push(StoredName { parent, name: reference.name.to_vec() });
                }
            } else if key.item_type == ItemType::INODE_EXTREF {
                for reference in ExtendedReferences::new(data) {
                    let reference = reference.map_err(|fault| damage(fault, place))?;
                    names.push(StoredName { parent: reference.parent, name: reference.name.to_vec() });
                }
            }
            // The next leaf is read for nothing if the inode has all its names here.
            if !cursor.advance_in_leaf() {
                let item = self.inode(number)?;
                if item.is_some_and(|item| item.link_count as usize <= names.len()) {
                    break;
                }
                cursor.advance()?;
            }
        }
        Ok(names)
    }

    /// The first name of an inode, as its first INODE_REF item has it: of the directory with the lowest
    /// number. None if it has no such item.
    ///
    /// # Errors
    /// What reading met.
    pub fn first_name(&self, number: ObjectId) -> Result<Option<StoredName>, ForestError> {
        let first = Key::new(number, ItemType::INODE_REF, 0);
        let cursor = self.trees.cursor(&self.root, &first, Readahead::None)?;
        let Some((key, data)) = cursor.item() else { return Ok(None) };
        if (key.objectid, key.item_type) != (number, ItemType::INODE_REF) {
            return Ok(None);
        }
        let Some(reference) = InodeReferences::new(data).next() else { return Ok(None) };
        let reference = reference.map_err(|fault| damage(fault, cursor.place()))?;
        Ok(Some(StoredName { parent: ObjectId(key.offset), name: reference.name.to_vec() }))
    }

    /// The key of what has a name in a directory: of an inode item, or of a subvolume's root item. None if
    /// nothing has it.
    ///
    /// # Errors
    /// What reading met.
    pub fn entry(&self, directory: ObjectId, name: &[u8]) -> Result<Option<Key>, ForestError> {
        let key = directory::item_key(directory, name);
        let Some(position) = self.trees.get(&self.root, &key)? else { return Ok(None) };
        let place = position.place(self.root.id());
        let found = directory::find(position.data(), name).map_err(|fault| damage(fault, place))?;
        Ok(found.map(|entry| entry.location))
    }

    /// The items of an inode's extended attributes.
    ///
    /// # Errors
    /// What reading met.
    pub fn attributes(&self, number: ObjectId) -> Result<Vec<(Key, Vec<u8>)>, ForestError> {
        let first = Key::new(number, ItemType::XATTR_ITEM, 0);
        let mut cursor = self.trees.cursor(&self.root, &first, Readahead::None)?;
        let mut items = Vec::new();
        while let Some((key, data)) = cursor.item() {
            if (key.objectid, key.item_type) != (number, ItemType::XATTR_ITEM) {
                break;
            }
            items.push((key, data.to_vec()));
            cursor.advance()?;
        }
        Ok(items)
    }

    /// The target of a symbolic link; none where it is not in the link's item, or shorter than the inode's
    /// size says.
    ///
    /// # Errors
    /// What reading met.
    pub fn symlink_target(&self, number: ObjectId, item: &InodeItem) -> Result<Option<Vec<u8>>, ForestError> {
        let key = FileExtent::key(number, FileOffset(0));
        let Some(found) = self.trees.get(&self.root, &key)? else { return Ok(None) };
        let place = found.place(self.root.id());
        let extent = FileExtent::decode(found.data()).map_err(|fault| damage(fault, place))?;
        let size = usize::try_from(item.size_bytes).unwrap_or(usize::MAX);
        let Some(mut target) = inline_bytes(&extent).filter(|target| size <= target.len()) else {
            return Ok(None);
        };
        target.truncate(size);
        // Some btrfs-convert put a NUL behind the target; Linux reads up to it.
        let end = target.iter().position(|byte| *byte == 0).unwrap_or(size);
        target.truncate(end);
        Ok(Some(target))
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

fn damage(fault: impl Into<Fault>, place: Place) -> ForestError {
    ForestError::Damage(Damage::new(fault, place))
}
