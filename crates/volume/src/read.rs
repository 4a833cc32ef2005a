//! Reading with a choice of copies.

use vlinder_base::sync::Arc;
use vlinder_device::Ticket;
use vlinder_format::Damage;

use crate::batches::Batches;
use crate::chunk_source::MappedBy;
use crate::copies::Copies;
use crate::error::{CopyFault, VolumeError};
use crate::mapped_chunk::MappedChunk;
use crate::members::Members;
use crate::planned_read::{Planned, put_answer};
use crate::profile::{StripeRange, plan_read};
use crate::read_data::judge_sectors;
use crate::request::ReadRequest;
use crate::verified::{StaleCopies, Verified};
use crate::volume::Volume;

/// Reads in flight. Dropping it abandons their results.
#[must_use = "reads give nothing before they are waited for"]
pub struct PendingReads<'a> {
    volume: &'a Volume,
    in_flight: ReadsInFlight,
}

/// Reads in flight that somebody keeps for later. Dropping it abandons their results.
#[must_use = "reads give nothing before they are waited for"]
pub struct ReadsInFlight {
    members: Members,
    reads: Vec<Result<Planned, VolumeError>>,
    batches: Vec<(Ticket, Vec<Slot>)>,
}

impl ReadsInFlight {
    /// True if waiting for them would not block.
    pub fn are_done(&self) -> bool {
        self.batches.iter().all(|(ticket, _)| ticket.is_done())
    }
}

impl core::fmt::Debug for ReadsInFlight {
    fn fmt(&self, formatter: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        write!(formatter, "ReadsInFlight({})", self.reads.len())
    }
}

/// Which part of which request a device's answer is.
struct Slot {
    read: usize,
    part: StripeRange,
}

impl Volume {
    /// Starts many reads at once, each from its first copy.
    pub fn submit_reads(&self, requests: &[ReadRequest]) -> PendingReads<'_> {
        self.submit_reads_by(requests.iter().map(|request| (*request, MappedBy::AnyChunk)))
    }

    /// As [`Volume::submit_reads`], each request through the chunks that it may use.
    pub fn submit_reads_by(
        &self,
        requests: impl ExactSizeIterator<Item = (ReadRequest, MappedBy)>,
    ) -> PendingReads<'_> {
        self.submit_reads_into(requests, &mut Vec::new())
    }

    /// As [`Volume::submit_reads_by`], into buffers that were used before, whatever they hold. Those that fit
    /// are taken, and come back as results.
    pub fn submit_reads_into(
        &self,
        requests: impl ExactSizeIterator<Item = (ReadRequest, MappedBy)>,
        buffers: &mut Vec<Vec<u8>>,
    ) -> PendingReads<'_> {
        let members = self.members();
        let mut reads = Vec::with_capacity(requests.len());
        let mut batches = Batches::default();
        for (read, (request, by)) in requests.enumerate() {
            let planned = plan(self, request, by);
            let kept = self.memory_overlay().and_then(|overlay| overlay.whole(request));
            let mut faults = Vec::new();
            if let Ok((_, parts)) = &planned
                && kept.is_none()
            {
                // An answer that is put together of several goes into a buffer of its own.
                let mut buffer = if parts.len() == 1 { fitting(buffers, request.length) } else { None };
                for part in parts {
                    match members.trusted(part.device, StaleCopies::Refuse) {
                        Ok(_) => batches.add_into(part, Slot { read, part: *part }, buffer.take()),
                        Err(fault) => faults.push((*part, fault)),
                    }
                }
            }
            let bytes = kept.unwrap_or_default();
            reads.push(planned.map(|(chunk, _)| Planned { request, chunk, bytes, faults }));
        }
        let batches = batches.submit(&members);
        PendingReads { volume: self, in_flight: ReadsInFlight { members, reads, batches } }
    }

    /// Reads that this volume has in flight, to be waited for.
    pub fn attend(&self, in_flight: ReadsInFlight) -> PendingReads<'_> {
        PendingReads { volume: self, in_flight }
    }

    /// Reads bytes and gives them to `verify`, copy after copy, until it accepts one; what was bad is
    /// rewritten. `verify` may be asked about a copy more than once.
    ///
    /// # Errors
    /// [`VolumeError::NoGoodCopy`] with what was wrong with each.
    pub fn read_verified<T>(
        &self,
        request: ReadRequest,
        verify: &mut dyn FnMut(Vec<u8>) -> Result<T, Damage>,
    ) -> Result<Verified<T>, VolumeError> {
        let mut results = self.submit_reads(&[request]).wait(&mut |_, bytes| verify(bytes));
        results.pop().unwrap_or(Err(VolumeError::Unmapped { logical: request.logical, length: 0 }))
    }

    /// Reads data sector by sector: `is_good(sector, bytes)` judges each one (counted from the start of the
    /// request; the last may be short if the request is), and a bad sector is looked for in the other copies
    /// alone.
    ///
    /// # Errors
    /// [`VolumeError::NoGoodCopy`] for the first sector that no copy has.
    pub fn read_data(
        &self,
        request: ReadRequest,
        is_good: &mut dyn FnMut(usize, &[u8]) -> bool,
    ) -> Result<Verified<Vec<u8>>, VolumeError> {
        let mut results =
            self.submit_reads(&[request]).wait_data(&mut |_, sector, bytes| is_good(sector, bytes));
        results.pop().unwrap_or(Err(VolumeError::Unmapped { logical: request.logical, length: 0 }))
    }
}

