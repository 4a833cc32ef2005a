//! How full the file system is, as statfs(2) tells it.

use vlinder_format::Uuid;
use vlinder_format::chunk::{BlockGroupFlags, STRIPE_LENGTH};
use vlinder_transaction::{KindReport, SpaceReport};

use crate::directory::LONGEST;
use crate::{Filesystem, Result};

/// What statfs(2) shows. Sizes are as of file data: where data have two copies, half of what the devices hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Statistics {
    /// Unit of the numbers of blocks, in bytes.
    pub block_size: u32,
    /// All blocks.
    pub blocks: u64,
    /// Blocks that nothing uses.
    pub free_blocks: u64,
    /// Blocks that data can be written to, as Linux reckons: what is free in groups of data, and all that no chunk has. None
    /// where metadata have no room left. A write may be refused before: what metadata may need is not subtracted.
    pub available_blocks: u64,
    /// Bytes of the longest name.
    pub longest_name: u32,
    /// The file system's UUID.
    pub uuid: Uuid,
}

impl Filesystem {
    /// How full the file system is. Inodes are not counted: there is no bound to them but space.
    ///
    /// # Errors
    /// What reading the chunks and their groups met: a file system that is only read learns how full it is with the first
    /// call.
    pub fn statistics(&self) -> Result<Statistics> {
        let report = self.engine().space()?;
        let block = u64::from(self.sector_size());
        let fullness = Fullness::of(&report);
        Ok(Statistics {
            block_size: self.sector_size(),
            blocks: report.device_bytes / fullness.factor / block,
            free_blocks: fullness.free_bytes / block,
            available_blocks: fullness.available_bytes / block,
            longest_name: LONGEST,
            uuid: self.engine().superblock().fsid,
        })
    }
}

/// Bytes at the start of each device that no chunk takes (Linux: `BTRFS_DEVICE_RANGE_RESERVED`).
const RESERVED_BYTES: u64 = 1 << 20;
/// So much less than what is free of metadata Linux sets against its reserve.
const THRESHOLD_BYTES: u64 = 4 << 20;

/// The sums of Linux's `btrfs_statfs`.
struct Fullness {
    /// How often each byte of data is on the devices.
    factor: u64,
    free_bytes: u64,
    available_bytes: u64,
}

impl Fullness {
    fn of(report: &SpaceReport) -> Self {
        let sum = |of: &dyn Fn(&KindReport) -> u64| report.kinds.iter().map(of).fold(0, u64::saturating_add);
        let is_data = |kind: &KindReport| kind.flags.has(BlockGroupFlags::DATA);
        let is_metadata = |kind: &KindReport| kind.flags.has(BlockGroupFlags::METADATA);
        let free = |kind: &KindReport| kind.total_bytes.saturating_sub(kind.occupied_bytes());
        let on_devices = |kind: &KindReport, bytes: u64| bytes.saturating_mul(kind.flags.copies());
        let data = report.kinds.iter().find(|kind| is_data(kind));
        let factor = data.map_or(1, |kind| kind.flags.copies());
        let used = sum(&|kind| on_devices(kind, kind.occupied_bytes()));
        let reserve = report.linux_reserve_bytes;
        let free_bytes = (report.device_bytes / factor).saturating_sub(used / factor).saturating_sub(reserve);
        let free_data = sum(&|kind| if is_data(kind) { on_devices(kind, free(kind)) } else { 0 });
        let allocated = sum(&|kind| on_devices(kind, kind.total_bytes));
        let unallocated = report.device_bytes.saturating_sub(allocated).saturating_sub(RESERVED_BYTES);
        let unallocated = unallocated / STRIPE_LENGTH * STRIPE_LENGTH;
        let free_metadata = sum(&|kind| if is_metadata(kind) { on_devices(kind, free(kind)) } else { 0 });
        let is_mixed = report.kinds.iter().any(|kind| is_data(kind) && is_metadata(kind));
        let lacks_metadata =
            !is_mixed && !report.can_make_metadata && free_metadata < reserve.saturating_add(THRESHOLD_BYTES);
        let available_bytes = if lacks_metadata { 0 } else { (free_data + unallocated) / factor };
        Self { factor, free_bytes, available_bytes }
    }
}
