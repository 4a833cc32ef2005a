//! What `stat` and `statx` show.

use vlinder_format::Generation;
use vlinder_format::inode::{DeviceNumber, FileType, GroupId, InodeFlags, Mode, Timestamp, UserId};

use crate::inode::InodeId;

/// The attributes of a file at one moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Attributes {
    /// Which file, in which subvolume.
    pub id: InodeId,
    /// Tells one use of the number from the next.
    pub generation: Generation,
    /// The type, from the mode.
    pub file_type: FileType,
    /// Type and permissions.
    pub mode: Mode,
    /// The owner, as shown (see `owners=`).
    pub user: UserId,
    /// The owning group, as shown.
    pub group: GroupId,
    /// Names; 1 for a directory.
    pub link_count: u32,
    /// Bytes; of a directory, twice the sum of the lengths of its names.
    pub size_bytes: u64,
    /// Bytes that the data occupy before compression, what is not written yet included: `st_blocks` × 512.
    pub allocated_bytes: u64,
    /// The preferred size of reads and writes: a sector.
    pub block_size: u32,
    /// For a device node, the device.
    pub device_number: DeviceNumber,
    /// Last access.
    pub access_time: Timestamp,
    /// Last change of the data.
    pub modification_time: Timestamp,
    /// Last change of the inode.
    pub change_time: Timestamp,
    /// Creation.
    pub birth_time: Timestamp,
    /// Flags, as chattr(1) shows some of them.
    pub flags: InodeFlags,
    /// Counts changes.
    pub sequence: u64,
}
