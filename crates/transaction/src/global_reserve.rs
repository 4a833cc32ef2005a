//! The global reserve: metadata space that nobody is promised, so that a commit always finds room to end, and a deletion
//! to begin.

use vlinder_base::sync::Arc;
use vlinder_format::chunk::BlockGroupFlags;

use crate::engine::Engine;
use crate::forest::Tree;
use crate::reservation::LARGEST_DELETION_ITEMS;
use crate::space::GlobalReserve;

/// Even the smallest file system's commit copies a path of each tree.
const LEAST_RESERVED_BLOCKS: u64 = 64;
/// Linux's bound of the global reserve.
const MOST_RESERVED_BYTES: u64 = 512 << 20;
/// Levels that a tree can have (Linux: `BTRFS_MAX_LEVEL`).
const LEVELS: u64 = 8;
/// Items that removing a name changes (Linux 6.18: `BTRFS_UNLINK_METADATA_UNITS`).
const UNLINK_ITEMS: u64 = 6;

impl Engine {
    /// What the commit itself may have to copy: every block of the trees that describe space, once. They are copied at
    /// most once in a transaction, so keeping their size free is enough for any commit to end. And what deletions draw on
    /// it for.
    pub(crate) fn size_global_reserve(&self) {
        let bytes = self.trees_of_space().map(|tree| tree.item().bytes_used).fold(0, u64::saturating_add);
        let deletion = self.metadata_bytes(LARGEST_DELETION_ITEMS);
        let least = u64::from(self.node_size()) * LEAST_RESERVED_BLOCKS;
        let most = MOST_RESERVED_BYTES.min(self.metadata_total() / 2);
        let all = bytes.saturating_add(2 * deletion).max(least).min(most);
        let commit = bytes.min(all.saturating_sub(2 * deletion));
        self.space.set_global_reserve(GlobalReserve { all, commit, trees: (all - commit).min(deletion) });
    }

    /// The trees that describe space, each once: groups have one of their own only with feature block_group_tree.
    pub(crate) fn trees_of_space(&self) -> impl Iterator<Item = &Arc<Tree>> {
        let fixed = &self.fixed;
        let of_groups = Some(&fixed.groups).filter(|groups| groups.id() != fixed.extent.id());
        [&fixed.extent, &fixed.checksum].into_iter().chain(of_groups).chain(&fixed.free_space)
    }

    /// Bytes of the groups that hold metadata.
    fn metadata_total(&self) -> u64 {
        let kinds = self.space.kinds();
        let metadata = kinds.iter().filter(|kind| kind.flags.has(BlockGroupFlags::METADATA));
        metadata.map(|kind| kind.total_bytes).sum()
    }

    /// The size of Linux's global reserve on this file system just after mounting (`btrfs_update_global_block_rsv`): the
    /// trees that describe space, or what the removal of a name may take where that is more.
    pub(crate) fn linux_reserve(&self) -> u64 {
        let (mut bytes, mut items) = (0_u64, 1 + UNLINK_ITEMS);
        for tree in self.trees_of_space() {
            bytes = bytes.saturating_add(tree.item().bytes_used);
            items += 1;
        }
        let item = u64::from(self.node_size()) * LEVELS * 2;
        // Each reference that goes may change the free-space tree as well.
        let per_reference = if self.fixed.free_space.is_some() { 2 } else { 1 };
        bytes.max(item * (items + UNLINK_ITEMS * per_reference)).min(MOST_RESERVED_BYTES)
    }
}
