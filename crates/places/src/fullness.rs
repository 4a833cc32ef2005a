//! How full a file system is, of an image as of a mount.

use vlinder_control::protocol::ConditionRecord;
use vlinder_format::chunk::BlockGroupFlags;
use vlinder_transaction::{ChunkShare, DeviceReport, SpaceReport};

/// How full a file system is.
pub struct Fullness {
    /// Of the engine.
    pub report: SpaceReport,
    /// What statfs tells.
    pub available_bytes: u64,
    /// The devices, by number.
    pub devices: Vec<ShownDevice>,
    /// What chunks have on each of them.
    pub shares: Vec<ChunkShare>,
    /// How the file system fares.
    pub condition: ConditionRecord,
}

impl Fullness {
    /// Bytes that the chunks of some types have on a device.
    pub fn allocated_on(&self, device: &ShownDevice, is_meant: impl Fn(BlockGroupFlags) -> bool) -> u64 {
        let there = self.shares.iter().filter(|share| share.device == device.report.number);
        there.filter(|share| is_meant(share.flags)).map(ChunkShare::device_bytes).fold(0, u64::saturating_add)
    }
}

/// A device as it is listed.
pub struct ShownDevice {
    /// Its number and bytes.
    pub report: DeviceReport,
    /// Its path, or `missing`, as btrfs-progs calls one that is not there.
    pub name: String,
    /// Bytes behind what the file system uses.
    pub slack_bytes: u64,
}

impl ShownDevice {
    /// A device of this path and length, as far as they are known.
    pub(crate) fn new(report: DeviceReport, path: &[u8], length_bytes: Option<u64>) -> Self {
        let name = if report.is_missing { "missing".to_owned() } else { crate::text::escaped(path) };
        let slack_bytes = length_bytes.map_or(0, |length| length.saturating_sub(report.total_bytes));
        Self { report, name, slack_bytes }
    }
}
