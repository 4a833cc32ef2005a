//! Writing every copy, flushing, superblocks, discards.

use vlinder_base::sync::Arc;
use vlinder_codec::checksum::ChecksumKind;
use vlinder_device::{Data, DeviceErrorKind, DeviceExt, Request, Ticket};
use vlinder_format::device::DeviceItem;
use vlinder_format::superblock::{Superblock, SuperblockFault, SuperblockMirror};
use vlinder_format::{DeviceId, Level, Logical};

use crate::error::{CopyFailure, CopyFault, VolumeError, lacks_room_on_host};
use crate::gate::WritePass;
use crate::health::{Health, HealthEvent};
use crate::mapped_chunk::MappedChunk;
use crate::member::Member;
use crate::profile::{StripeRange, plan_write};
use crate::request::{ReadRequest, WriteRequest};
use crate::superblock::encode;
use crate::volume::Volume;

/// Writes in flight.
#[must_use = "writes are not done, and their errors are not seen, before they are waited for"]
pub struct PendingWrites {
    batches: Vec<DeviceBatch>,
    _pass: WritePass,
}

/// Those of one device.
struct DeviceBatch {
    ticket: Ticket,
    places: Vec<StripeRange>,
    health: Arc<Health>,
}

/// What is needed to write superblocks: the checksum kind, and each member's own.
type OwnSuperblocks<'a> = (ChecksumKind, Vec<(&'a Member, Superblock)>);

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
        if let Some(kept) = &self.kept {
            for WriteRequest { logical, data } in &requests {
                let length = u64::try_from(data.as_slice().len()).unwrap_or(u64::MAX);
                self.chunks.covering(*logical, length)?;
            }
            kept.keep(&requests)?;
            return Ok(PendingWrites { batches: Vec::new(), _pass: self.gate.enter_write() });
        }
        let mut parts: Vec<(StripeRange, Data)> = Vec::with_capacity(requests.len());
        for WriteRequest { logical, data } in requests {
            let length = u64::try_from(data.as_slice().len()).unwrap_or(u64::MAX);
            let chunk = self.chunks.covering(logical, length)?;
            let places = plan_write(&chunk, logical, length)?;
            let data = if places.len() > 1 { shared(data) } else { data };
            for place in places {
                parts.push((place, cut(&data, &place)));
            }
        }
        parts.sort_by_key(|(place, _)| (place.device, place.physical));
        let pass = self.gate.enter_write();
        let mut batches = Vec::new();
        for group in parts.chunk_by(|left, right| left.0.device == right.0.device) {
            let Some(member) = group.first().and_then(|(place, _)| self.member(place.device)) else {
                continue;
            };
            let requests =
                group.iter().map(|(place, data)| Request::write(place.physical, data.clone())).collect();
            let places = group.iter().map(|(place, _)| *place).collect();
            let (ticket, health) = (member.device.submit(requests), Arc::clone(&member.health));
            batches.push(DeviceBatch { ticket, places, health });
        }
        Ok(PendingWrites { batches, _pass: pass })
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
        let mut result = Ok(());
        for member in &self.members {
            if let Err(error) = member.device.flush() {
                member.health.record(HealthEvent::Flush);
                result = result.and(Err(error.into()));
            }
        }
        result
    }

    /// Looks whether another program published a commit on a member since this process did or opened it: to
    /// be asked before blocks are written for a commit. Publishing asks by itself.
    ///
    /// # Errors
    /// [`VolumeError::WrittenByAnother`].
    pub fn check_sole_writer(&self) -> Result<(), VolumeError> {
        if self.keeps_writes_in_memory() { Ok(()) } else { self.primaries.lock().check(&self.members) }
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
        if self.keeps_writes_in_memory() && !self.is_read_only() {
            return Ok(());
        }
        let (kind, own) = self.prepare_superblocks(superblock, device_items)?;
        let mut published = self.published.lock();
        self.check_sole_writer()?;
        for (member, superblock) in &own {
            let copies = [SuperblockMirror::Second, SuperblockMirror::Third];
            let requests: Vec<Request> = copies
                .into_iter()
                .filter(|mirror| mirror.fits(member.total_bytes))
                .map(|mirror| Request::write(mirror.offset(), encode(superblock, mirror, kind)))
                .collect();
            for completion in member.device.submit(requests).wait() {
                if completion.result.is_err_and(|error| !lacks_room_on_host(&error)) {
                    member.health.record(HealthEvent::Write);
                }
            }
        }
        // A torn primary is told from a damaged one by the fields that change with every commit (see
        // superblock::choice). Other fields that share its sectors get a copy that is known to be durable.
        if published.first().is_none_or(|last| !same_rare_fields(last, superblock)) {
            self.flush_all()?;
        }
        self.write_primaries(&own, kind)?;
        *published = own.into_iter().map(|(_, superblock)| superblock).collect();
        Ok(())
    }

    /// Publishes an fsync log: writes the primary of every member alone, durably. It is the committed
    /// superblock with another log root, whatever changed in memory since; the copies stay without the log.
    /// What the log reaches must have been flushed.
    ///
    /// # Errors
    /// As [`Volume::write_superblocks`].
    pub fn publish_log(&self, root: Logical, level: Level) -> Result<(), VolumeError> {
        if self.keeps_writes_in_memory() && !self.is_read_only() {
            return Ok(());
        }
        let published = self.published.lock();
        let log = |committed: &Superblock| Superblock {
            log_root: root,
            log_root_level: level,
            ..committed.clone()
        };
        let items: Vec<DeviceItem> = published.iter().map(|superblock| superblock.device_item).collect();
        let Some(superblock) = published.first().map(log) else {
            return Err(VolumeError::NoDeviceItem { device: DeviceId(0) });
        };
        let (kind, own) = self.prepare_superblocks(&superblock, &items)?;
        self.check_sole_writer()?;
        self.write_primaries(&own, kind)
    }

    fn prepare_superblocks(
        &self,
        superblock: &Superblock,
        device_items: &[DeviceItem],
    ) -> Result<OwnSuperblocks<'_>, VolumeError> {
        if self.is_read_only() {
            return Err(VolumeError::ReadOnly);
        }
        let found = superblock.checksum_type;
        let kind = ChecksumKind::from_disk(found)
            .ok_or(VolumeError::RefusedSuperblock(SuperblockFault::ChecksumType { found }))?;
        let mut own = Vec::with_capacity(self.members.len());
        for member in &self.members {
            let item = device_items.iter().find(|item| item.device == member.id);
            let device_item = *item.ok_or(VolumeError::NoDeviceItem { device: member.id })?;
            let superblock = Superblock { device_item, ..superblock.clone() };
            let primary = Superblock { location: SuperblockMirror::Primary.offset(), ..superblock.clone() };
            primary.check_for_write().map_err(VolumeError::RefusedSuperblock)?;
            own.push((member, superblock));
        }
        Ok((kind, own))
    }

    fn write_primaries(&self, own: &[(&Member, Superblock)], kind: ChecksumKind) -> Result<(), VolumeError> {
        let mut result = Ok(());
        let mut known = self.primaries.lock();
        for (member, superblock) in own {
            let bytes = encode(superblock, SuperblockMirror::Primary, kind);
            if let Err(error) = known.write(member, bytes) {
                if !lacks_room_on_host(&error) {
                    member.health.record(HealthEvent::Write);
                }
                result = result.and(Err(error.into()));
            }
        }
        result
    }

    /// Tells the devices that a range is no longer needed, in all copies. True if every device took the hint.
    ///
    /// # Errors
    /// A device's, but not that it has no discards.
    pub fn discard(&self, logical: Logical, length: u64) -> Result<bool, VolumeError> {
        if self.is_read_only() {
            return Err(VolumeError::ReadOnly);
        }
        if self.keeps_writes_in_memory() {
            return Ok(false);
        }
        let chunk = self.chunks.covering(logical, length)?;
        let _pass = self.gate.enter_write();
        let mut taken = true;
        for place in plan_write(&chunk, logical, length)? {
            let Some(member) = self.member(place.device) else { continue };
            match member.device.discard(place.physical, place.length) {
                Ok(()) => {}
                Err(error) if error.kind == DeviceErrorKind::Unsupported => taken = false,
                Err(error) => return Err(error.into()),
            }
        }
        Ok(taken)
    }

    /// Rewrites one copy, for a repair.
    pub(crate) fn write_copy(
        &self,
        chunk: &MappedChunk,
        request: ReadRequest,
        mirror: u8,
        bytes: &[u8],
    ) -> Result<(), VolumeError> {
        let length = u64::try_from(request.length).unwrap_or(u64::MAX);
        let data = Data::from(bytes);
        let places = plan_write(chunk, request.logical, length)?;
        for place in places.into_iter().filter(|place| place.mirror == mirror) {
            let Some(member) = self.member(place.device) else { continue };
            let written = member.device.write_at(place.physical, cut(&data, &place));
            written.inspect_err(|_| member.health.record(HealthEvent::Write))?;
        }
        Ok(())
    }
}

