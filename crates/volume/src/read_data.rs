//! Data, judged sector by sector: a bad sector is looked for in the other copies alone.

use std::collections::BTreeMap;

use vlinder_format::block::BlockFault;
use vlinder_format::{Damage, Place};

use crate::error::{CopyFailure, CopyFault, VolumeError};
use crate::read::{Planned, ReadRequest, Trust, Verified};
use crate::volume::Volume;

/// A sector whose first copy was not good.
#[derive(Default)]
struct BadSector {
    failures: Vec<CopyFailure>,
    good_mirror: Option<u8>,
}

/// The state of one request.
struct Judged<'a> {
    volume: &'a Volume,
    planned: &'a Planned,
    sector_size: usize,
    bytes: Vec<u8>,
    bad: BTreeMap<usize, BadSector>,
}

impl Volume {
    pub(crate) fn judge_sectors(
        &self,
        planned: &Planned,
        first: Result<Vec<u8>, CopyFault>,
        is_good: &mut dyn FnMut(usize, &[u8]) -> bool,
    ) -> Result<Verified<Vec<u8>>, VolumeError> {
        let sector_size = usize::try_from(self.geometry.sector_size).unwrap_or(usize::MAX).max(1);
        let length = planned.request.length;
        let bytes = vec![];
        let mut judged = Judged { volume: self, planned, sector_size, bytes, bad: BTreeMap::new() };
        judged.take_first(first, is_good);
        if judged.bad.is_empty() {
            return Ok(Verified { value: judged.bytes, bad_copies: Vec::new() });
        }
        let further = self.further_ways(&planned.chunk);
        for way in &further {
            judged.try_runs(*way, is_good);
        }
        // One unreadable sector spoils a whole request: what is still missing is asked for sector by sector.
        if length > sector_size {
            judged.try_sectors((0, Trust::Current), is_good);
            for way in further {
                judged.try_sectors(way, is_good);
            }
        }
        judged.finish(is_good)
    }
}

impl Judged<'_> {
    fn take_first(
        &mut self,
        first: Result<Vec<u8>, CopyFault>,
        is_good: &mut dyn FnMut(usize, &[u8]) -> bool,
    ) {
        match first {
            Ok(bytes) => {
                for (sector, content) in bytes.chunks(self.sector_size).enumerate() {
                    if !is_good(sector, content) {
                        let failure = self.failure(sector, 0, self.checksum_fault(sector));
                        self.bad.entry(sector).or_default().failures.push(failure);
                    }
                }
                self.bytes = bytes;
            }
            Err(fault) => {
                self.bytes = vec![0; self.planned.request.length];
                for sector in 0..self.planned.request.length.div_ceil(self.sector_size) {
                    let failure = self.failure(sector, 0, fault.clone());
                    self.bad.entry(sector).or_default().failures.push(failure);
                }
            }
        }
    }

    /// Reads the runs of sectors that are still missing from one copy.
    fn try_runs(&mut self, way: (u8, Trust), is_good: &mut dyn FnMut(usize, &[u8]) -> bool) {
        let mut runs: Vec<(usize, usize)> = Vec::new();
        for sector in self.missing() {
            match runs.last_mut() {
                Some((_, end)) if *end == sector => *end = sector.saturating_add(1),
                _ => runs.push((sector, sector.saturating_add(1))),
            }
        }
        for (first, end) in runs {
            self.try_range(way, first, end, is_good);
        }
    }

    fn try_sectors(&mut self, way: (u8, Trust), is_good: &mut dyn FnMut(usize, &[u8]) -> bool) {
        for sector in self.missing() {
            self.try_range(way, sector, sector.saturating_add(1), is_good);
        }
    }

    fn try_range(
        &mut self,
        (mirror, trust): (u8, Trust),
        first: usize,
        end: usize,
        is_good: &mut dyn FnMut(usize, &[u8]) -> bool,
    ) {
        let Some(request) = self.sectors(first, end) else { return };
        match self.volume.read_copy(&self.planned.chunk, request, mirror, trust) {
            Ok(found) => {
                for (sector, content) in (first..end).zip(found.chunks(self.sector_size)) {
                    if is_good(sector, content) {
                        self.accept(sector, mirror, content);
                    } else {
                        self.reject(sector, mirror, self.checksum_fault(sector));
                    }
                }
            }
            Err(fault) => {
                for sector in first..end {
                    self.reject(sector, mirror, fault.clone());
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
            bad_copies.extend(self.volume.repair(
                &self.planned.chunk,
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
        self.volume.failure(&self.planned.chunk, request, mirror, fault)
    }

    fn checksum_fault(&self, sector: usize) -> CopyFault {
        let logical = self.sectors(sector, sector.saturating_add(1)).map(|request| request.logical);
        CopyFault::Damage(Damage::new(BlockFault::Checksum, Place { block: logical, ..Place::default() }))
    }
}
