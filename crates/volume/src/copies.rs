//! The copies of a chunk: reading bytes in each way that leads to them (a copy as it lies on the devices, or
//! what parity and other stripes make of it), and rewriting what was bad.
//!
//! However many are wanted at once and over however many stripes they go, each device gets its part in one
//! batch, all at the same time.

use vlinder_device::{Completion, Data, DeviceExt};
use vlinder_format::block::BlockFault;
use vlinder_format::{Damage, DeviceId, Fault};

use crate::batches::Batches;
use crate::error::{CopyFailure, CopyFault, VolumeError};
use crate::health::HealthEvent;
use crate::mapped_chunk::MappedChunk;
use crate::members::Members;
use crate::planned_read::put_answer;
use crate::profile::{Rebuild, StripeRange, plan_read, plan_rebuild, plan_write, reconstructions};
use crate::request::ReadRequest;
use crate::verified::{BadCopy, StaleCopies, Verified};
use crate::volume::Volume;
use crate::write::cut;

/// Bytes that are wanted in a certain way.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Attempt {
    pub(crate) request: ReadRequest,
    pub(crate) reconstruction: u8,
    pub(crate) stale_copies: StaleCopies,
}

/// What is read for an attempt.
enum Plan {
    Copy(Vec<StripeRange>),
    Rebuild(Vec<Rebuild>),
}

impl Plan {
    fn of(chunk: &MappedChunk, request: ReadRequest, reconstruction: u8) -> Self {
        let length = u64::try_from(request.length).unwrap_or(u64::MAX);
        match plan_rebuild(chunk, request.logical, length, reconstruction) {
            Ok(Some(rebuilds)) => Self::Rebuild(rebuilds),
            _ => Self::Copy(plan_read(chunk, request.logical, length, reconstruction).unwrap_or_default()),
        }
    }

    fn parts(&self) -> Vec<StripeRange> {
        match self {
            Self::Copy(parts) => parts.clone(),
            Self::Rebuild(rebuilds) => {
                rebuilds.iter().flat_map(|rebuild| rebuild.sources.iter().map(|(_, part)| *part)).collect()
            }
        }
    }
}

/// The copies of a chunk's bytes.
pub(crate) struct Copies<'a> {
    volume: &'a Volume,
    members: Members,
    chunk: &'a MappedChunk,
}

impl<'a> Copies<'a> {
    pub(crate) fn new(volume: &'a Volume, chunk: &'a MappedChunk) -> Self {
        Self { volume, members: volume.members(), chunk }
    }
}

