//! The inode item.

use super::fault::InodeFault;
use super::flags::InodeFlags;
use super::mode::{DeviceNumber, FileType, GroupId, Mode, UserId};
use super::timestamp::Timestamp;
use crate::key::{ItemType, Key};
use crate::layout::Layout;
use crate::record::{Reserved, record};
use crate::types::{Generation, Logical, ObjectId};

record! {
    /// What `stat` shows of a file, and what Btrfs keeps beside it: 160 bytes (`struct btrfs_inode_item`).
    ///
    /// Key (inode, INODE_ITEM, 0) in every subvolume tree, in the log trees, the data relocation tree and the
    /// root tree (its one directory and the v1 free-space cache). Also the first bytes of every root item.
    ///
    /// ```text
    /// 0            8         16     24       32            40      44    48    52     56     64      72
    /// | generation | transid | size | nbytes | block group | nlink | uid | gid | mode | rdev | flags |
    /// 72         80            112     124     136     148     160
    /// | sequence | reserved 32 | atime | ctime | mtime | otime |
    /// ```
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
    pub struct InodeItem in RawInodeItem, 160 bytes {
        /// The transaction that made the inode: what NFS handles tell one use of an inode number from the
        /// next by.
        generation: Generation,
        /// The transaction that last changed the inode (`transid`).
        transaction: Generation,
        /// Bytes of the file; of a directory, twice the sum of the lengths of its names.
        size_bytes: u64,
        /// Bytes that the file's extents cover, holes not counted (`nbytes`).
        allocated_bytes: u64,
        /// A hint where data should go; not used by Linux any more.
        block_group: Logical,
        /// Names of the inode; of a directory, 1.
        link_count: u32,
        /// The owner.
        user: UserId,
        /// The owning group.
        group: GroupId,
        /// Type and permissions.
        mode: Mode,
        /// For a device node, the device.
        device_number: DeviceNumber,
        /// Flags; the high half (`ro_flags` in Linux) is read-only compatible.
        flags: InodeFlags,
        /// A counter that NFS watches for changes.
        sequence: u64,
        /// For future use; kept.
        reserved: Reserved<32>,
        /// Last access.
        access_time: Timestamp,
        /// Last change of the inode.
        change_time: Timestamp,
        /// Last change of the data.
        modification_time: Timestamp,
        /// Creation (`otime`).
        birth_time: Timestamp,
    }
}

impl InodeItem {
    /// The key of an inode's item.
    #[must_use]
    pub const fn key(inode: ObjectId) -> Key {
        Key::new(inode, ItemType::INODE_ITEM, 0)
    }

    /// Reads an inode from an item's data.
    ///
    /// # Errors
    /// [`InodeFault::Size`] if they are not 160 bytes.
    pub fn decode(data: &[u8]) -> Result<Self, InodeFault> {
        Self::read_whole(data).ok_or(InodeFault::Size { found: data.len() })
    }

    /// The bytes of this inode.
    #[must_use]
    pub fn encode(&self) -> [u8; Self::SIZE] {
        self.to_array()
    }

    /// The type of the file, if its mode names one.
    #[must_use]
    pub const fn file_type(&self) -> Option<FileType> {
        self.mode.file_type()
    }
}

/// The fields of an inode item.
pub(crate) fn lay_out(layout: &mut Layout<'_>) {
    layout.record::<InodeItem>();
}
