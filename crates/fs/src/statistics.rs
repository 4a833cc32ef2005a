//! How full the file system is, as statfs(2) tells it.

use vlinder_format::Uuid;
use vlinder_format::chunk::BlockGroupFlags;

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
    /// Blocks that data can be written to: what metadata may need is not promised.
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
        let data = report.kinds.iter().find(|kind| kind.flags.has(BlockGroupFlags::DATA));
        let factor = data.map_or(1, |kind| kind.flags.copies());
        let used: u64 =
            report.kinds.iter().map(|kind| kind.used_bytes.saturating_mul(kind.flags.copies())).sum();
        let free_bytes = report.device_bytes.saturating_sub(used) / factor;
        let available_bytes = report.data_available_bytes.min(free_bytes);
        Ok(Statistics {
            block_size: self.sector_size(),
            blocks: report.device_bytes / factor / block,
            free_blocks: free_bytes / block,
            available_blocks: available_bytes / block,
            longest_name: LONGEST,
            uuid: self.engine().superblock().fsid,
        })
    }
}
