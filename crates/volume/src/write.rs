//! Writing every copy, flushing, superblocks, discards.

use std::collections::BTreeMap;

use vlinder_base::sync::Arc;
use vlinder_device::{Data, DeviceErrorKind, Request, Ticket};
use vlinder_format::device::DeviceItem;
use vlinder_format::superblock::Superblock;
use vlinder_format::{Level, Logical};

use crate::error::{CopyFailure, CopyFault, VolumeError, lacks_room_on_host};
use crate::health::{Health, HealthEvent};
use crate::profile::{StripeRange, WritePlan, plan_write};
use crate::repair_gate::WritePass;
use crate::request::WriteRequest;
use crate::volume::Volume;

/// What devices made of a discard.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Discarded {
    /// Bytes that they took, of all copies.
    pub told_bytes: u64,
    /// Bytes of devices that have no discards.
    pub refused_bytes: u64,
}

/// Writes in flight.
#[must_use = "writes are not done, and their errors are not seen, before they are waited for"]
pub struct PendingWrites {
    batches: Vec<DeviceBatch>,
    /// What failed before any device was asked.
    failures: Failures,
    /// How many writes of each range may fail.
    tolerated: Vec<u8>,
    _pass: WritePass,
}

/// Those of one device, each with the number of its range.
struct DeviceBatch {
    ticket: Ticket,
    places: Vec<(usize, StripeRange)>,
    health: Arc<Health>,
}

/// One write of a range.
struct Part {
    /// Number of the range.
    range: usize,
    place: StripeRange,
    data: Data,
}

/// Failed writes, each with the number of its range.
#[derive(Default)]
struct Failures(Vec<(usize, CopyFailure)>);

impl Failures {
    fn add(&mut self, range: usize, place: &StripeRange, fault: CopyFault) {
        let StripeRange { mirror, device, physical, .. } = *place;
        self.0.push((range, CopyFailure { mirror, device, physical, fault }));
    }

    /// Those of the ranges of which more failed than they tolerate.
    fn beyond(self, tolerated: &[u8]) -> Vec<CopyFailure> {
        let mut counts: BTreeMap<usize, usize> = BTreeMap::new();
        for (range, _) in &self.0 {
            let count = counts.entry(*range).or_default();
            *count = count.saturating_add(1);
        }
        let is_lost = |range: &usize| {
            let tolerated = tolerated.get(*range).copied().map_or(0, usize::from);
            counts.get(range).is_some_and(|count| *count > tolerated)
        };
        self.0.into_iter().filter(|(range, _)| is_lost(range)).map(|(_, failure)| failure).collect()
    }
}

impl Volume {
    /// Starts writing all copies of all requests, on each device in the order of its addresses. They are in
    /// the devices' caches once waited for, and durable after [`Volume::flush_all`].
    ///
    /// # Errors
    /// [`VolumeError::ReadOnly`], [`VolumeError::Unmapped`], [`VolumeError::UnsupportedProfile`], in memory
    /// [`VolumeError::TooMuchKept`]; nothing is written then.
    pub fn submit_writes(&self, requests: Vec<WriteRequest>) -> Result<PendingWrites, VolumeError> {
        if self.is_read_only() {
            return Err(VolumeError::ReadOnly);
        }
        if let Some(overlay) = self.memory_overlay() {
            for WriteRequest { logical, data } in &requests {
                let length = u64::try_from(data.as_slice().len()).unwrap_or(u64::MAX);
                self.chunks().covering(*logical, length)?;
            }
            overlay.keep(&requests)?;
            return Ok(PendingWrites::submit(self, Vec::new()));
        }
        let mut plans = Vec::with_capacity(requests.len());
        for WriteRequest { logical, data } in requests {
            let length = u64::try_from(data.as_slice().len()).unwrap_or(u64::MAX);
            let chunk = self.chunks().covering(logical, length)?;
            plans.push((plan_write(&chunk, logical, length)?, data));
        }
        Ok(PendingWrites::submit(self, plans))
    }

    /// [`Volume::submit_writes`], and waits.
    ///
    /// # Errors
    /// Also [`VolumeError::WriteFailed`].
    pub fn write(&self, requests: Vec<WriteRequest>) -> Result<(), VolumeError> {
        self.submit_writes(requests)?.wait()
    }

    /// Makes all completed writes durable, on every member. Every member is flushed even if one fails.
    ///
    /// # Errors
    /// The first member's that failed. What was written since the last success is then unsure for ever.
    pub fn flush_all(&self) -> Result<(), VolumeError> {
        if self.keeps_writes_in_memory() {
            return Ok(());
        }
        self.members().flush()
    }

    /// Looks whether another program published a commit on a member since this process did or opened it: to
    /// be asked before blocks are written for a commit. Publishing asks by itself.
    ///
    /// # Errors
    /// [`VolumeError::WrittenByAnother`].
    pub fn check_sole_writer(&self) -> Result<(), VolumeError> {
        if self.keeps_writes_in_memory() {
            return Ok(());
        }
        self.publication().check_sole_writer(&self.members())
    }

