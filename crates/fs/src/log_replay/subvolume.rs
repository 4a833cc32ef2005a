//! The subvolume that a log is replayed into: its items and inodes, looked up and changed one at a time, its
//! references to extents, and which inodes the replay touched.

use std::collections::BTreeSet;

use vlinder_base::sync::Arc;
use vlinder_codec::compress::Compression;
use vlinder_data::note_feature;
use vlinder_forest::OpenTree;
use vlinder_format::inode::{InodeItem, Timestamp};
use vlinder_format::log::LogFault;
use vlinder_format::{Damage, Fault, Generation, Key, Logical, ObjectId, Place};
use vlinder_transaction::{DataExtent, Engine, Handle};
use vlinder_tree::{Change, Edit, Position};

use super::ReplayError;

/// One subvolume, and the transaction that changes it.
pub(super) struct ReplayedSubvolume<'r, 'a> {
    engine: &'a Engine,
    handle: &'r mut Handle<'a>,
    tree: &'r Arc<OpenTree>,
    touched: &'r mut BTreeSet<ObjectId>,
    now: Timestamp,
}

impl<'r, 'a> ReplayedSubvolume<'r, 'a> {
    /// `touched` holds the inodes whose names are counted in the end; `now` is the change time of inodes that
    /// lose a name.
    pub(super) fn new(
        engine: &'a Engine,
        handle: &'r mut Handle<'a>,
        tree: &'r Arc<OpenTree>,
        touched: &'r mut BTreeSet<ObjectId>,
        now: Timestamp,
    ) -> Self {
        Self { engine, handle, tree, touched, now }
    }

    pub(super) fn engine(&self) -> &'a Engine {
        self.engine
    }

    /// The generation of the transaction.
    pub(super) fn generation(&self) -> Generation {
        self.handle.generation()
    }

    /// The change time of inodes that lose a name.
    pub(super) fn now(&self) -> Timestamp {
        self.now
    }

    /// An item.
    pub(super) fn item(&self, key: &Key) -> Result<Option<Vec<u8>>, ReplayError> {
        Ok(self.engine.forest().trees().get(self.tree.root(), key)?.map(|found| found.data().to_vec()))
    }

    /// The first item at or after a key.
    pub(super) fn next_item(&self, key: &Key) -> Result<Option<Position>, ReplayError> {
        Ok(self.engine.forest().trees().ceiling(self.tree.root(), key)?)
    }

    /// The last item at or before a key.
    pub(super) fn item_before(&self, key: &Key) -> Result<Option<Position>, ReplayError> {
        Ok(self.engine.forest().trees().floor(self.tree.root(), key)?)
    }

    pub(super) fn put(&mut self, key: Key, data: &[u8]) -> Result<(), ReplayError> {
        self.edit(&[Edit::new(key, Change::Put(data))])
    }

    pub(super) fn remove(&mut self, key: Key) -> Result<(), ReplayError> {
        self.edit(&[Edit::new(key, Change::RemoveIfPresent)])
    }

    /// Puts an item, or removes it where nothing is left in it.
    pub(super) fn put_rest(&mut self, key: Key, data: &[u8]) -> Result<(), ReplayError> {
        if data.is_empty() { self.remove(key) } else { self.put(key, data) }
    }

    pub(super) fn edit(&mut self, edits: &[Edit<'_>]) -> Result<(), ReplayError> {
        Ok(self.handle.edit(self.tree, edits)?)
    }

    /// An inode, if it is there.
    pub(super) fn inode(&self, number: ObjectId) -> Result<Option<InodeItem>, ReplayError> {
        let key = InodeItem::key(number);
        let Some(data) = self.item(&key)? else { return Ok(None) };
        Ok(Some(InodeItem::decode(&data).map_err(|fault| self.damage(key, fault))?))
    }

    /// An inode that must be there.
    pub(super) fn known_inode(&self, number: ObjectId) -> Result<InodeItem, ReplayError> {
        let missing = LogFault::NoInode { inode: number };
        self.inode(number)?.ok_or_else(|| self.damage(InodeItem::key(number), missing).into())
    }

    /// Puts an inode that was changed.
    pub(super) fn put_inode(&mut self, number: ObjectId, mut item: InodeItem) -> Result<(), ReplayError> {
        item.transaction = self.handle.generation();
        item.block_group = Logical(0);
        self.put(InodeItem::key(number), &item.encode())
    }

    /// Notes that the names of an inode are to be counted in the end.
    pub(super) fn touch(&mut self, number: ObjectId) {
        self.touched.insert(number);
    }

    /// Takes one of the inodes whose names are to be counted.
    pub(super) fn take_touched(&mut self) -> Option<ObjectId> {
        self.touched.pop_last()
    }

    /// Counts one more reference of a file to an extent; a fresh extent is one that only the log knew.
    pub(super) fn add_reference(&mut self, extent: DataExtent, fresh: bool, inode: ObjectId, offset: u64) {
        self.handle.add_data_reference(extent, fresh, self.tree.id(), inode, offset);
    }

    /// Counts one reference of a file to an extent less.
    pub(super) fn drop_reference(&mut self, extent: DataExtent, inode: ObjectId, offset: u64) {
        self.handle.drop_data_reference(extent, self.tree.id(), inode, offset);
    }

    /// Puts checksums in the place of those that there are for these bytes.
    pub(super) fn replace_checksums(
        &mut self,
        start: Logical,
        length: u64,
        sums: &[u8],
    ) -> Result<(), ReplayError> {
        self.handle.remove_checksums(start, length)?;
        Ok(self.handle.insert_checksums(start, sums)?)
    }

    /// Notes a compression that the log brings: the superblock that names it is that of the commit before, so
    /// an algorithm may be new.
    pub(super) fn note_compression(&self, algorithm: Compression) {
        note_feature(self.engine, self.handle, algorithm);
    }

    /// Something wrong about an item, or about what the log wants of it.
    pub(super) fn damage(&self, key: Key, fault: impl Into<Fault>) -> Damage {
        Damage::new(fault, Place { tree: Some(self.tree.id()), key: Some(key), ..Place::default() })
    }
}
