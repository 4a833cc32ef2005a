//! Extents, and their uses by trees and files.

use core::fmt;

use vlinder_format::{Generation, Level, Logical, ObjectId, RootId};

use crate::ledger::Fact;

/// An extent: data, or a tree block of a level.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Extent {
    pub(crate) logical: Logical,
    pub(crate) length: u64,
    pub(crate) level: Option<Level>,
}

/// The user of an extent.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum User {
    /// A tree, a block of it.
    Root(RootId),
    /// A node, its child.
    Parent(Logical),
    /// A file, data; the offset is that of the extent's first byte in the file.
    File { root: RootId, inode: ObjectId, offset: u64 },
    /// A leaf, data.
    Leaf(Logical),
    /// Nobody: a tree block is of this generation, by itself and by its item.
    Made(Generation),
}

impl fmt::Display for User {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Root(root) => write!(formatter, "tree {root}"),
            Self::Parent(parent) => write!(formatter, "node {parent}"),
            Self::File { root, inode, offset } => {
                write!(formatter, "inode {inode} of tree {root} at offset {offset}")
            }
            Self::Leaf(leaf) => write!(formatter, "leaf {leaf}"),
            Self::Made(generation) => write!(formatter, "generation {generation}"),
        }
    }
}

impl User {
    /// The tree that it names.
    pub(crate) fn root(self) -> Option<RootId> {
        match self {
            Self::Root(root) | Self::File { root, .. } => Some(root),
            Self::Parent(_) | Self::Leaf(_) | Self::Made(_) => None,
        }
    }

    /// As numbers: the kind, and its three parts.
    fn numbers(self) -> [u64; 4] {
        match self {
            Self::Root(root) => [0, root.0, 0, 0],
            Self::Parent(parent) => [1, parent.0, 0, 0],
            Self::File { root, inode, offset } => [2, root.0, inode.0, offset],
            Self::Leaf(leaf) => [3, leaf.0, 0, 0],
            Self::Made(generation) => [4, generation.0, 0, 0],
        }
    }
}

/// One extent is used by one user.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Use {
    pub(crate) extent: Extent,
    pub(crate) user: User,
}

impl Fact for Use {
    type Form = [u8; 56];

    fn subject(&self) -> u64 {
        self.extent.logical.0
    }

    fn form(&self) -> [u8; 56] {
        let level = self.extent.level.map_or(u64::MAX, |level| u64::from(level.0));
        let [kind, first, second, third] = self.user.numbers();
        let numbers = [self.extent.logical.0, self.extent.length, level, kind, first, second, third];
        let mut bytes = [0; 56];
        for (place, number) in bytes.chunks_exact_mut(8).zip(numbers) {
            place.copy_from_slice(&number.to_le_bytes());
        }
        bytes
    }
}
