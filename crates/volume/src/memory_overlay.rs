//! Writes that stay in memory: what a volume shows where nothing may be written, or where its profiles can't
//! be.
//!
//! They are kept by logical address, above copies, stripes and parity: whatever a chunk's profile is and
//! whichever devices are there, a sector that was written is read back as it is, and all others from the
//! devices.

use std::collections::BTreeMap;

use vlinder_base::sync::{Arc, RwLock};
use vlinder_format::Logical;

use crate::error::VolumeError;
use crate::request::{ReadRequest, WriteRequest};

/// Sectors by number.
pub(crate) struct MemoryOverlay {
    sectors: RwLock<BTreeMap<u64, Arc<[u8]>>>,
    sector_bytes: u64,
    most_bytes: u64,
}

impl MemoryOverlay {
    /// Keeps at most so many bytes.
    pub(crate) fn new(sector_size: u32, most_bytes: u64) -> Self {
        Self { sectors: RwLock::default(), sector_bytes: u64::from(sector_size.max(1)), most_bytes }
    }

    /// Keeps all bytes of all requests, each of whole sectors, or none.
    ///
    /// # Errors
    /// [`VolumeError::TooMuchKept`]; [`VolumeError::Request`] for what is not whole sectors.
    pub(crate) fn keep(&self, requests: &[WriteRequest]) -> Result<(), VolumeError> {
        let mut new: BTreeMap<u64, Arc<[u8]>> = BTreeMap::new();
        for WriteRequest { logical, data } in requests {
            let bytes = data.as_slice();
            let length = u64::try_from(bytes.len()).unwrap_or(u64::MAX);
            let size = usize::try_from(self.sector_bytes).unwrap_or(usize::MAX);
            let sectors = self.sectors_of(*logical, length).filter(|(start, count)| {
                let whole = (start.checked_mul(self.sector_bytes), count.checked_mul(self.sector_bytes));
                whole == (Some(logical.0), Some(length))
            });
            let (first, _) = sectors.ok_or(VolumeError::Request { logical: *logical, length })?;
            new.extend((first..).zip(bytes.chunks(size).map(Arc::from)));
        }
        let mut kept = self.sectors.write();
        let more = new.keys().filter(|sector| !kept.contains_key(sector)).count();
        let count = u64::try_from(kept.len().saturating_add(more)).unwrap_or(u64::MAX);
        if count.saturating_mul(self.sector_bytes) > self.most_bytes {
            return Err(VolumeError::TooMuchKept { most_bytes: self.most_bytes });
        }
        kept.append(&mut new);
        Ok(())
    }

    /// The bytes of a request of which all are kept.
    pub(crate) fn whole(&self, request: ReadRequest) -> Option<Vec<u8>> {
        let length = u64::try_from(request.length).ok()?;
        let (first, count) = self.sectors_of(request.logical, length)?;
        let kept = self.sectors.read();
        let found = kept.range(first..first.checked_add(count)?).count();
        if u64::try_from(found) != Ok(count) {
            return None;
        }
        drop(kept);
        let mut bytes = vec![0; request.length];
        self.put_over(request.logical, &mut bytes);
        Some(bytes)
    }

    /// Puts what is kept over what was read from the devices.
    pub(crate) fn put_over(&self, logical: Logical, bytes: &mut [u8]) {
        let length = u64::try_from(bytes.len()).unwrap_or(u64::MAX);
        let Some((first, count)) = self.sectors_of(logical, length) else { return };
        for (number, sector) in self.sectors.read().range(first..first.saturating_add(count)) {
            let start = number.saturating_mul(self.sector_bytes);
            // The first sector may begin before the bytes, all others begin inside.
            let skipped = usize::try_from(logical.0.saturating_sub(start)).unwrap_or(usize::MAX);
            let behind = usize::try_from(start.saturating_sub(logical.0)).unwrap_or(usize::MAX);
            let source = sector.get(skipped..).unwrap_or_default();
            let target = bytes.get_mut(behind..).unwrap_or_default();
            for (byte, kept) in target.iter_mut().zip(source) {
                *byte = *kept;
            }
        }
    }

    /// The first sector of a range and how many it touches; none for no bytes.
    fn sectors_of(&self, logical: Logical, length: u64) -> Option<(u64, u64)> {
        let last = logical.0.checked_add(length.checked_sub(1)?)?;
        let first = logical.0.checked_div(self.sector_bytes)?;
        Some((first, last.checked_div(self.sector_bytes)?.checked_sub(first)?.checked_add(1)?))
    }
}

impl core::fmt::Debug for MemoryOverlay {
    fn fmt(&self, formatter: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        formatter
            .debug_struct("MemoryOverlay")
            .field("sectors", &self.sectors.read().len())
            .finish_non_exhaustive()
    }
}
