//! What a new block's header is made of.

use crate::types::{Generation, Level, Logical, RootId, Uuid};

/// What a new block's header is made of.
#[derive(Clone, Copy, Debug)]
pub struct BlockIdentity {
    /// Address of the block.
    pub logical: Logical,
    /// Transaction that makes it.
    pub generation: Generation,
    /// Tree that makes it.
    pub owner: RootId,
    /// Height above the leaves.
    pub level: Level,
    /// The file system's UUID (the metadata UUID where that feature is on).
    pub fsid: Uuid,
    /// The chunk tree's UUID.
    pub chunk_tree_uuid: Uuid,
}

/// The top byte of the flags field.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BackReferenceRevision(pub u8);

impl BackReferenceRevision {
    /// The only revision written since 2009 (`BTRFS_MIXED_BACKREF_REV`).
    pub const MIXED: Self = Self(1);
}
