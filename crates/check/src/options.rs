//! What a check is asked for.

use vlinder_base::sync::Arc;
use vlinder_device::Device;
use vlinder_format::DeviceId;

/// What grows with a file system and is there at one time: lists of data extents, of all extents, of free
/// space and of checksums; sets of blocks that were reached, were relocated, are shared, and refer by parent;
/// five lists of what the root tree says; and three that come and go: of one subvolume its orphans, its
/// inodes without a name and the subvolumes in it, or two levels of what subvolumes use, or what of the root
/// tree is put in another order. And, where data are read, one of compressed extents.
const LISTS: usize = 17;
/// What they take in memory together, before they go to temporary space: half a million runs each.
const LISTS_BYTES: usize = 64 << 20;

/// What to check beyond the trees.
#[derive(Clone, Copy, Default)]
pub struct Options<'a> {
    /// Read all data and compare them with their checksums.
    pub data_checksums: bool,
    /// Told of bytes that were read and judged, and of how many there are in all, once that is known.
    pub progress: Option<&'a dyn Fn(u64, Option<u64>)>,
    /// Devices may be missing: what the others have is checked.
    pub degraded: bool,
    /// Of members that were written to apart from one another, the one whose history is checked.
    pub history: Option<DeviceId>,
    /// How many threads read and judge; otherwise as many as are good for this machine. The report is the
    /// same.
    pub threads: Option<usize>,
    /// Temporary space for what grows with the file system (lists of ranges, 16 bytes for each run of
    /// neighbours; sets of tree blocks; with quotas, lists of tree blocks), up to this device's length.
    /// Nothing on it is kept. Without it all is held in memory.
    pub temporary: Option<&'a Arc<dyn Device>>,
    /// What of that is held in memory at most, in bytes; otherwise 64 MiB.
    pub lists_bytes: Option<usize>,
}

impl Options<'_> {
    /// What one list may hold in memory.
    pub(crate) fn list_bytes(&self) -> usize {
        self.lists_bytes.unwrap_or(LISTS_BYTES) / LISTS
    }
}
