//! What `stat` and `statx` show.

use vlinder_data::InodeId;
use vlinder_format::Generation;
use vlinder_format::inode::{
    DeviceNumber, FileType, GroupId, InodeFlags, InodeItem, Mode, Timestamp, UserId,
};

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

impl Attributes {
    /// The attributes that an inode's item gives a file of which so many bytes lie in no extent.
    pub(crate) fn of_item(
        id: InodeId,
        file_type: FileType,
        item: &InodeItem,
        sector_size: u32,
        unwritten_bytes: u64,
    ) -> Self {
        let sector = u64::from(sector_size.max(1));
        let whole = |bytes: u64| bytes.checked_next_multiple_of(sector).unwrap_or(bytes);
        Self {
            id,
            generation: item.generation,
            file_type,
            mode: item.mode,
            user: item.user,
            group: item.group,
            link_count: item.link_count,
            size_bytes: item.size_bytes,
            allocated_bytes: whole(item.allocated_bytes).saturating_add(whole(unwritten_bytes)),
            block_size: sector_size,
            device_number: item.device_number,
            access_time: item.access_time,
            modification_time: item.modification_time,
            change_time: item.change_time,
            birth_time: item.birth_time,
            flags: item.flags,
            sequence: item.sequence,
        }
    }
}