/// The chunk of a request, and the parts of its first copy.
fn plan(
    volume: &Volume,
    request: ReadRequest,
    by: MappedBy,
) -> Result<(Arc<MappedChunk>, Vec<StripeRange>), VolumeError> {
    let length = u64::try_from(request.length).unwrap_or(u64::MAX);
    let chunk = volume.chunk_by(by, request.logical, length)?;
    let parts = plan_read(&chunk, request.logical, length, 0)?;
    Ok((chunk, parts))
}

/// A buffer for so many bytes: not a much larger one, whose memory would be kept for nothing.
fn fitting(buffers: &mut Vec<Vec<u8>>, length: usize) -> Option<Vec<u8>> {
    buffers.pop().filter(|buffer| buffer.capacity() <= length.saturating_mul(2))
}

impl<'a> PendingReads<'a> {
    /// Keeps the reads for later: [`Volume::attend`] goes on with them.
    pub fn keep(self) -> ReadsInFlight {
        self.in_flight
    }

    /// Waits for the devices and gives each request's bytes to `verify(request, bytes)`; where it refuses
    /// them, the other copies are tried as [`Volume::read_verified`] does. One result for each request, in
    /// their order.
    pub fn wait<T>(
        self,
        verify: &mut dyn FnMut(usize, Vec<u8>) -> Result<T, Damage>,
    ) -> Vec<Result<Verified<T>, VolumeError>> {
        let (volume, reads) = self.collect();
        let mut results = Vec::with_capacity(reads.len());
        for (number, read) in reads.into_iter().enumerate() {
            results.push(read.and_then(|mut planned| {
                let bytes = core::mem::take(&mut planned.bytes);
                let judged = match planned.faults.pop() {
                    Some((_, fault)) => Err(fault),
                    None => verify(number, bytes).map_err(CopyFault::Damage),
                };
                match judged {
                    Ok(value) => Ok(Verified { value, bad_copies: Vec::new() }),
                    Err(fault) => {
                        Copies::new(volume, &planned.chunk)
                            .recover(planned.request, fault, &mut |bytes| verify(number, bytes))
                    }
                }
            }));
        }
        results
    }

    /// As [`PendingReads::wait`] for data: `is_good(request, sector, bytes)` judges each sector, as
    /// [`Volume::read_data`] does.
    pub fn wait_data(
        self,
        is_good: &mut dyn FnMut(usize, usize, &[u8]) -> bool,
    ) -> Vec<Result<Verified<Vec<u8>>, VolumeError>> {
        let (volume, reads) = self.collect();
        let mut results = Vec::with_capacity(reads.len());
        for (number, read) in reads.into_iter().enumerate() {
            results.push(read.and_then(|mut planned| {
                let bytes = core::mem::take(&mut planned.bytes);
                let faults = core::mem::take(&mut planned.faults);
                let mut is_good = |sector: usize, bytes: &[u8]| is_good(number, sector, bytes);
                judge_sectors(volume, &planned, bytes, &faults, &mut is_good)
            }));
        }
        results
    }

    /// Waits, and puts the answers together.
    fn collect(self) -> (&'a Volume, Vec<Result<Planned, VolumeError>>) {
        let Self { volume, in_flight: ReadsInFlight { members, mut reads, batches } } = self;
        for (ticket, slots) in batches {
            for (completion, slot) in ticket.wait().into_iter().zip(slots) {
                let Some(Ok(planned)) = reads.get_mut(slot.read) else { continue };
                let length = planned.request.length;
                if let Err(fault) = put_answer(&members, &slot.part, completion, length, &mut planned.bytes) {
                    planned.faults.push((slot.part, fault));
                }
            }
        }
        for planned in reads.iter_mut().flatten() {
            planned.bytes.resize(planned.request.length, 0);
            if let Some(overlay) = volume.memory_overlay() {
                overlay.put_over(planned.request.logical, &mut planned.bytes);
            }
        }
        (volume, reads)
    }
}
