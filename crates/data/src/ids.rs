//! Which file: the ids by which files are known in this crate.

use core::fmt;

use vlinder_format::{ObjectId, RootId};

/// Which file: a subvolume and the number of an inode in it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct InodeId {
    /// The subvolume.
    pub root: RootId,
    /// The inode number; a subvolume's root directory is 256.
    pub number: ObjectId,
    /// The subvolume that is not there, for what its name shows in a snapshot of its parent. All of these
    /// have the number [`ObjectId::EMPTY_SUBVOLUME_DIRECTORY`]; this tells those of one snapshot apart.
    pub absent: Option<RootId>,
}

impl InodeId {
    /// A file of a subvolume.
    #[must_use]
    pub const fn new(root: RootId, number: ObjectId) -> Self {
        Self { root, number, absent: None }
    }

    /// What stands in a subvolume for another, `absent`, whose name is there without it.
    #[must_use]
    pub const fn placeholder(root: RootId, absent: RootId) -> Self {
        Self { root, number: ObjectId::EMPTY_SUBVOLUME_DIRECTORY, absent: Some(absent) }
    }

    /// The root directory of a subvolume.
    #[must_use]
    pub const fn root_of(root: RootId) -> Self {
        Self::new(root, ObjectId::FIRST_FREE)
    }

    /// Whether this is the root directory of a subvolume.
    #[must_use]
    pub fn is_subvolume_root(self) -> bool {
        self.number == ObjectId::FIRST_FREE
    }
}

impl fmt::Display for InodeId {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "inode {} of subvolume {}", self.number, self.root)
    }
}
