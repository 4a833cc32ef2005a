//! Data, judged sector by sector: a bad sector is looked for in the other copies alone.

use std::collections::BTreeMap;

use vlinder_format::block::BlockFault;
use vlinder_format::{Damage, Place};

use crate::copies::{Attempt, Copies};
use crate::error::{CopyFailure, CopyFault, VolumeError};
use crate::planned_read::{PartFault, Planned};
use crate::profile::plan_read;
use crate::request::ReadRequest;
use crate::verified::{StaleCopies, Verified};
use crate::volume::Volume;

/// A sector whose first copy was not good.
#[derive(Default)]
struct BadSector {
    failures: Vec<CopyFailure>,
    good_mirror: Option<u8>,
}

/// The state of one request.
struct Judged<'a> {
    copies: Copies<'a>,
    planned: &'a Planned,
    sector_size: usize,
    bytes: Vec<u8>,
    bad: BTreeMap<usize, BadSector>,
}

/// Judges each sector that the first copy gave, and looks for bad ones in the other copies.
///
/// # Errors
/// [`VolumeError::NoGoodCopy`] for the first sector that no copy has.
pub(crate) fn judge_sectors(
    volume: &Volume,
    planned: &Planned,
    first: Vec<u8>,
    faults: &[PartFault],
    is_good: &mut dyn FnMut(usize, &[u8]) -> bool,
) -> Result<Verified<Vec<u8>>, VolumeError> {
    let sector_size = usize::try_from(volume.geometry().sector_size).unwrap_or(usize::MAX).max(1);
    let length = planned.request.length;
    let copies = Copies::new(volume, &planned.chunk);
    let mut judged = Judged { copies, planned, sector_size, bytes: first, bad: BTreeMap::new() };
    judged.judge_first(faults, is_good);
    if judged.bad.is_empty() {
        return Ok(Verified { value: judged.bytes, bad_copies: Vec::new() });
    }
    let further = judged.copies.further_reconstructions();
    for reconstruction in &further {
        judged.try_runs(*reconstruction, is_good);
    }
    // One unreadable sector spoils a whole request: what is still missing is asked for sector by sector.
    if length > sector_size {
        judged.try_sectors((0, StaleCopies::Refuse), is_good);
        for reconstruction in further {
            judged.try_sectors(reconstruction, is_good);
        }
    }
    judged.finish(is_good)
}