impl Copies<'_> {
    /// The ways to try after the first, in this order: where there are stale members, all again with what
    /// they have.
    pub(crate) fn further_reconstructions(&self) -> Vec<(u8, StaleCopies)> {
        let mut further: Vec<(u8, StaleCopies)> = (1..reconstructions(self.chunk))
            .map(|reconstruction| (reconstruction, StaleCopies::Refuse))
            .collect();
        if self.members.has_stale() {
            further.extend(
                (0..reconstructions(self.chunk)).map(|reconstruction| (reconstruction, StaleCopies::Accept)),
            );
        }
        further
    }

    /// Reads bytes in one way, and counts a device's error.
    pub(crate) fn read(
        &self,
        request: ReadRequest,
        reconstruction: u8,
        stale_copies: StaleCopies,
    ) -> Result<Vec<u8>, CopyFault> {
        let mut read = self.read_all(&[Attempt { request, reconstruction, stale_copies }]);
        read.pop().unwrap_or(Ok(Vec::new()))
    }

    /// Makes many attempts at once; one result for each, in their order.
    pub(crate) fn read_all(&self, attempts: &[Attempt]) -> Vec<Result<Vec<u8>, CopyFault>> {
        let members = &self.members;
        let mut batches = Batches::default();
        let mut plans = Vec::with_capacity(attempts.len());
        let mut answers: Vec<Option<Completion>> = Vec::new();
        for attempt in attempts {
            let plan = Plan::of(self.chunk, attempt.request, attempt.reconstruction);
            let parts = plan.parts();
            let believed = parts
                .iter()
                .try_for_each(|part| members.trusted(part.device, attempt.stale_copies).map(drop));
            let first = answers.len();
            if believed.is_ok() {
                for part in &parts {
                    batches.add(part, answers.len());
                    answers.push(None);
                }
            }
            plans.push((believed.map(|()| plan), first..answers.len()));
        }
        for (ticket, slots) in batches.submit(members) {
            for (completion, slot) in ticket.wait().into_iter().zip(slots) {
                if let Some(answer) = answers.get_mut(slot) {
                    *answer = Some(completion);
                }
            }
        }
        let mut results = Vec::with_capacity(attempts.len());
        for (attempt, (plan, range)) in attempts.iter().zip(plans) {
            let answers = answers.get_mut(range).unwrap_or_default().iter_mut().map(Option::take);
            results.push(plan.and_then(|plan| self.bytes_of(attempt.request, &plan, answers)));
        }
        results
    }

    /// Makes the wanted bytes of the devices' answers, which come in the order of the plan's parts.
    fn bytes_of(
        &self,
        request: ReadRequest,
        plan: &Plan,
        mut answers: impl Iterator<Item = Option<Completion>>,
    ) -> Result<Vec<u8>, CopyFault> {
        let mut next = |part: &StripeRange| {
            answers.next().flatten().ok_or(CopyFault::MissingDevice { device: part.device })
        };
        let (mut bytes, members) = (Vec::new(), &self.members);
        match plan {
            Plan::Copy(parts) => {
                for part in parts {
                    put_answer(members, part, next(part)?, request.length, &mut bytes)?;
                }
            }
            Plan::Rebuild(rebuilds) => {
                bytes.resize(request.length, 0);
                for rebuild in rebuilds {
                    let mut found = Vec::with_capacity(rebuild.sources.len());
                    for (_, part) in &rebuild.sources {
                        let read = next(part)?.into_bytes();
                        found.push(read.inspect_err(|_| members.record(part.device, HealthEvent::Read))?);
                    }
                    let start = usize::try_from(rebuild.start).unwrap_or(usize::MAX);
                    let solved = rebuild.solve(&found);
                    let target = start.checked_add(solved.len()).and_then(|end| bytes.get_mut(start..end));
                    if let Some(target) = target {
                        target.copy_from_slice(&solved);
                    }
                }
            }
        }
        if let Some(overlay) = self.volume.memory_overlay() {
            overlay.put_over(request.logical, &mut bytes);
        }
        Ok(bytes)
    }

    /// The failure of a copy, counted.
    pub(crate) fn failure(&self, request: ReadRequest, mirror: u8, fault: CopyFault) -> CopyFailure {
        let length = u64::try_from(request.length).unwrap_or(u64::MAX);
        let rebuilds = plan_rebuild(self.chunk, request.logical, length, mirror).ok().flatten();
        let source = rebuilds.and_then(|parts| Some(parts.first()?.sources.first()?.1));
        let direct = plan_read(self.chunk, request.logical, length, mirror).ok();
        let place = source.or_else(|| direct?.first().copied());
        let (device, physical) = place.map_or_else(Default::default, |part| (part.device, part.physical));
        if let CopyFault::Damage(damage) = &fault {
            let generation = matches!(damage.fault, Fault::Block(BlockFault::Generation { .. }));
            let event = if generation { HealthEvent::Generation } else { HealthEvent::Corruption };
            self.members.record(device, event);
        }
        CopyFailure { mirror, device, physical, fault }
    }

    /// Tries the copies after the first.
    pub(crate) fn recover<T>(
        &self,
        request: ReadRequest,
        first_fault: CopyFault,
        verify: &mut dyn FnMut(Vec<u8>) -> Result<T, Damage>,
    ) -> Result<Verified<T>, VolumeError> {
        let mut failures = vec![self.failure(request, 0, first_fault)];
        for (mirror, stale_copies) in self.further_reconstructions() {
            let attempt = self.read(request, mirror, stale_copies).and_then(|bytes| {
                verify(bytes.clone()).map(|value| (value, bytes)).map_err(CopyFault::Damage)
            });
            match attempt {
                Ok((value, good)) => {
                    let is_good = &mut |bytes| verify(bytes).is_ok();
                    let bad_copies = self.repair(request, failures, mirror, &good, is_good);
                    return Ok(Verified { value, bad_copies });
                }
                Err(fault) => failures.push(self.failure(request, mirror, fault)),
            }
        }
        Err(VolumeError::NoGoodCopy { logical: request.logical, length: request.length, failures })
    }

    /// Rewrites bad copies from a good one, if the volume may be written and nothing is being written. Both
    /// are read again first: see [`crate::repair_gate`].
    pub(crate) fn repair(
        &self,
        request: ReadRequest,
        failures: Vec<CopyFailure>,
        good_mirror: u8,
        good: &[u8],
        is_good: &mut dyn FnMut(Vec<u8>) -> bool,
    ) -> Vec<BadCopy> {
        let bad_copies = self.rewrite(request, failures, good_mirror, good, is_good);
        self.count_healing(request, good_mirror, &bad_copies);
        bad_copies
    }

    fn rewrite(
        &self,
        request: ReadRequest,
        failures: Vec<CopyFailure>,
        good_mirror: u8,
        good: &[u8],
        is_good: &mut dyn FnMut(Vec<u8>) -> bool,
    ) -> Vec<BadCopy> {
        let unrepaired = |failures: Vec<CopyFailure>| {
            failures.into_iter().map(|failure| BadCopy { failure, repaired: false }).collect()
        };
        if self.volume.is_read_only() || self.volume.keeps_writes_in_memory() {
            return unrepaired(failures);
        }
        let Some(_pass) = self.volume.repair_gate().try_enter_repair() else { return unrepaired(failures) };
        if self.read(request, good_mirror, StaleCopies::Accept).as_deref() != Ok(good) {
            return unrepaired(failures);
        }
        let mut repair_one = |failure: &CopyFailure| {
            let still_bad = !self.read(request, failure.mirror, StaleCopies::Accept).is_ok_and(&mut *is_good);
            still_bad && self.write(request, failure.mirror, good).is_ok()
        };
        failures.into_iter().map(|failure| BadCopy { repaired: repair_one(&failure), failure }).collect()
    }

    /// Rewrites one copy, for a repair.
    fn write(&self, request: ReadRequest, mirror: u8, bytes: &[u8]) -> Result<(), VolumeError> {
        let length = u64::try_from(request.length).unwrap_or(u64::MAX);
        let data = Data::from(bytes);
        let plan = plan_write(self.chunk, request.logical, length)?;
        for place in plan.places().filter(|place| place.mirror == mirror) {
            let Some(member) = self.members.get(place.device) else { continue };
            let written = member.device.write_at(place.physical, cut(&data, &place));
            written.inspect_err(|_| member.health.record(HealthEvent::Write))?;
        }
        Ok(())
    }

    /// Counts, for each device, what was bad on it and what stood in for that.
    fn count_healing(&self, request: ReadRequest, good_reconstruction: u8, bad_copies: &[BadCopy]) {
        for bad in bad_copies {
            if let Some(member) = self.members.get(bad.failure.device) {
                member.health.count_healed(bad.repaired);
            }
        }
        let mut helpers: Vec<DeviceId> = Plan::of(self.chunk, request, good_reconstruction)
            .parts()
            .iter()
            .map(|part| part.device)
            .collect();
        helpers.sort_unstable();
        helpers.dedup();
        for member in helpers.into_iter().filter_map(|device| self.members.get(device)) {
            member.health.count_stood_in();
        }
    }
}
