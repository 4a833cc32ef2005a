//! One member device.

use vlinder_base::sync::Arc;
use vlinder_device::{Device, DeviceError, DeviceExt};
use vlinder_format::device_statistics::DeviceStatistics;
use vlinder_format::{DeviceId, Physical, Uuid};

use crate::health::{Healing, Health};

/// A device and what the file system knows of it.
pub struct Member {
    /// Its number.
    pub id: DeviceId,
    /// Its UUID.
    pub uuid: Uuid,
    /// Bytes that the file system may use.
    pub total_bytes: u64,
    /// The bytes themselves.
    pub device: Arc<dyn Device>,
    /// Whether it was away when the others were written to: its superblock is older than theirs, or another
    /// history was chosen ([`OpenRules::history`](crate::OpenRules)). Its bytes are used where no other copy
    /// is good.
    pub is_stale: bool,
    /// What a seed is called, on which the file system was built.
    pub seed: Option<SeedIdentity>,
    /// Shared with the writes in flight.
    pub(crate) health: Arc<Health>,
}

/// What a seed keeps of its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SeedIdentity {
    /// Its file system's UUID, which its device item has too.
    pub fsid: Uuid,
    /// The UUID that its tree blocks carry.
    pub tree_block_uuid: Uuid,
}

impl Member {
    /// A member with counters at 0.
    pub fn new(id: DeviceId, uuid: Uuid, total_bytes: u64, device: Arc<dyn Device>) -> Self {
        Self { id, uuid, total_bytes, device, is_stale: false, seed: None, health: Arc::default() }
    }

    /// Bytes of the device, for who looks for what no address leads to any more.
    ///
    /// # Errors
    /// The device's.
    pub fn read(&self, physical: Physical, length_bytes: usize) -> Result<Vec<u8>, DeviceError> {
        self.device.read_at(physical, length_bytes)
    }

    /// Its error counters, those loaded included.
    pub fn statistics(&self) -> DeviceStatistics {
        self.health.statistics()
    }

    /// Adds the counters that the device tree stored to those of this opening. For use once, when the tree is
    /// read.
    pub fn load_statistics(&self, stored: &DeviceStatistics) {
        self.health.load(stored);
    }

    /// What was healed on it and by it since it was opened.
    pub fn healing(&self) -> Healing {
        self.health.healing()
    }
}

impl core::fmt::Debug for Member {
    fn fmt(&self, formatter: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        formatter
            .debug_struct("Member")
            .field("id", &self.id)
            .field("uuid", &self.uuid)
            .field("total_bytes", &self.total_bytes)
            .finish_non_exhaustive()
    }
}