impl Judged<'_> {
    /// Judges what the first copy gave: sectors of parts that could not be read are bad whatever they hold.
    fn judge_first(&mut self, faults: &[PartFault], is_good: &mut dyn FnMut(usize, &[u8]) -> bool) {
        let count = self.planned.request.length.div_ceil(self.sector_size);
        for (part, fault) in faults {
            let start = usize::try_from(part.start).unwrap_or(usize::MAX);
            let end = start.saturating_add(usize::try_from(part.length).unwrap_or(usize::MAX));
            let first = start.checked_div(self.sector_size).unwrap_or_default();
            for sector in first..end.div_ceil(self.sector_size).min(count) {
                let failure = self.failure(sector, 0, fault.clone());
                self.bad.entry(sector).or_default().failures.push(failure);
            }
        }
        let bytes = core::mem::take(&mut self.bytes);
        for (sector, content) in bytes.chunks(self.sector_size).enumerate() {
            if !self.bad.contains_key(&sector) && !is_good(sector, content) {
                let failure = self.failure(sector, 0, self.checksum_fault(sector));
                self.bad.entry(sector).or_default().failures.push(failure);
            }
        }
        self.bytes = bytes;
    }

    /// Reads the runs of sectors that are still missing in one way, all at once. A run ends where another
    /// stripe begins: what the one is made of may be there, and of the other not.
    fn try_runs(&mut self, reconstruction: (u8, StaleCopies), is_good: &mut dyn FnMut(usize, &[u8]) -> bool) {
        let mut runs: Vec<(usize, usize)> = Vec::new();
        for sector in self.missing() {
            match runs.last_mut() {
                Some((_, end)) if *end == sector => *end = sector.saturating_add(1),
                _ => runs.push((sector, sector.saturating_add(1))),
            }
        }
        let runs = runs.into_iter().flat_map(|(first, end)| self.in_stripes(first, end)).collect();
        self.try_ranges(reconstruction, runs, is_good);
    }

    fn try_sectors(
        &mut self,
        reconstruction: (u8, StaleCopies),
        is_good: &mut dyn FnMut(usize, &[u8]) -> bool,
    ) {
        let sectors = self.missing().into_iter().map(|sector| (sector, sector.saturating_add(1)));
        self.try_ranges(reconstruction, sectors.collect(), is_good);
    }

    /// A run of sectors, cut where the stripes of the chunk end.
    fn in_stripes(&self, first: usize, end: usize) -> Vec<(usize, usize)> {
        let parts = self.sectors(first, end).and_then(|request| {
            let length = u64::try_from(request.length).ok()?;
            plan_read(&self.planned.chunk, request.logical, length, 0).ok()
        });
        let Some(parts) = parts else { return vec![(first, end)] };
        let sector_of = |bytes: u64| {
            usize::try_from(bytes).ok().map(|bytes| bytes.div_ceil(self.sector_size).saturating_add(first))
        };
        let run = |part: &crate::StripeRange| {
            Some((sector_of(part.start)?, sector_of(part.start.checked_add(part.length)?)?))
        };
        parts.iter().filter_map(run).collect()
    }

    fn try_ranges(
        &mut self,
        (reconstruction, stale_copies): (u8, StaleCopies),
        runs: Vec<(usize, usize)>,
        is_good: &mut dyn FnMut(usize, &[u8]) -> bool,
    ) {
        let attempt = |(first, end)| {
            self.sectors(first, end)
                .map(|request| (first..end, Attempt { request, reconstruction, stale_copies }))
        };
        let (runs, attempts): (Vec<_>, Vec<_>) = runs.into_iter().filter_map(attempt).unzip();
        let found = self.copies.read_all(&attempts);
        for (run, found) in runs.into_iter().zip(found) {
            match found {
                Ok(found) => {
                    for (sector, content) in run.zip(found.chunks(self.sector_size)) {
                        if is_good(sector, content) {
                            self.accept(sector, reconstruction, content);
                        } else {
                            self.reject(sector, reconstruction, self.checksum_fault(sector));
                        }
                    }
                }
                Err(fault) => {
                    for sector in run {
                        self.reject(sector, reconstruction, fault.clone());
                    }
                }
            }
        }
    }

    fn accept(&mut self, sector: usize, mirror: u8, content: &[u8]) {
        let start = sector.saturating_mul(self.sector_size);
        let target = start.checked_add(content.len()).and_then(|end| self.bytes.get_mut(start..end));
        if let (Some(target), Some(state)) = (target, self.bad.get_mut(&sector)) {
            target.copy_from_slice(content);
            // A sector read alone from a copy whose neighbour can't be read is good there after all.
            state.failures.retain(|failure| failure.mirror != mirror);
            state.good_mirror = Some(mirror);
        }
    }

    fn reject(&mut self, sector: usize, mirror: u8, fault: CopyFault) {
        let failure = self.failure(sector, mirror, fault);
        if let Some(state) = self.bad.get_mut(&sector)
            && state.failures.iter().all(|known| known.mirror != mirror)
        {
            state.failures.push(failure);
        }
    }

    fn missing(&self) -> Vec<usize> {
        let missing = self.bad.iter().filter(|(_, state)| state.good_mirror.is_none());
        missing.map(|(sector, _)| *sector).collect()
    }

    /// Repairs what was found elsewhere, or reports the first sector that was not.
    fn finish(self, is_good: &mut dyn FnMut(usize, &[u8]) -> bool) -> Result<Verified<Vec<u8>>, VolumeError> {
        let request = |sector: usize| self.sectors(sector, sector.saturating_add(1));
        let mut bad_copies = Vec::new();
        if let Some((sector, state)) = self.bad.iter().find(|(_, state)| state.good_mirror.is_none()) {
            let place = request(*sector).unwrap_or(self.planned.request);
            let failures = state.failures.clone();
            return Err(VolumeError::NoGoodCopy { logical: place.logical, length: place.length, failures });
        }
        for (sector, state) in &self.bad {
            let (Some(request), Some(mirror)) = (request(*sector), state.good_mirror) else { continue };
            let start = sector.saturating_mul(self.sector_size);
            let good = start.checked_add(request.length).and_then(|end| self.bytes.get(start..end));
            let failures = state.failures.clone();
            bad_copies.extend(self.copies.repair(
                request,
                failures,
                mirror,
                good.unwrap_or_default(),
                &mut |bytes| is_good(*sector, &bytes),
            ));
        }
        Ok(Verified { value: self.bytes, bad_copies })
    }

    fn sectors(&self, first: usize, end: usize) -> Option<ReadRequest> {
        let start = first.checked_mul(self.sector_size)?;
        let stop = end.checked_mul(self.sector_size)?.min(self.planned.request.length);
        let logical = self.planned.request.logical.checked_add(u64::try_from(start).ok()?)?;
        Some(ReadRequest { logical, length: stop.checked_sub(start)? })
    }

    fn failure(&self, sector: usize, mirror: u8, fault: CopyFault) -> CopyFailure {
        let request = self.sectors(sector, sector.saturating_add(1)).unwrap_or(self.planned.request);
        self.copies.failure(request, mirror, fault)
    }

    fn checksum_fault(&self, sector: usize) -> CopyFault {
        let logical = self.sectors(sector, sector.saturating_add(1)).map(|request| request.logical);
        CopyFault::Damage(Damage::new(BlockFault::Checksum, Place { block: logical, ..Place::default() }))
    }
}
