//! How full the file system is, for statfs and `filesystem df`.

use vlinder_format::chunk::BlockGroupFlags;

/// The groups of one content and profile.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KindReport {
    /// Content and profile.
    pub flags: BlockGroupFlags,
    /// Bytes of logical address space.
    pub total_bytes: u64,
    /// Bytes of it in use, pinned and reserved ones included.
    pub used_bytes: u64,
    /// Bytes of it pinned until the next commit.
    pub pinned_bytes: u64,
    /// Bytes of it that are held for what no extent item tells of yet.
    pub reserved_bytes: u64,
}

impl KindReport {
    /// Bytes that hold something, as Linux counts them (`space_info->bytes_used`).
    #[must_use]
    pub const fn occupied_bytes(&self) -> u64 {
        self.used_bytes.saturating_sub(self.pinned_bytes).saturating_sub(self.reserved_bytes)
    }
}

/// How full the file system is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SpaceReport {
    /// By content and profile.
    pub kinds: Vec<KindReport>,
    /// Bytes of the devices that belong to no chunk.
    pub unallocated_bytes: u64,
    /// Bytes of all devices.
    pub device_bytes: u64,
    /// Metadata kept free for commits, deletions and the deletion of trees.
    pub global_reserve_bytes: u64,
    /// What Linux would keep free for that in its place.
    pub linux_reserve_bytes: u64,
    /// A chunk for metadata can be made.
    pub can_make_metadata: bool,
    /// Bytes that new data can take: free in data groups, and what new data chunks can hold.
    pub data_available_bytes: u64,
}
