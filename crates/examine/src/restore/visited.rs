//! Which files and subvolumes of a damaged image were met.

use std::collections::{BTreeMap, BTreeSet};

use vlinder_format::RootId;
use vlinder_fs::InodeId;

use super::numbers::NumberSet;

/// What names led to.
#[derive(Default)]
pub struct Visited {
    /// Inodes that some name led to, by subvolume.
    seen: BTreeMap<RootId, NumberSet>,
    /// Subvolumes of which blocks are lost: not every file of theirs may have been met.
    pub damaged: BTreeSet<RootId>,
    /// Subvolumes of which the host took not every directory: names lead to what lies there.
    pub unentered: BTreeSet<RootId>,
}

impl Visited {
    /// Notes that a name led to an inode; whether it is the first.
    pub fn see(&mut self, id: InodeId) -> bool {
        self.seen.entry(id.root).or_default().insert(id.number.0)
    }

    /// Whether a name led to an inode.
    pub fn has_seen(&self, id: InodeId) -> bool {
        self.seen.get(&id.root).is_some_and(|numbers| numbers.contains(id.number.0))
    }

    /// Whether a name led into a subvolume.
    pub fn has_entered(&self, root: RootId) -> bool {
        self.seen.contains_key(&root)
    }

    /// The subvolumes that names led into, and of which the host took every directory.
    pub fn entered(&self) -> impl Iterator<Item = &RootId> {
        self.seen.keys().filter(|root| !self.unentered.contains(*root))
    }
}
