//! Names of subvolumes.

use vlinder_format::directory::DirectoryIndex;
use vlinder_format::{ObjectId, RootId};

/// A subvolume's name in its parent.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct RootName {
    pub(crate) child: RootId,
    pub(crate) directory: ObjectId,
    pub(crate) index: DirectoryIndex,
    /// Stands for the name.
    pub(crate) name: u64,
}

impl RootName {
    /// As a row of a list that is in the order of parents.
    pub(crate) fn by_parent(&self, parent: RootId) -> [u64; 5] {
        [parent.0, self.child.0, self.directory.0, self.index.0, self.name]
    }

    /// As a row of a list that is in the order of children.
    pub(crate) fn by_child(&self, parent: RootId) -> [u64; 5] {
        [self.child.0, parent.0, self.directory.0, self.index.0, self.name]
    }

    /// As a row of a list of one parent's.
    pub(crate) fn row(&self) -> [u64; 4] {
        [self.child.0, self.directory.0, self.index.0, self.name]
    }
}
