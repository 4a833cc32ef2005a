//! How full the file system is, for statfs and `filesystem df`.

use vlinder_format::DeviceId;
use vlinder_format::chunk::{BlockGroupFlags, Profile};

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
    /// Bytes of it that nothing uses, and nothing can: they are in groups on devices of a seed.
    pub seed_free_bytes: u64,
}

impl KindReport {
    /// Bytes that hold something, as Linux counts them (`space_info->bytes_used`).
    #[must_use]
    pub const fn occupied_bytes(&self) -> u64 {
        self.used_bytes.saturating_sub(self.pinned_bytes).saturating_sub(self.reserved_bytes)
    }

    /// Bytes that hold nothing, as Linux counts them, those on devices of a seed among them.
    #[must_use]
    pub const fn free_bytes(&self) -> u64 {
        self.total_bytes.saturating_sub(self.occupied_bytes())
    }
}

/// A device of the file system, there or not.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DeviceReport {
    /// Its number.
    pub number: DeviceId,
    /// Bytes that the file system may use.
    pub total_bytes: u64,
    /// Bytes of it that chunks take, as its item counts them.
    pub allocated_bytes: u64,
    /// It was not given when the file system was opened.
    pub is_missing: bool,
}

/// What the chunks of one type and number of stripes have on one device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ChunkShare {
    /// Content and profile of the chunks.
    pub flags: BlockGroupFlags,
    /// The device.
    pub device: DeviceId,
    /// How many stripes each of the chunks has.
    pub stripe_count: u16,
    /// Logical bytes of the chunks, counted once for each stripe on the device.
    pub chunk_bytes: u64,
}

impl ChunkShare {
    /// How many stripes of each chunk hold data, or 1 where each stripe holds all of them.
    #[must_use]
    pub fn data_stripes(&self) -> u64 {
        let profile = Profile::of(self.flags);
        let stripes = profile.and_then(|profile| profile.facts().data_stripes(self.stripe_count));
        u64::from(stripes.unwrap_or(1).max(1))
    }

    /// Bytes of the device that the chunks take.
    #[must_use]
    pub fn device_bytes(&self) -> u64 {
        self.chunk_bytes / self.data_stripes()
    }
}

/// How full the file system is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SpaceReport {
    /// By content and profile.
    pub kinds: Vec<KindReport>,
    /// The devices, by number; of one that was built on a seed, its own alone.
    pub devices: Vec<DeviceReport>,
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
