//! The inodes whose items changed without a transaction, for the next commit to put in.
//!
//! Most of them are put in before: a write marks its file, and what follows it (a flush, new times) brings
//! the item into a transaction. Whoever does that knows no list, so an inode stays listed until somebody
//! looks: the list looks itself through whenever it has doubled. Else every inode that was written to would
//! be held in memory until the commit, and with it the room that is owed for its item.

use std::collections::BTreeMap;

use vlinder_base::sync::{Arc, Mutex};

use super::Inode;
use crate::ids::InodeId;

/// Fewer are not looked through.
const FEW: usize = 128;

/// All inodes that are dirty ([`InodeState::dirty`](super::InodeState::dirty)), and some that were.
#[derive(Default)]
pub(crate) struct DirtyInodes {
    list: Mutex<List>,
}

#[derive(Default)]
struct List {
    inodes: BTreeMap<InodeId, Arc<Inode>>,
    /// How many there were when it was looked through last.
    left: usize,
}

/// How the list changed: for each inode on it the next commit owes room for an item.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ListChange {
    pub(crate) added: u64,
    pub(crate) dropped: u64,
}

impl DirtyInodes {
    /// An inode became dirty. The caller holds its state.
    pub(crate) fn add(&self, inode: &Arc<Inode>) -> ListChange {
        let mut list = self.list.lock();
        let before = list.inodes.insert(inode.id(), Arc::clone(inode));
        let clean = list.look_through();
        drop(list);
        // Inodes may be forgotten here, but not under the lock.
        ListChange { added: u64::from(before.is_none()), dropped: clean.len() as u64 }
    }

    /// Takes up to `most` off the list.
    pub(crate) fn take(&self, most: usize) -> Vec<Arc<Inode>> {
        let mut list = self.list.lock();
        std::iter::from_fn(|| list.inodes.pop_first()).take(most).map(|(_, inode)| inode).collect()
    }

    /// Lists an inode again that was taken and is dirty still. Gives how many times it was counted that it is
    /// not listed: once where another thread has added it meanwhile.
    pub(crate) fn put_back(&self, inode: &Arc<Inode>) -> u64 {
        u64::from(self.list.lock().inodes.insert(inode.id(), Arc::clone(inode)).is_some())
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.list.lock().inodes.is_empty()
    }
}

impl List {
    /// Takes off what is not dirty any more, if there may be many.
    fn look_through(&mut self) -> Vec<Arc<Inode>> {
        if self.inodes.len() < 2 * self.left.max(FEW / 2) {
            return Vec::new();
        }
        // Whoever holds an inode's state may be about to list it: it stays.
        let is_clean = |inode: &Inode| inode.state.try_lock().is_some_and(|state| !state.dirty);
        let clean = self.inodes.extract_if(.., |_, inode| is_clean(inode)).map(|(_, inode)| inode).collect();
        self.left = self.inodes.len();
        clean
    }
}
