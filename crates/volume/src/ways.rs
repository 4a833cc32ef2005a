//! The ways to some bytes: a copy as it lies on the devices, or what parity and other stripes make of it.
//! However many are wanted at once and over however many stripes they go, each device gets its part in one
//! batch, all at the same time.

use vlinder_device::Completion;
use vlinder_format::DeviceId;

use crate::batches::Batches;
use crate::error::CopyFault;
use crate::health::HealthEvent;
use crate::mapped_chunk::MappedChunk;
use crate::profile::{Rebuild, StripeRange, plan_read, plan_rebuild};
use crate::request::ReadRequest;
use crate::verified::{BadCopy, Trust};
use crate::volume::Volume;

/// Bytes that are wanted in a certain way.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Attempt {
    pub(crate) request: ReadRequest,
    pub(crate) way: u8,
    pub(crate) trust: Trust,
}

/// What is read for an attempt.
enum Plan {
    Copy(Vec<StripeRange>),
    Rebuild(Vec<Rebuild>),
}

impl Plan {
    fn of(chunk: &MappedChunk, request: ReadRequest, way: u8) -> Self {
        let length = u64::try_from(request.length).unwrap_or(u64::MAX);
        match plan_rebuild(chunk, request.logical, length, way) {
            Ok(Some(rebuilds)) => Self::Rebuild(rebuilds),
            _ => Self::Copy(plan_read(chunk, request.logical, length, way).unwrap_or_default()),
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

impl Volume {
    /// Reads bytes of a chunk in one way, and counts a device's error.
    pub(crate) fn read_copy(
        &self,
        chunk: &MappedChunk,
        request: ReadRequest,
        way: u8,
        trust: Trust,
    ) -> Result<Vec<u8>, CopyFault> {
        let mut read = self.read_ways(chunk, &[Attempt { request, way, trust }]);
        read.pop().unwrap_or(Ok(Vec::new()))
    }

    /// Makes many attempts at once, all in one chunk; one result for each, in their order.
    pub(crate) fn read_ways(
        &self,
        chunk: &MappedChunk,
        attempts: &[Attempt],
    ) -> Vec<Result<Vec<u8>, CopyFault>> {
        let mut batches = Batches::default();
        let mut plans = Vec::with_capacity(attempts.len());
        let mut answers: Vec<Option<Completion>> = Vec::new();
        for attempt in attempts {
            let plan = Plan::of(chunk, attempt.request, attempt.way);
            let parts = plan.parts();
            let believed =
                parts.iter().try_for_each(|part| self.trusted(part.device, attempt.trust).map(drop));
            let first = answers.len();
            if believed.is_ok() {
                for part in &parts {
                    batches.add(part, answers.len());
                    answers.push(None);
                }
            }
            plans.push((believed.map(|()| plan), first..answers.len()));
        }
        for (ticket, slots) in batches.submit(self) {
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
        let mut bytes = Vec::new();
        match plan {
            Plan::Copy(parts) => {
                for part in parts {
                    self.place(part, next(part)?, request.length, &mut bytes)?;
                }
            }
            Plan::Rebuild(rebuilds) => {
                bytes.resize(request.length, 0);
                for rebuild in rebuilds {
                    let mut found = Vec::with_capacity(rebuild.sources.len());
                    for (_, part) in &rebuild.sources {
                        let read = next(part)?.into_bytes();
                        found.push(read.inspect_err(|_| self.record(part.device, HealthEvent::Read))?);
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
        self.put_kept_over(request, &mut bytes);
        Ok(bytes)
    }

    /// Counts, for each device, what was bad on it and what stood in for that.
    pub(crate) fn count_healing(
        &self,
        chunk: &MappedChunk,
        request: ReadRequest,
        good_way: u8,
        bad_copies: &[BadCopy],
    ) {
        for bad in bad_copies {
            if let Some(member) = self.member(bad.failure.device) {
                member.health.count_healed(bad.repaired);
            }
        }
        let mut helpers: Vec<DeviceId> =
            Plan::of(chunk, request, good_way).parts().iter().map(|part| part.device).collect();
        helpers.sort_unstable();
        helpers.dedup();
        for member in helpers.into_iter().filter_map(|device| self.member(device)) {
            member.health.count_stood_in();
        }
    }
}
