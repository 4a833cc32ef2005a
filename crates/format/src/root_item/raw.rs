//! The two parts of a root item.

use super::flags::RootFlags;
use crate::inode::{InodeItem, Timestamp};
use crate::key::Key;
use crate::record::{Reserved, record};
use crate::types::{Generation, Level, Logical, ObjectId, Uuid};

/// Bytes of the form that Linux has written since 3.7.
pub const SIZE: usize = 439;
/// Bytes of the form before.
pub const LEGACY_SIZE: usize = 239;
const _: () = assert!(
    RootItemBase::SIZE == LEGACY_SIZE && RootItemBase::SIZE.saturating_add(RootItemExtension::SIZE) == SIZE
);

record! {
    /// What every root item has: 239 bytes.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
    pub struct RootItemBase in RawRootItemBase, 239 bytes {
        /// An inode that stands for the tree; only parts of it are used, and not all are filled.
        inode: InodeItem,
        /// The generation of the root block.
        generation: Generation,
        /// The inode of the tree's root directory; 256 in a subvolume, 0 elsewhere.
        root_directory: ObjectId,
        /// Where the root block lies (`bytenr`).
        address: Logical,
        /// Unused.
        byte_limit: u64,
        /// Bytes of the tree's blocks; Linux keeps it only roughly.
        bytes_used: u64,
        /// The generation of the last snapshot of this subvolume; blocks no younger may be shared.
        last_snapshot: Generation,
        /// Flags of the subvolume.
        flags: RootFlags,
        /// 1, or 0 once the subvolume was deleted (`refs`).
        reference_count: u32,
        /// While the blocks of a deleted subvolume are being freed: the next key.
        drop_progress: Key,
        /// The level of the block that `drop_progress` speaks of.
        drop_level: Level,
        /// The level of the root block.
        level: Level,
    }
}

record! {
    /// What root items have since Linux 3.7: 200 bytes. Times and transactions of 0 mean "never".
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
    pub struct RootItemExtension in RawRootItemExtension, 200 bytes {
        /// Equal to the item's generation while this part is up to date (`generation_v2`).
        generation: Generation,
        /// The subvolume's UUID.
        uuid: Uuid,
        /// The UUID of the subvolume that this is a snapshot of.
        parent_uuid: Uuid,
        /// The UUID of the subvolume that this one was received from.
        received_uuid: Uuid,
        /// The transaction that last changed an inode (`ctransid`).
        change_transaction: Generation,
        /// The transaction that made the subvolume (`otransid`).
        creation_transaction: Generation,
        /// The sender's transaction when the subvolume was sent (`stransid`).
        send_transaction: Generation,
        /// The transaction that received the subvolume (`rtransid`).
        receive_transaction: Generation,
        /// When an inode last changed.
        change_time: Timestamp,
        /// When the subvolume was made.
        creation_time: Timestamp,
        /// When it was sent; Linux leaves it 0.
        send_time: Timestamp,
        /// When it was received.
        receive_time: Timestamp,
        /// For future use; kept.
        reserved: Reserved<64>,
    }
}
