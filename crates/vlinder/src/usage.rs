//! How full a file system is.

use vlinder_fs::Statistics;

/// How full a file system is, as statfs(2) tells it: where data are stored twice, half of what the devices
/// hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Usage(Statistics);

impl Usage {
    pub(crate) fn of(statistics: Statistics) -> Self {
        Self(statistics)
    }

    fn bytes(self, blocks: u64) -> u64 {
        blocks.saturating_mul(u64::from(self.0.block_size))
    }

    /// All bytes.
    #[must_use]
    pub fn total_bytes(&self) -> u64 {
        self.bytes(self.0.blocks)
    }

    /// Bytes that nothing uses.
    #[must_use]
    pub fn free_bytes(&self) -> u64 {
        self.bytes(self.0.free_blocks)
    }

    /// Bytes that data can be written to, as Linux reckons them. A write may be refused before: what metadata
    /// may need is not subtracted.
    #[must_use]
    pub fn available_bytes(&self) -> u64 {
        self.bytes(self.0.available_blocks)
    }

    /// Bytes of a sector, the unit in which data are stored.
    #[must_use]
    pub fn sector_bytes(&self) -> u32 {
        self.0.block_size
    }
}
