//! What can go wrong while usage is measured.

use core::fmt;

use vlinder_forest::ForestError;
use vlinder_format::{Damage, Logical, ObjectId, RootId};
use vlinder_tree::TreeError;

/// The longest path that a listing has lines for (`PATH_MAX` of Linux), where btrfs-progs ends, too. Names
/// can lie deeper, and lines for all of them would fill any disk.
pub(super) const MAX_PATH_BYTES: usize = 4096;

/// What kind of extent a count is of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ExtentKind {
    /// A tree block.
    TreeBlock,
    /// File data.
    Data,
}

impl fmt::Display for ExtentKind {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(match self {
            Self::TreeBlock => "tree block",
            Self::Data => "data extent",
        })
    }
}

/// An error of measuring.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum UsageError {
    /// Reading a tree failed.
    #[error(transparent)]
    Forest(#[from] ForestError),
    /// A tree refers to an extent that the extent tree does not have, or has as another kind.
    #[error("{kind} {address}: a tree refers to it, and the extent tree has no such extent")]
    NotAllocated {
        /// What the referring tree takes it for.
        kind: ExtentKind,
        /// Where it begins.
        address: Logical,
    },
    /// More references to an extent were met than the extent tree counts.
    #[error("{kind} {address}: {met} references were met, and the extent tree counts {counted}")]
    Miscounted {
        /// What it is.
        kind: ExtentKind,
        /// Where it begins.
        address: Logical,
        /// References that trees have.
        met: u64,
        /// References that the extent tree counts.
        counted: u64,
    },
    /// A name leads to an inode that is not there.
    #[error("subvolume {root}: a name leads to inode {inode}, which is not there")]
    NoInode {
        /// The subvolume.
        root: RootId,
        /// The inode.
        inode: ObjectId,
    },
    /// A subvolume lies in itself, or a directory does.
    #[error("subvolume {root}, directory {inode}: names lead round in a circle")]
    Circle {
        /// The subvolume.
        root: RootId,
        /// The directory that was met twice.
        inode: ObjectId,
    },
    /// Names that lie deeper than any program of Linux can name them.
    #[error(
        "subvolume {root}, directory {inode}: the paths in it are longer than {MAX_PATH_BYTES} bytes; measure it without its lines"
    )]
    PathTooLong {
        /// The subvolume.
        root: RootId,
        /// The directory.
        inode: ObjectId,
    },
    /// Two parents name different generations of one block.
    #[error("tree block {address}: its parents disagree about its generation")]
    Ambiguous {
        /// Where it lies.
        address: Logical,
    },
}

impl From<TreeError> for UsageError {
    fn from(error: TreeError) -> Self {
        Self::Forest(error.into())
    }
}

impl From<Damage> for UsageError {
    fn from(error: Damage) -> Self {
        Self::Forest(error.into())
    }
}
