//! How full the file system is.

use crate::EngineError;
use crate::engine::Engine;
use crate::space::{Purpose, SpaceReport};

/// Levels that a tree can have (Linux: `BTRFS_MAX_LEVEL`).
const LEVELS: u64 = 8;
/// Items that removing a name changes (Linux 6.18: `BTRFS_UNLINK_METADATA_UNITS`).
const UNLINK_ITEMS: u64 = 6;
/// Linux's bound of the global reserve.
const MOST_RESERVED_BYTES: u64 = 512 << 20;

impl Engine {
    /// How full the file system is, right now. A file system that is only read learns it with the first call.
    ///
    /// # Errors
    /// What reading the chunks and their groups met.
    pub fn space(&self) -> Result<SpaceReport, EngineError> {
        self.load_space()?;
        let spaces = self.device_spaces();
        let unallocated_bytes =
            spaces.iter().map(vlinder_volume::allocation::DeviceSpace::unallocated_bytes).sum();
        Ok(SpaceReport {
            kinds: self.space.kinds(),
            unallocated_bytes,
            device_bytes: self.volume.total_bytes(),
            global_reserve_bytes: self.space.global_reserve(),
            linux_reserve_bytes: self.linux_reserve(),
            data_available_bytes: self.space.available(Purpose::Data) + self.data_growth(),
        })
    }

    /// The size of Linux's global reserve on this file system just after mounting (`btrfs_update_global_block_rsv`): the
    /// trees that describe space, or what the removal of a name may take where that is more.
    fn linux_reserve(&self) -> u64 {
        let has_group_tree = self.fixed.groups.id() != self.fixed.extent.id();
        let trees = [Some(&self.fixed.extent), Some(&self.fixed.checksum)];
        let trees = trees.into_iter().flatten().chain(&self.fixed.free_space);
        let trees = trees.chain(has_group_tree.then_some(&self.fixed.groups));
        let (mut bytes, mut items) = (0_u64, 1 + UNLINK_ITEMS);
        for tree in trees {
            bytes = bytes.saturating_add(tree.item().bytes_used);
            items += 1;
        }
        let item = u64::from(self.node_size()) * LEVELS * 2;
        // Each reference that goes may change the free-space tree as well.
        let per_reference = if self.fixed.free_space.is_some() { 2 } else { 1 };
        bytes.max(item * (items + UNLINK_ITEMS * per_reference)).min(MOST_RESERVED_BYTES)
    }
}
