//! One reconstruction of some bytes (a copy as it lies on the devices, or what parity and other stripes make
//! of it): reading it, comparing it, and rewriting it. For a scrub, which looks at all of them, where a reader
//! stops at the first good one.

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

impl Volume {
    /// In how many ways the bytes of a request can be had: see [`reconstructions`].
    ///
    /// # Errors
    /// As [`Volume::chunk`].
    pub fn reconstructions(&self, request: ReadRequest) -> Result<u8, VolumeError> {
        Ok(reconstructions(&*self.chunk_of(request)?))
    }

    /// Reads one reconstruction, by number. Nothing is judged, and no other is tried; stale members are read,
    /// too. A device's error is counted.
    ///
    /// # Errors
    /// [`VolumeError::Copy`] with why it can't be read, [`VolumeError::Unmapped`] where there is no such
    /// reconstruction.
    pub fn read_reconstruction(&self, request: ReadRequest, number: u8) -> Result<Vec<u8>, VolumeError> {
        let chunk = self.chunk_of(request)?;
        if number >= reconstructions(&chunk) {
            return Err(unmapped(request));
        }
        let copies = Copies::new(self, &chunk);
        let read = copies.read(request, number, StaleCopies::Accept);
        read.map_err(|fault| VolumeError::Copy(Box::new(copies.failure(request, number, fault))))
    }

    /// Reads one reconstruction and compares it with what another gave. Gives the start of each sector that
    /// differs.
    ///
    /// # Errors
    /// As [`Volume::read_reconstruction`].
    pub fn compare_reconstruction(
        &self,
        request: ReadRequest,
        number: u8,
        expected: &[u8],
    ) -> Result<Vec<Logical>, VolumeError> {
        let found = self.read_reconstruction(request, number)?;
        let sector_bytes = self.geometry().sector_size;
        let size = usize::try_from(sector_bytes).unwrap_or(usize::MAX).max(1);
        let starts = (0..).map_while(|sector: u64| {
            request.logical.checked_add(sector.checked_mul(u64::from(sector_bytes))?)
        });
        let sectors = found.chunks(size).enumerate().zip(starts);
        let differs = |number: usize, sector: &[u8]| {
            let start = number.saturating_mul(size);
            expected.get(start..start.saturating_add(sector.len())) != Some(sector)
        };
        let differing = sectors.filter(|((number, sector), _)| differs(*number, sector));
        Ok(differing.map(|(_, start)| start).collect())
    }

    /// Rewrites one reconstruction with the bytes of another, and counts both in the health of their devices.
    /// Before it does, it reads both again: nothing is rewritten where the good one changed or the bad one is
    /// good by now, nor while writes are in flight (see `repair_gate`); [`BadCopy::repaired`] tells.
    ///
    /// # Errors
    /// [`VolumeError::ReadOnly`], also on a volume that is written to in memory;
    /// [`VolumeError::UnsupportedProfile`].
    pub fn rewrite_reconstruction(
        &self,
        request: ReadRequest,
        replacement: Replacement<'_>,
        is_good: &mut dyn FnMut(&[u8]) -> bool,
    ) -> Result<BadCopy, VolumeError> {
        if self.is_read_only() || self.keeps_writes_in_memory() {
            return Err(VolumeError::ReadOnly);
        }
        let Replacement { bad, fault, good, bytes } = replacement;
        let chunk = self.chunk_of(request)?;
        plan_write(&chunk, request.logical, u64::try_from(request.length).unwrap_or(u64::MAX))?;
        let copies = Copies::new(self, &chunk);
        let failures = vec![copies.failure(request, bad, fault)];
        let rewritten = copies.repair(request, failures, good, bytes, &mut |bytes| is_good(&bytes));
        rewritten.into_iter().next().ok_or_else(|| unmapped(request))
    }

    fn chunk_of(&self, request: ReadRequest) -> Result<Arc<MappedChunk>, VolumeError> {
        self.chunk(request.logical, u64::try_from(request.length).unwrap_or(u64::MAX))
    }
}

fn unmapped(request: ReadRequest) -> VolumeError {
    let length = u64::try_from(request.length).unwrap_or(u64::MAX);
    VolumeError::Unmapped { logical: request.logical, length }
}
