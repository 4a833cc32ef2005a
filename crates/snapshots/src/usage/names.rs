//! Names in directories: what is measured is found by them.

use std::collections::BTreeSet;

use vlinder_base::sync::Arc;
use vlinder_forest::{Forest, OpenTree};
use vlinder_format::directory::{DirectoryEntry, DirectoryEntryType};
use vlinder_format::inode::InodeItem;
use vlinder_format::root_ref::RootReference;
use vlinder_format::{Damage, ItemType, Key, ObjectId, RootId, orphan};
use vlinder_tree::{Cursor, Readahead};

use super::error::UsageError;

/// Leaves that a walk of a directory reads ahead.
const READ_AHEAD: usize = 8;

/// What is measured: a file or directory of a subvolume, or the subvolume whose root directory it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct UsageTarget<'n> {
    /// The subvolume.
    pub root: RootId,
    /// The inode.
    pub inode: ObjectId,
    /// The directory and name by which it was found, which a deletion would take away. Not asked for where
    /// it is a directory.
    pub name: Option<(ObjectId, &'n [u8])>,
}

/// A name's meaning, as far as usage is concerned.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Entry {
    /// A regular file.
    File(ObjectId),
    /// A directory of the same subvolume.
    Directory(ObjectId),
    /// A subvolume that lies here.
    Subvolume(RootId),
    /// Where a subvolume lies in the source of a snapshot: an empty directory.
    NoSubvolume,
}

/// The names of one directory in their order.
pub(super) struct DirectoryNames<'a> {
    forest: &'a Forest,
    tree: Arc<OpenTree>,
    directory: ObjectId,
    /// The least index that was not looked at; none at the end.
    next: Option<u64>,
    /// None while nobody reads on: a cursor keeps a block in memory, and directories may lie deep.
    cursor: Option<Cursor<'a>>,
}

impl<'a> DirectoryNames<'a> {
    pub(super) fn new(forest: &'a Forest, tree: &Arc<OpenTree>, directory: ObjectId) -> Self {
        Self { forest, tree: Arc::clone(tree), directory, next: Some(0), cursor: None }
    }

    /// The directory.
    pub(super) fn inode(&self) -> ObjectId {
        self.directory
    }

    /// Lets go of what is kept for reading on.
    pub(super) fn pause(&mut self) {
        self.cursor = None;
    }

    /// The next name of a regular file, directory or subvolume; none at the end.
    pub(super) fn next(&mut self) -> Result<Option<(Vec<u8>, Entry)>, UsageError> {
        while let Some(index) = self.next {
            let cursor = match &mut self.cursor {
                Some(cursor) => cursor,
                none => {
                    let first = Key::new(self.directory, ItemType::DIR_INDEX, index);
                    let ahead = Readahead::Forward(READ_AHEAD);
                    none.insert(self.forest.trees().cursor(self.tree.root(), &first, ahead)?)
                }
            };
            let is_here = |key: &Key| key.objectid == self.directory && key.item_type == ItemType::DIR_INDEX;
            let Some((key, data)) = cursor.item().filter(|(key, _)| is_here(key)) else {
                self.next = None;
                break;
            };
            let place = cursor.place();
            let entry = DirectoryEntry::decode(data).map_err(|fault| Damage::new(fault, place))?;
            let (name, location, entry_type) = (entry.name.to_vec(), entry.location, entry.entry_type);
            self.next = key.offset.checked_add(1);
            cursor.advance()?;
            let found = match (location.item_type, entry_type) {
                (ItemType::INODE_ITEM, DirectoryEntryType::REGULAR) => Some(Entry::File(location.objectid)),
                (ItemType::INODE_ITEM, DirectoryEntryType::DIRECTORY) => {
                    Some(Entry::Directory(location.objectid))
                }
                (ItemType::ROOT_ITEM, DirectoryEntryType::DIRECTORY) => {
                    let here = self.subvolume_here(RootId(location.objectid.0), &name)?;
                    Some(here.map_or(Entry::NoSubvolume, Entry::Subvolume))
                }
                _ => None,
            };
            if let Some(found) = found {
                return Ok(Some((name, found)));
            }
        }
        self.cursor = None;
        Ok(None)
    }

    /// The subvolume of an entry, if it lies here: a snapshot has the names of the subvolumes in its source,
    /// and they show empty directories.
    fn subvolume_here(&self, subvolume: RootId, name: &[u8]) -> Result<Option<RootId>, UsageError> {
        let key = RootReference::forward_key(self.tree.id(), subvolume);
        let Some(found) = self.forest.trees().get(self.forest.root_tree(), &key)? else { return Ok(None) };
        let reference = RootReference::decode(found.data())
            .map_err(|fault| Damage::new(fault, found.place(RootId::ROOT_TREE)))?;
        Ok((reference.directory == self.directory && reference.name == name).then_some(subvolume))
    }
}

/// An inode item.
pub(super) fn inode_item(
    forest: &Forest,
    tree: &Arc<OpenTree>,
    inode: ObjectId,
) -> Result<Option<InodeItem>, UsageError> {
    let key = Key::new(inode, ItemType::INODE_ITEM, 0);
    let Some(found) = forest.trees().get(tree.root(), &key)? else { return Ok(None) };
    let item = InodeItem::decode(found.data()).map_err(|fault| Damage::new(fault, found.place(tree.id())))?;
    Ok(Some(item))
}

/// A subvolume, and those that lie in it at any depth.
pub(super) fn with_nested(forest: &Forest, root: RootId) -> Result<Vec<RootId>, UsageError> {
    let (mut all, mut seen, mut next) = (vec![root], BTreeSet::from([root]), 0);
    while let Some(parent) = all.get(next).copied() {
        next = next.saturating_add(1);
        let first = Key::new(parent.object_id(), ItemType::ROOT_REF, 0);
        let mut cursor = forest.trees().cursor(forest.root_tree(), &first, Readahead::None)?;
        while let Some(key) = cursor.key() {
            if key.objectid != parent.object_id() || key.item_type != ItemType::ROOT_REF {
                break;
            }
            // One that lies in itself is there once.
            if seen.insert(RootId(key.offset)) {
                all.push(RootId(key.offset));
            }
            cursor.advance()?;
        }
    }
    Ok(all)
}

/// The inodes of a subvolume that have no name any more, and whose data are not freed yet.
pub(super) fn orphans(forest: &Forest, tree: &Arc<OpenTree>) -> Result<BTreeSet<u64>, UsageError> {
    let mut found = BTreeSet::new();
    let mut cursor = forest.trees().cursor(tree.root(), &orphan::key(ObjectId(0)), Readahead::None)?;
    while let Some(orphan) = cursor.key().as_ref().and_then(orphan::orphan_of) {
        // Linux once noted files as orphans that were only being cut.
        if inode_item(forest, tree, orphan)?.is_some_and(|item| item.link_count == 0) {
            found.insert(orphan.0);
        }
        cursor.advance()?;
    }
    Ok(found)
}