    /// Publishes a commit: writes the copies of every member, then the primary of every member durably.
    /// `superblock` is completed for each member with its device item, location and checksum. Everything that
    /// it reaches must have been flushed.
    ///
    /// # Errors
    /// [`VolumeError::RefusedSuperblock`] and [`VolumeError::WrittenByAnother`] before anything is written; a
    /// device's error for a primary, after which it is unsure which commit is published. A copy that can't be
    /// written is only counted.
    pub fn write_superblocks(
        &self,
        superblock: &Superblock,
        device_items: &[DeviceItem],
    ) -> Result<(), VolumeError> {
        if self.is_read_only() {
            return Err(VolumeError::ReadOnly);
        }
        if self.keeps_writes_in_memory() {
            return Ok(());
        }
        self.publication().publish(&self.members(), superblock, device_items)
    }

    /// Publishes an fsync log: writes the primary of every member alone, durably. It is the committed
    /// superblock with another log root, whatever changed in memory since; the copies stay without the log.
    /// What the log reaches must have been flushed.
    ///
    /// # Errors
    /// As [`Volume::write_superblocks`].
    pub fn publish_log(&self, root: Logical, level: Level) -> Result<(), VolumeError> {
        if self.is_read_only() {
            return Err(VolumeError::ReadOnly);
        }
        if self.keeps_writes_in_memory() {
            return Ok(());
        }
        self.publication().publish_log(&self.members(), root, level)
    }

    /// Tells the devices that a range is no longer needed, in all copies.
    ///
    /// # Errors
    /// A device's, but not that it has no discards.
    pub fn discard(&self, logical: Logical, length: u64) -> Result<Discarded, VolumeError> {
        if self.is_read_only() {
            return Err(VolumeError::ReadOnly);
        }
        if self.keeps_writes_in_memory() {
            return Ok(Discarded { told_bytes: 0, refused_bytes: length });
        }
        let chunk = self.chunks().covering(logical, length)?;
        let _pass = self.repair_gate().enter_write();
        let (mut discarded, members) = (Discarded::default(), self.members());
        for place in plan_write(&chunk, logical, length)?.places() {
            let Some(member) = members.get(place.device) else { continue };
            match member.device.discard(place.physical, place.length) {
                Ok(()) => {
                    discarded.told_bytes = discarded.told_bytes.saturating_add(place.length);
                }
                Err(error) if error.kind == DeviceErrorKind::Unsupported => {
                    discarded.refused_bytes = discarded.refused_bytes.saturating_add(place.length);
                }
                Err(error) => return Err(error.into()),
            }
        }
        Ok(discarded)
    }
}

impl PendingWrites {
    /// Starts all writes of these plans, on each device in the order of its addresses.
    pub(crate) fn submit(volume: &Volume, plans: Vec<(WritePlan, Data)>) -> Self {
        let tolerated = plans.iter().map(|(plan, _)| plan.tolerated_failures).collect();
        let mut parts: Vec<Part> = Vec::with_capacity(plans.len());
        for (range, (plan, data)) in plans.into_iter().enumerate() {
            let data = shared(data);
            parts.extend(plan.places().map(|place| Part { range, place, data: cut(&data, &place) }));
        }
        parts.sort_by_key(|part| (part.place.device, part.place.physical));
        let members = volume.members();
        let pass = volume.repair_gate().enter_write();
        let (mut batches, mut failures) = (Vec::new(), Failures::default());
        for group in parts.chunk_by(|left, right| left.place.device == right.place.device) {
            let Some(device) = group.first().map(|part| part.place.device) else { continue };
            let Some(member) = members.get(device) else {
                let fault = CopyFault::MissingDevice { device };
                group.iter().for_each(|part| failures.add(part.range, &part.place, fault.clone()));
                continue;
            };
            let requests =
                group.iter().map(|part| Request::write(part.place.physical, part.data.clone())).collect();
            let places = group.iter().map(|part| (part.range, part.place)).collect();
            let (ticket, health) = (member.device.submit(requests), Arc::clone(&member.health));
            batches.push(DeviceBatch { ticket, places, health });
        }
        Self { batches, failures, tolerated, _pass: pass }
    }

    /// Waits for all of them. Each that failed is counted in the health of its device.
    ///
    /// # Errors
    /// [`VolumeError::WriteFailed`] with every failed write of the ranges of which more failed than they
    /// tolerate: what lies there is unsure.
    pub fn wait(self) -> Result<(), VolumeError> {
        let mut failures = self.failures;
        for DeviceBatch { ticket, places, health } in self.batches {
            for (completion, (range, place)) in ticket.wait().into_iter().zip(places) {
                let Err(error) = completion.result else { continue };
                if !lacks_room_on_host(&error) {
                    health.record(HealthEvent::Write);
                }
                failures.add(range, &place, CopyFault::Device(error));
            }
        }
        let failures = failures.beyond(&self.tolerated);
        if failures.is_empty() { Ok(()) } else { Err(VolumeError::WriteFailed { failures }) }
    }
}

/// The same bytes in a form that clones without copying.
fn shared(data: Data) -> Data {
    match data {
        Data::Owned(bytes) => Data::Inside(Arc::new(bytes)),
        shared => shared,
    }
}

/// The part of a request that goes to one place.
pub(crate) fn cut(data: &Data, place: &StripeRange) -> Data {
    let bytes = data.as_slice();
    let bounds = usize::try_from(place.start).ok().zip(usize::try_from(place.length).ok());
    match bounds {
        Some((start, length)) if start != 0 || length != bytes.len() => {
            let part = start.checked_add(length).and_then(|end| bytes.get(start..end));
            Data::Owned(part.unwrap_or_default().to_vec())
        }
        _ => data.clone(),
    }
}
