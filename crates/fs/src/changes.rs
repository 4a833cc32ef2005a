//! The changes of one operation in one subvolume: collected against what the tree holds, then made all at
//! once.

use std::collections::BTreeMap;

use smallvec::SmallVec;
use vlinder_base::sync::Arc;
use vlinder_forest::OpenTree;
use vlinder_format::directory::{self, DirectoryEntry, DirectoryEntryType, DirectoryIndex};
use vlinder_format::features::IncompatFeatures;
use vlinder_format::inode::InodeItem;
use vlinder_format::inode_ref::{self, ExtendedReference, InodeReference};
use vlinder_format::{Damage, Fault, Generation, ItemType, Key, ObjectId, orphan};
use vlinder_transaction::{Engine, Handle};
use vlinder_tree::Edit;

use crate::fsync_log::{Journal, NamePlace, Note};
use crate::item_limit::grows_too_large;
use crate::{Inode, Refusal, Result, Subvolume};

/// What an operation changes in one tree. Nothing has happened until [`apply`](Self::apply); locks keep the
/// items that are read here from changing meanwhile (names under their directory's, the rest under the
/// inode's operation lock).
pub(crate) struct Changes<'a> {
    engine: &'a Engine,
    tree: Arc<OpenTree>,
    items: BTreeMap<Key, Option<Vec<u8>>>,
    pending: BTreeMap<Key, Option<Vec<u8>>>,
    /// Inodes whose items the caller puts in with the same handle: few.
    touched: SmallVec<[ObjectId; 4]>,
    /// Items of names as the tree has them, read ahead by [`load_entries`](Self::load_entries).
    loaded: BTreeMap<Key, Vec<u8>>,
    /// Where the changes are noted for the next fsync; none for a subvolume that is just being made.
    journal: Option<Arc<Journal>>,
    notes: Vec<Note>,
}

impl<'a> Changes<'a> {
    pub(crate) fn new(engine: &'a Engine, subvolume: &Subvolume) -> Self {
        let journal = subvolume.journal().cloned();
        Self { journal, ..Self::of_tree(engine, Arc::clone(subvolume.tree())) }
    }

    pub(crate) fn of_tree(engine: &'a Engine, tree: Arc<OpenTree>) -> Self {
        let (items, pending, touched, loaded) = Default::default();
        Self { engine, tree, items, pending, touched, loaded, journal: None, notes: Vec::new() }
    }

