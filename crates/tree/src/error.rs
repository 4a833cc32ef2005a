//! What can go wrong in a tree.

use vlinder_format::{Damage, Key, RootId};
use vlinder_volume::VolumeError;

/// An error of a search or a change.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum TreeError {
    /// The devices failed, or no copy of a block is good.
    #[error(transparent)]
    Volume(#[from] VolumeError),
    /// A block in memory contradicts its parent, or an item its rules.
    #[error(transparent)]
    Damage(#[from] Damage),
    /// An item that was to be inserted is there already.
    #[error("tree {root}: {key} exists already; check the file system")]
    Exists {
        /// The tree.
        root: RootId,
        /// The item.
        key: Key,
    },
    /// An item that was to be changed or removed is not there.
    #[error("tree {root}: {key} is missing; check the file system")]
    Missing {
        /// The tree.
        root: RootId,
        /// The item.
        key: Key,
    },
    /// An item that does not fit an empty leaf.
    #[error("tree {root}: {size_bytes} bytes for {key} do not fit a leaf")]
    TooLarge {
        /// The tree.
        root: RootId,
        /// The item.
        key: Key,
        /// Bytes of its data.
        size_bytes: usize,
    },
    /// An edit saw other content than its caller had planned for; the caller reads again and retries.
    #[error("tree {root}: {key} changed meanwhile; read it again and retry")]
    Conflict {
        /// The tree.
        root: RootId,
        /// The item.
        key: Key,
    },
    /// No free address for a tree block.
    #[error(
        "no space left for tree blocks of tree {root}; delete files or snapshots, or copy everything to a larger file system"
    )]
    NoSpace {
        /// The tree.
        root: RootId,
        /// Bytes of metadata that were asked for; 0 if that is not known.
        needed_bytes: u64,
    },
    /// A search was sent around by a tree that changed, or lies in a loop, more often than is possible.
    #[error("tree {root}: the search for {key} did not settle; check the file system")]
    Unsettled {
        /// The tree.
        root: RootId,
        /// The key sought.
        key: Key,
    },
}

impl TreeError {
    /// Whether the error may tell of a block that the tree had when it was looked at, and has no more: its
    /// place was given to others, and its references are gone. Who reads with no lock held asks whether [the
    /// tree changed](crate::Root::version).
    #[must_use]
    pub fn may_be_of_the_past(&self) -> bool {
        matches!(self, Self::Volume(_) | Self::Damage(_))
    }
}
