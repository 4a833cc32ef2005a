//! One reconstruction of some bytes (a copy as it lies on the devices, or what parity and other stripes make
//! of it): reading it, comparing it, and rewriting it. For a scrub, which looks at all of them, while a
//! reader stops at the first good one.

use vlinder_base::sync::Arc;
use vlinder_format::Logical;

use crate::copies::Copies;
use crate::error::{CopyFault, VolumeError};
use crate::mapped_chunk::MappedChunk;
use crate::profile::{plan_write, reconstructions};
use crate::request::ReadRequest;
use crate::verified::{BadCopy, StaleCopies};
use crate::volume::Volume;

/// A reconstruction that is not good, and what to write in its place.
#[derive(Clone, Debug)]
pub struct Replacement<'a> {
    /// Which is bad.
    pub bad: u8,
    /// What is wrong with it.
    pub fault: CopyFault,
    /// Which is good.
    pub good: u8,
    /// Its bytes.
    pub bytes: &'a [u8],
}

/// All reconstructions of the bytes of a request, by number. The first is what is read directly.
pub struct Reconstructions<'a> {
    volume: &'a Volume,
    chunk: Arc<MappedChunk>,
    request: ReadRequest,
}

impl<'a> Reconstructions<'a> {
    /// Those of these bytes, all in one chunk.
    ///
    /// # Errors
    /// As [`Volume::chunk`].
    pub fn of(volume: &'a Volume, request: ReadRequest) -> Result<Self, VolumeError> {
        let chunk = volume.chunk(request.logical, length_of(request))?;
        Ok(Self { volume, chunk, request })
    }

    /// How many there are: see [`reconstructions`].
    pub fn count(&self) -> u8 {
        reconstructions(&self.chunk)
    }

    /// Reads one. Nothing is judged, and no other is tried; stale members are read, too. A device's error is
    /// counted.
    ///
    /// # Errors
    /// [`VolumeError::Copy`] with why it can't be read, [`VolumeError::Unmapped`] where there is no such
    /// reconstruction.
    pub fn read(&self, number: u8) -> Result<Vec<u8>, VolumeError> {
        if number >= self.count() {
            return Err(self.unmapped());
        }
        let copies = Copies::new(self.volume, &self.chunk);
        let read = copies.read(self.request, number, StaleCopies::Accept);
        read.map_err(|fault| VolumeError::Copy(Box::new(copies.failure(self.request, number, fault))))
    }

    /// Reads one and compares it with what another gave. Gives the start of each sector that differs.
    ///
    /// # Errors
    /// As [`read`](Self::read).
    pub fn compare(&self, number: u8, expected: &[u8]) -> Result<Vec<Logical>, VolumeError> {
        let found = self.read(number)?;
        let sector_bytes = self.volume.geometry().sector_size;
        let size = usize::try_from(sector_bytes).unwrap_or(usize::MAX).max(1);
        let starts = (0..).map_while(|sector: u64| {
            self.request.logical.checked_add(sector.checked_mul(u64::from(sector_bytes))?)
        });
        let sectors = found.chunks(size).enumerate().zip(starts);
        let differs = |number: usize, sector: &[u8]| {
            let start = number.saturating_mul(size);
            expected.get(start..start.saturating_add(sector.len())) != Some(sector)
        };
        let differing = sectors.filter(|((number, sector), _)| differs(*number, sector));
        Ok(differing.map(|(_, start)| start).collect())
    }

    /// Rewrites one with the bytes of another, and counts both in the health of their devices. Before it
    /// does, it reads both again: nothing is rewritten where the good one changed or the bad one is good by
    /// now, nor while writes are in flight (see `repair_gate`); [`BadCopy::repaired`] tells.
    ///
    /// # Errors
    /// [`VolumeError::ReadOnly`], also on a volume that is written to in memory;
    /// [`VolumeError::UnsupportedProfile`].
    pub fn rewrite(
        &self,
        replacement: Replacement<'_>,
        is_good: &mut dyn FnMut(&[u8]) -> bool,
    ) -> Result<BadCopy, VolumeError> {
        if self.volume.is_read_only() || self.volume.keeps_writes_in_memory() {
            return Err(VolumeError::ReadOnly);
        }
        let Replacement { bad, fault, good, bytes } = replacement;
        plan_write(&self.chunk, self.request.logical, length_of(self.request))?;
        let copies = Copies::new(self.volume, &self.chunk);
        let failures = vec![copies.failure(self.request, bad, fault)];
        let rewritten = copies.repair(self.request, failures, good, bytes, &mut |bytes| is_good(&bytes));
        rewritten.into_iter().next().ok_or_else(|| self.unmapped())
    }

    fn unmapped(&self) -> VolumeError {
        VolumeError::Unmapped { logical: self.request.logical, length: length_of(self.request) }
    }
}

fn length_of(request: ReadRequest) -> u64 {
    u64::try_from(request.length).unwrap_or(u64::MAX)
}