    pub(crate) fn engine(&self) -> &'a Engine {
        self.engine
    }

    /// The item as it will be.
    pub(crate) fn current(&self, key: &Key) -> Result<Option<Vec<u8>>> {
        match self.items.get(key) {
            Some(changed) => Ok(changed.clone()),
            None => {
                let found = self.engine.forest().trees().get(self.tree.root(), key)?;
                Ok(found.map(|position| position.data().to_vec()))
            }
        }
    }

    pub(crate) fn put(&mut self, key: Key, data: Vec<u8>) {
        self.note_attributes(&key);
        self.items.insert(key, Some(data));
    }

    pub(crate) fn remove(&mut self, key: Key) {
        self.note_attributes(&key);
        self.items.insert(key, None);
    }

    /// Puts the item, or removes it where nothing is left in it.
    pub(crate) fn put_rest(&mut self, key: Key, data: Vec<u8>) {
        self.note_attributes(&key);
        self.items.insert(key, (!data.is_empty()).then_some(data));
    }

    /// An inode's own item will be put in after these changes ([`Inode::put`](crate::Inode)): its place is
    /// charged with theirs.
    pub(crate) fn touch_inode(&mut self, inode: ObjectId) {
        self.touched.push(inode);
    }

    /// An item that neither the tree nor the overlay holds yet.
    pub(crate) fn insert_pending(&mut self, key: Key, data: Vec<u8>) {
        if key.item_type == ItemType::INODE_ITEM {
            self.notes.push(Note::Made(key.objectid));
        } else if let Some(inode) = orphan::orphan_of(&key) {
            self.notes.push(Note::Nameless(inode, true));
        }
        self.pending.insert(key, Some(data));
    }

    pub(crate) fn remove_pending(&mut self, key: Key) {
        if key.item_type == ItemType::INODE_ITEM {
            self.notes.push(Note::Gone(key.objectid));
        } else if let Some(inode) = orphan::orphan_of(&key) {
            self.notes.push(Note::Nameless(inode, false));
        }
        self.pending.insert(key, None);
    }

    /// Makes all changes, or on an error none.
    pub(crate) fn apply(self, handle: &mut Handle<'_>) -> Result<()> {
        let edits: Vec<Edit<'_>> =
            self.items.iter().map(|(key, data)| Edit::put_or_remove(*key, data.as_deref())).collect();
        let generation = handle.generation();
        if self.tree.may_share_blocks() {
            handle.charge_pending(&self.tree, &self.pending_keys())?;
        }
        let change = || {
            handle.edit(&self.tree, &edits)?;
            for (key, data) in self.pending {
                match data {
                    Some(data) => handle.insert_pending(&self.tree, key, data),
                    None => handle.remove_pending(&self.tree, key),
                }
            }
            Ok(())
        };
        match &self.journal {
            Some(journal) => journal.recording(generation, self.notes, change),
            None => change(),
        }
    }

    /// Where items will be pending: those given, the inode items that the caller puts in, and that of a
    /// directory whose names change.
    fn pending_keys(&self) -> Vec<Key> {
        let directories = self.pending.keys().filter(|key| key.item_type == ItemType::DIR_INDEX);
        let inodes =
            directories.map(|key| key.objectid).chain(self.touched.iter().copied()).map(InodeItem::key);
        let mut keys: Vec<Key> = self.pending.keys().copied().chain(inodes).collect();
        keys.sort_unstable();
        keys.dedup();
        keys
    }

    fn note_attributes(&mut self, key: &Key) {
        if key.item_type == ItemType::XATTR_ITEM {
            self.notes.push(Note::Attributes(key.objectid));
        }
    }

    fn note_name(
        &mut self,
        directory: ObjectId,
        name: &[u8],
        index: DirectoryIndex,
        location: Key,
        is_added: bool,
    ) {
        if location.item_type != ItemType::INODE_ITEM {
            self.notes.push(Note::SubvolumeName { directory, name: name.into() });
            return;
        }
        let (name, named) = (name.into(), NamePlace { index, inode: location.objectid });
        self.notes.push(if is_added {
            Note::Added { directory, name, named }
        } else {
            Note::Removed { directory, name, named }
        });
    }

    /// A fault in this tree's item.
    pub(crate) fn damage(&self, key: Key, fault: impl Into<Fault>) -> Damage {
        let tree = Some(self.tree.id());
        Damage::new(fault, vlinder_format::Place { tree, key: Some(key), ..Default::default() })
    }

    pub(crate) fn node_size(&self) -> usize {
        usize::try_from(self.engine.volume().geometry().node_size).unwrap_or(usize::MAX)
    }

    /// Whether an item of so many bytes is more than an addition may make.
    pub(crate) fn grows_too_large(&self, bytes: usize) -> bool {
        grows_too_large(bytes, self.node_size())
    }

    /// Reads the entries whose names have the hash of one that is to be added to a directory. The directory
    /// is locked from here on.
    ///
    /// # Errors
    /// [`Refusal::Exists`] where the name is among them.
    pub(crate) fn load_entries(&mut self, directory: &Inode, name: &[u8]) -> Result<()> {
        // A placeholder's number is that of others, too; what it stands for has no names here.
        if directory.is_placeholder() {
            return Ok(());
        }
        let key = directory::item_key(directory.number(), name);
        let item = self.current(&key)?.unwrap_or_default();
        if directory::find(&item, name).map_err(|fault| self.damage(key, fault))?.is_some() {
            return Err(Refusal::Exists.into());
        }
        self.loaded.insert(key, item);
        Ok(())
    }

    /// Adds a name to a directory: its entry by hash and its entry by index.
    ///
    /// # Errors
    /// [`Refusal::Exists`]; [`Refusal::Overflow`] where names with the same hash fill an item.
    pub(crate) fn add_entry(
        &mut self,
        directory: ObjectId,
        name: &[u8],
        index: DirectoryIndex,
        location: Key,
        entry_type: DirectoryEntryType,
        transaction: Generation,
    ) -> Result<()> {
        let entry = DirectoryEntry { location, transaction, entry_type, name, data: &[] };
        let key = directory::item_key(directory, name);
        let mut item = match self.loaded.remove(&key) {
            Some(item) if !self.items.contains_key(&key) => item,
            _ => self.current(&key)?.unwrap_or_default(),
        };
        if directory::find(&item, name).map_err(|fault| self.damage(key, fault))?.is_some() {
            return Err(Refusal::Exists.into());
        }
        if !item.is_empty() && self.grows_too_large(item.len() + entry.encoded_len()) {
            return Err(Refusal::Overflow.into());
        }
        entry.append_to(&mut item);
        self.put(key, item);
        self.insert_pending(directory::index_key(directory, index), entry.encode());
        self.note_name(directory, name, index, location, true);
        Ok(())
    }

    /// Removes a name from a directory.
    ///
    /// # Errors
    /// [`Refusal::NotFound`].
    pub(crate) fn remove_entry(
        &mut self,
        directory: ObjectId,
        name: &[u8],
        index: DirectoryIndex,
    ) -> Result<()> {
        let key = directory::item_key(directory, name);
        let mut item = self.current(&key)?.ok_or(Refusal::NotFound)?;
        let found = directory::find(&item, name).map_err(|fault| self.damage(key, fault))?;
        let location = found.ok_or(Refusal::NotFound)?.location;
        directory::remove(&mut item, name).map_err(|fault| self.damage(key, fault))?;
        self.put_rest(key, item);
        self.remove_pending(directory::index_key(directory, index));
        self.note_name(directory, name, index, location, false);
        Ok(())
    }

    /// Adds the reference from a new inode to its name: its number was given out just now, so it has no
    /// other.
    pub(crate) fn add_first_reference(
        &mut self,
        inode: ObjectId,
        parent: ObjectId,
        name: &[u8],
        index: DirectoryIndex,
    ) {
        let reference = InodeReference { index, name };
        let mut item = Vec::with_capacity(reference.encoded_len());
        reference.append_to(&mut item);
        self.put(inode_ref::key(inode, parent), item);
    }

    /// Adds the reference from an inode to its name: in the INODE_REF, or where that is full in an
    /// INODE_EXTREF.
    ///
    /// # Errors
    /// [`Refusal::TooManyLinks`] where neither takes it.
    pub(crate) fn add_reference(
        &mut self,
        inode: ObjectId,
        parent: ObjectId,
        name: &[u8],
        index: DirectoryIndex,
    ) -> Result<()> {
        let reference = InodeReference { index, name };
        let key = inode_ref::key(inode, parent);
        let mut item = self.current(&key)?.unwrap_or_default();
        if !self.grows_too_large(item.len() + reference.encoded_len()) {
            reference.append_to(&mut item);
            self.put(key, item);
            return Ok(());
        }
        if !self.engine.superblock().incompat.has(IncompatFeatures::EXTENDED_IREF) {
            return Err(Refusal::TooManyLinks.into());
        }
        let reference = ExtendedReference { parent, index, name };
        let key = inode_ref::extended_key(inode, parent, name);
        let mut item = self.current(&key)?.unwrap_or_default();
        if self.grows_too_large(item.len() + reference.encoded_len()) {
            return Err(Refusal::TooManyLinks.into());
        }
        reference.append_to(&mut item);
        self.put(key, item);
        Ok(())
    }

    /// Removes the reference from an inode to its name; gives the name's index.
    ///
    /// # Errors
    /// [`Refusal::NotFound`] where the inode knows no such name (damage that Linux reports so, too).
    pub(crate) fn remove_reference(
        &mut self,
        inode: ObjectId,
        parent: ObjectId,
        name: &[u8],
    ) -> Result<DirectoryIndex> {
        let key = inode_ref::key(inode, parent);
        if let Some(mut item) = self.current(&key)? {
            let found = inode_ref::find(&item, name).map_err(|fault| self.damage(key, fault))?;
            if let Some(InodeReference { index, .. }) = found {
                inode_ref::remove(&mut item, name).map_err(|fault| self.damage(key, fault))?;
                self.put_rest(key, item);
                return Ok(index);
            }
        }
        let key = inode_ref::extended_key(inode, parent, name);
        let mut item = self.current(&key)?.ok_or(Refusal::NotFound)?;
        let found = inode_ref::find_extended(&item, parent, name).map_err(|fault| self.damage(key, fault))?;
        let index = found.ok_or(Refusal::NotFound)?.index;
        inode_ref::remove_extended(&mut item, parent, name).map_err(|fault| self.damage(key, fault))?;
        self.put_rest(key, item);
        Ok(index)
    }
}
