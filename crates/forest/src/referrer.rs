//! The other end of a reference to an extent.

use vlinder_format::extent::{DataReference, Reference};
use vlinder_format::{Logical, ObjectId, RootId};

/// A block, tree or file that refers to an extent: a [`Reference`] without its count.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Referrer {
    /// A root, to a tree block.
    Root(RootId),
    /// A parent block, to a tree block.
    ParentOfBlock(Logical),
    /// An inode of a root, to data: `offset` is the file offset less the offset into the extent, and may
    /// wrap.
    File {
        /// The subvolume.
        root: RootId,
        /// The inode.
        inode: ObjectId,
        /// File offset less offset into the extent.
        offset: u64,
    },
    /// A leaf, to data.
    ParentOfData(Logical),
}

impl Referrer {
    /// As the reference that the extent tree holds, counting `count`.
    pub fn reference(&self, count: u32) -> Reference {
        match *self {
            Self::Root(root) => Reference::TreeBlock { root },
            Self::ParentOfBlock(parent) => Reference::SharedBlock { parent },
            Self::File { root, inode, offset } => {
                Reference::ExtentData(DataReference { root, inode, offset, count })
            }
            Self::ParentOfData(parent) => Reference::SharedData { parent, count },
        }
    }

    /// The referrer of a reference; none for the owner that simple quotas keep, which refers to nothing.
    #[must_use]
    pub fn of(reference: &Reference) -> Option<Self> {
        Some(match reference {
            Reference::TreeBlock { root } => Self::Root(*root),
            Reference::SharedBlock { parent } => Self::ParentOfBlock(*parent),
            Reference::ExtentData(DataReference { root, inode, offset, .. }) => {
                Self::File { root: *root, inode: *inode, offset: *offset }
            }
            Reference::SharedData { parent, .. } => Self::ParentOfData(*parent),
            _ => return None,
        })
    }
}
