//! Subvolumes as sending sees them.

use vlinder_base::sync::Arc;
use vlinder_forest::Forest;
use vlinder_format::{Generation, RootId, Uuid};
use vlinder_tree::Root;

use super::TreeNames;

/// A subvolume that is sent, or one that the receiver has: a tree that stands still.
pub struct SentSubvolume<'a> {
    /// The state that it is read in.
    pub forest: &'a Forest,
    /// Its tree.
    pub root: Arc<Root>,
    /// The UUID that the receiver knows it by: the one it was received with, else its own.
    pub uuid: Uuid,
    /// The transaction of its last change.
    pub transid: Generation,
}

/// A subvolume that the receiver has, and from which ranges can be cloned.
pub(crate) struct CloneRoot<'a> {
    pub id: RootId,
    pub uuid: Uuid,
    pub transid: Generation,
    pub names: TreeNames<'a>,
}

impl<'a> SentSubvolume<'a> {
    /// Its names.
    pub(crate) fn names(&self) -> TreeNames<'a> {
        TreeNames::new(self.forest.trees(), Arc::clone(&self.root))
    }

    pub(crate) fn clone_root(&self) -> CloneRoot<'a> {
        CloneRoot { id: self.root.id(), uuid: self.uuid, transid: self.transid, names: self.names() }
    }
}
