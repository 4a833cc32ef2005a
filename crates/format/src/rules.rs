//! What the rules for the items of a leaf need to know: the file system, the leaf's owner, and the item
//! before.

use crate::features::Features;
use crate::key::Key;
use crate::types::{Generation, ObjectId, RootId};

/// What the rules need to know of the file system.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LeafRules {
    /// Bytes of a sector.
    pub sector_size: u32,
    /// Bytes of a tree block.
    pub node_size: u32,
    /// Bytes of a checksum.
    pub checksum_size: u32,
    /// The superblock's generation.
    pub generation: Generation,
    /// The superblock's feature flags.
    pub features: Features,
    /// Whether the file system is open for writing, which forbids unknown read-only compatible flags.
    pub writable: bool,
}

impl LeafRules {
    /// The newest generation that an item may name: logs are one ahead of the superblock.
    #[must_use]
    pub const fn newest_generation(&self) -> Generation {
        self.generation.next()
    }
}

/// An item: its key and its data.
pub(crate) type Item<'a> = (Key, &'a [u8]);

/// Where an item is being checked.
#[derive(Clone, Copy, Debug)]
pub struct ItemContext<'a> {
    /// The file system.
    pub rules: &'a LeafRules,
    /// The leaf's owner. A leaf reached from a relocation tree has the subvolume as owner.
    pub owner: RootId,
    /// The item before this one in the same leaf.
    pub previous: Option<Item<'a>>,
}

impl ItemContext<'_> {
    /// The object id of the item before, where it should have been the same: in a subvolume tree an inode's
    /// items follow its inode item, so any other object id before them means that the inode item is missing.
    pub(crate) fn foreign_inode_before(&self, key: &Key) -> Option<ObjectId> {
        let (previous, _) = self.previous?;
        (is_file_tree(self.owner) && previous.objectid != key.objectid).then_some(previous.objectid)
    }
}

/// Whether a tree is a subvolume by the kernel's rule (`is_fstree`): its number must also leave the top 16
/// bits, where a quota group has its level, clear.
pub(crate) const fn is_file_tree(root: RootId) -> bool {
    root.is_subvolume() && root.0 < 1 << 48
}
