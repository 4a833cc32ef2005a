//! The files whose inode items changed without a transaction, for the next commit to put in.
//!
//! Most of them are put in before: a write marks its file, and what follows it (a flush, new times) brings
//! the item into a transaction. What does that knows no list, so a file stays listed until the list is looked
//! through, which it is whenever it has doubled. Else every file that was written to would be held in memory
//! until the commit, and with it the room that is owed for its item.

use std::collections::BTreeMap;

use vlinder_base::sync::{Arc, Mutex};

use crate::file_node::FileNode;
use crate::ids::InodeId;

/// Fewer are not looked through.
const FEW: usize = 128;

/// All nodes that are dirty ([`InodeState::dirty`](crate::InodeState::dirty)), and some that were.
#[derive(Default)]
pub(crate) struct DirtyNodes {
    list: Mutex<List>,
}

#[derive(Default)]
struct List {
    nodes: BTreeMap<InodeId, Arc<FileNode>>,
    /// How many there were when it was looked through last.
    left: usize,
}

/// How the list changed: for each node on it the next commit owes room for an item.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ListChange {
    pub(crate) added: u64,
    pub(crate) dropped: u64,
}

impl DirtyNodes {
    /// A node became dirty. The caller holds its state.
    pub(crate) fn add(&self, node: &Arc<FileNode>) -> ListChange {
        let mut list = self.list.lock();
        let before = list.nodes.insert(node.id(), Arc::clone(node));
        let clean = list.look_through();
        drop(list);
        // Nodes may be forgotten here, but not under the lock.
        ListChange { added: u64::from(before.is_none()), dropped: clean.len() as u64 }
    }

    /// Takes up to `most` off the list.
    pub(crate) fn take(&self, most: usize) -> Vec<Arc<FileNode>> {
        let mut list = self.list.lock();
        std::iter::from_fn(|| list.nodes.pop_first()).take(most).map(|(_, node)| node).collect()
    }

    /// Lists a node again that was taken and is dirty still. Gives how many times it was counted that it is
    /// not listed: once where another thread has added it meanwhile.
    pub(crate) fn put_back(&self, node: &Arc<FileNode>) -> u64 {
        u64::from(self.list.lock().nodes.insert(node.id(), Arc::clone(node)).is_some())
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.list.lock().nodes.is_empty()
    }
}

impl List {
    /// Takes off what is not dirty any more, if there may be many.
    fn look_through(&mut self) -> Vec<Arc<FileNode>> {
        if self.nodes.len() < 2 * self.left.max(FEW / 2) {
            return Vec::new();
        }
        // A thread that holds a node's state may be about to list the node: the node stays.
        let is_clean = |node: &FileNode| node.try_state().is_some_and(|state| !state.dirty);
        let clean = self.nodes.extract_if(.., |_, node| is_clean(node)).map(|(_, node)| node).collect();
        self.left = self.nodes.len();
        clean
    }
}
