//! References to an extent: what they name, how they are ordered, and how often each counts.

use core::cmp::Reverse;

use vlinder_codec::name_hash::extent_data_ref_hash;

use crate::key::{ItemType, Key};
use crate::record::record;
use crate::types::{Logical, ObjectId, RootId};

record! {
    /// A data extent's reference by root, inode and offset: 28 bytes.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
    pub struct DataReference in RawDataReference, 28 bytes {
        /// The subvolume.
        root: RootId,
        /// The inode.
        inode: ObjectId,
        /// The file offset minus the offset into the extent.
        offset: u64,
        /// File extent items with this root, inode and difference.
        count: u32,
    }
}

impl DataReference {
    /// What sorts it among its kind, and the offset of its key where it is an item of its own.
    pub fn hash(&self) -> u64 {
        extent_data_ref_hash(self.root.0, self.inode.0, self.offset)
    }
}

/// One user of an extent.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Reference {
    /// The owner of a data extent under simple quotas; inline only, always first, counts nothing.
    ExtentOwner {
        /// The subvolume.
        root: RootId,
    },
    /// A tree block, by root.
    TreeBlock {
        /// The root.
        root: RootId,
    },
    /// A data extent, by root, inode and offset.
    ExtentData(DataReference),
    /// A tree block, by parent.
    SharedBlock {
        /// The parent block.
        parent: Logical,
    },
    /// A data extent, by leaf.
    SharedData {
        /// The leaf.
        parent: Logical,
        /// Items in the leaf that refer to the extent.
        count: u32,
    },
}

impl Reference {
    /// The item type, inline or of the item of its own.
    pub const fn item_type(&self) -> ItemType {
        match self {
            Self::ExtentOwner { .. } => ItemType::EXTENT_OWNER_REF,
            Self::TreeBlock { .. } => ItemType::TREE_BLOCK_REF,
            Self::ExtentData(_) => ItemType::EXTENT_DATA_REF,
            Self::SharedBlock { .. } => ItemType::SHARED_BLOCK_REF,
            Self::SharedData { .. } => ItemType::SHARED_DATA_REF,
        }
    }

    /// What sorts references of one type, and the offset of the key where it is an item of its own: root,
    /// parent or hash.
    pub fn sequence(&self) -> u64 {
        match self {
            Self::ExtentOwner { root } | Self::TreeBlock { root } => root.0,
            Self::ExtentData(data) => data.hash(),
            Self::SharedBlock { parent } | Self::SharedData { parent, .. } => parent.0,
        }
    }

    /// Type ascending, then sequence descending.
    pub(super) fn order(&self) -> (ItemType, Reverse<u64>) {
        (self.item_type(), Reverse(self.sequence()))
    }

    /// The key of the item of its own, for the extent at `logical`. A colliding hash moves on to the next
    /// free offset.
    pub fn key(&self, logical: Logical) -> Key {
        Key::new(ObjectId(logical.0), self.item_type(), self.sequence())
    }

    /// How many references it counts as.
    pub const fn count(&self) -> u32 {
        match self {
            Self::ExtentOwner { .. } => 0,
            Self::TreeBlock { .. } | Self::SharedBlock { .. } => 1,
            Self::ExtentData(data) => data.count,
            Self::SharedData { count, .. } => *count,
        }
    }

    /// Whether the count is stored, so that it can differ from 1.
    pub const fn is_counted(&self) -> bool {
        matches!(self, Self::ExtentData(_) | Self::SharedData { .. })
    }

    /// Sets the count where it is stored.
    pub(super) const fn set_count(&mut self, new: u32) {
        match self {
            Self::ExtentData(data) => data.count = new,
            Self::SharedData { count, .. } => *count = new,
            Self::ExtentOwner { .. } | Self::TreeBlock { .. } | Self::SharedBlock { .. } => {}
        }
    }

    /// Whether both are the same reference, whatever their counts.
    pub fn same_identity(&self, other: &Self) -> bool {
        let (mut left, mut right) = (self.clone(), other.clone());
        left.set_count(0);
        right.set_count(0);
        left == right
    }
}