impl PendingWrites {
    /// Waits for all of them.
    ///
    /// # Errors
    /// [`VolumeError::WriteFailed`] with every copy that failed: what lies there is unsure.
    pub fn wait(self) -> Result<(), VolumeError> {
        let mut failures = Vec::new();
        for DeviceBatch { ticket, places, health } in self.batches {
            for (completion, place) in ticket.wait().into_iter().zip(places) {
                let Err(error) = completion.result else { continue };
                if !lacks_room_on_host(&error) {
                    health.record(HealthEvent::Write);
                }
                failures.push(CopyFailure {
                    mirror: place.mirror,
                    device: place.device,
                    physical: place.physical,
                    fault: CopyFault::Device(error),
                });
            }
        }
        if failures.is_empty() { Ok(()) } else { Err(VolumeError::WriteFailed { failures }) }
    }
}

/// The fields that most commits leave as they are, and that lie in other sectors than the first.
fn same_rare_fields(left: &Superblock, right: &Superblock) -> bool {
    left.system_chunk_array == right.system_chunk_array
        && left.label == right.label
        && left.metadata_uuid == right.metadata_uuid
        && left.cache_generation == right.cache_generation
        && left.reserved == right.reserved
        && left.padding == right.padding
}

/// The same bytes in a form that clones without copying.
fn shared(data: Data) -> Data {
    match data {
        Data::Owned(bytes) => Data::Inside(Arc::new(bytes)),
        shared => shared,
    }
}

/// The part of a request that goes to one place.
fn cut(data: &Data, place: &StripeRange) -> Data {
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
