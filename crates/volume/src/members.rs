//! The member devices of a volume, by number.

use vlinder_base::sync::Arc;
use vlinder_device::DeviceErrorKind;
use vlinder_format::device_statistics::DeviceStatistics;
use vlinder_format::{DeviceId, Physical, Uuid};

use crate::error::{CopyFault, VolumeError};
use crate::health::HealthEvent;
use crate::member::Member;
use crate::verified::StaleCopies;

/// The member devices of a volume at one moment, by number. A request takes them once and uses them to its
/// end, whatever joins or leaves the volume meanwhile.
#[derive(Clone, Debug)]
pub struct Members(Arc<[Arc<Member>]>);

impl Members {
    /// These members.
    pub(crate) fn new(members: Vec<Member>) -> Self {
        Self(members.into_iter().map(Arc::new).collect())
    }

    /// All of them.
    pub fn as_slice(&self) -> &[Arc<Member>] {
        &self.0
    }

    /// All of them, one after the other.
    pub fn iter(&self) -> core::slice::Iter<'_, Arc<Member>> {
        self.0.iter()
    }

    /// The member of a number.
    pub fn get(&self, device: DeviceId) -> Option<&Arc<Member>> {
        self.0.iter().find(|member| member.id == device)
    }

    /// A member, if its bytes are to be believed.
    pub(crate) fn trusted(&self, device: DeviceId, stale_copies: StaleCopies) -> Result<&Member, CopyFault> {
        let member = self.get(device).ok_or(CopyFault::MissingDevice { device })?;
        if member.is_stale && stale_copies == StaleCopies::Refuse {
            return Err(CopyFault::StaleDevice { device });
        }
        Ok(member)
    }

    /// Whether a member was away when the others were written to.
    pub(crate) fn has_stale(&self) -> bool {
        self.0.iter().any(|member| member.is_stale)
    }

    /// Whether the file system was built on a seed.
    pub fn has_seed(&self) -> bool {
        self.0.iter().any(|member| member.seed.is_some())
    }

    /// Whether tree blocks may carry this UUID beside the file system's own: blocks of a seed do.
    pub fn is_seed_block_uuid(&self, uuid: Uuid) -> bool {
        self.0.iter().any(|member| member.seed.is_some_and(|seed| seed.tree_block_uuid == uuid))
    }

    /// Bytes that the file system may use on all members.
    pub fn total_bytes(&self) -> u64 {
        self.0.iter().map(|member| member.total_bytes).fold(0, u64::saturating_add)
    }

    /// Tells a member that it need not keep a range that no chunk has. Gives how much of it the device took:
    /// all, or nothing where it has no discards.
    ///
    /// # Errors
    /// The device's, [`DeviceErrorKind::ReadOnly`] among them.
    pub fn discard(&self, device: DeviceId, start: Physical, length: u64) -> Result<u64, VolumeError> {
        let Some(member) = self.get(device) else { return Ok(0) };
        match member.device.discard(start, length) {
            Ok(()) => Ok(length),
            Err(error) if error.kind == DeviceErrorKind::Unsupported => Ok(0),
            Err(error) => Err(error.into()),
        }
    }

    /// Makes all completed writes durable, on every member. Every member is flushed even if one fails.
    ///
    /// # Errors
    /// The first member's that failed.
    pub(crate) fn flush(&self) -> Result<(), VolumeError> {
        let mut result = Ok(());
        for member in self {
            if let Err(error) = member.device.flush() {
                member.health.record(HealthEvent::Flush);
                result = result.and(Err(error.into()));
            }
        }
        result
    }

    /// Counts an error of a member.
    pub(crate) fn record(&self, device: DeviceId, event: HealthEvent) {
        if let Some(member) = self.get(device) {
            member.health.record(event);
        }
    }

    /// The members whose counters changed since the last call: their items must be written by the next
    /// commit.
    pub fn take_changed_statistics(&self) -> Vec<(DeviceId, DeviceStatistics)> {
        let changed = self.0.iter().filter(|member| member.health.take_changed());
        changed.map(|member| (member.id, member.health.statistics())).collect()
    }

    /// The error that two members hold different histories.
    pub(crate) fn two_histories(&self, first: DeviceId, second: DeviceId) -> VolumeError {
        let named = |device| {
            let member = self.get(device);
            (device, member.map(|member| member.device.describe().name.to_string()).unwrap_or_default())
        };
        VolumeError::TwoHistories { first: named(first), second: named(second) }
    }
}

impl<'a> IntoIterator for &'a Members {
    type Item = &'a Arc<Member>;
    type IntoIter = core::slice::Iter<'a, Arc<Member>>;

    fn into_iter(self) -> Self::IntoIter {
        self.0.iter()
    }
}
