//! What a log is replayed into: the items of one subvolume, looked up and changed one at a time.

use std::collections::BTreeSet;

use vlinder_base::sync::Arc;
use vlinder_forest::OpenTree;
use vlinder_format::inode::{InodeItem, Timestamp};
use vlinder_format::log::LogFault;
use vlinder_format::{Damage, Fault, Key, Logical, ObjectId, Place, RootId};
use vlinder_transaction::{Engine, FsyncLog, Handle};
use vlinder_tree::{Change, Edit, Position, Root};

use super::ReplayError;

/// One subvolume, its log, and the transaction.
pub(super) struct Target<'r, 'a> {
    pub(super) engine: &'a Engine,
    pub(super) handle: &'r mut Handle<'a>,
    /// The subvolume.
    pub(super) tree: &'r Arc<OpenTree>,
    /// Its log.
    pub(super) log: &'r Arc<Root>,
    /// The logs of all subvolumes: which extents are new.
    pub(super) whole_log: &'r FsyncLog,
    /// Inodes whose names are counted in the end.
    pub(super) touched: &'r mut BTreeSet<ObjectId>,
    pub(super) now: Timestamp,
}

impl Target<'_, '_> {
    /// An item of the subvolume.
    pub(super) fn item(&self, key: &Key) -> Result<Option<Vec<u8>>, ReplayError> {
        Ok(self.engine.forest().trees().get(self.tree.root(), key)?.map(|found| found.data().to_vec()))
    }

    /// The first item of the subvolume at or after a key.
    pub(super) fn next_item(&self, key: &Key) -> Result<Option<Position>, ReplayError> {
        Ok(self.engine.forest().trees().ceiling(self.tree.root(), key)?)
    }

    /// An item of the log.
    pub(super) fn log_item(&self, key: &Key) -> Result<Option<Position>, ReplayError> {
        Ok(self.engine.forest().trees().get(self.log, key)?)
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

    /// An inode of the subvolume, if it is there.
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

    /// Something wrong about an item of the subvolume, or about what the log wants of it.
    pub(super) fn damage(&self, key: Key, fault: impl Into<Fault>) -> Damage {
        Damage::new(fault, Place { tree: Some(self.tree.id()), key: Some(key), ..Place::default() })
    }

    /// Something wrong about an item of the log.
    pub(super) fn log_damage(&self, key: Key, fault: impl Into<Fault>) -> Damage {
        Damage::new(fault, Place { tree: Some(RootId::TREE_LOG), key: Some(key), ..Place::default() })
    }
}
