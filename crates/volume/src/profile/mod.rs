//! RAID profiles as pure plans: where the bytes of a range of one chunk lie, without any I/O.
//!
//! | profile | stripes | ways to get each byte | planned for | in |
//! |---|---|---|---|---|
//! | single, DUP | 1; 2 on one device | 1; 2 | reading, writing | [`mirrored`] |
//! | RAID1, RAID1C3, RAID1C4 | 2, 3, 4 | as many | reading | [`mirrored`] |
//! | RAID0, RAID10 | any; pairs | 1; 2 | reading | [`striped`] |
//! | RAID5, RAID6 | with 1, 2 of parity | 2; 3, and one more for each further stripe of data | reading | [`parity`] |

mod galois;
mod mirrored;
mod parity;
mod striped;
mod stripes;
mod superblock_stripes;
mod write_plan;

pub use parity::{Column, Rebuild};
pub use stripes::StripeRange;
pub use vlinder_format::chunk::Profile;
pub use write_plan::{PlannedWrite, WritePlan, WriteRole};

use smallvec::SmallVec;
use vlinder_format::chunk::Stripe;
use vlinder_format::{DeviceId, Logical};

use crate::error::VolumeError;
use crate::mapped_chunk::MappedChunk;

/// Where one copy of a range is read: parts in the order of the request, which together are the request.
///
/// # Errors
/// [`VolumeError::Unmapped`] where the range leaves the chunk or there is no such copy,
/// [`VolumeError::UnsupportedProfile`].
pub fn plan_read(
    chunk: &MappedChunk,
    logical: Logical,
    length: u64,
    mirror: u8,
) -> Result<Vec<StripeRange>, VolumeError> {
    let facts = chunk.profile.facts();
    let parts = match (facts.is_striped(), facts.parities) {
        (false, _) => mirrored::place(chunk, logical, length, mirror).map(|part| vec![part]),
        (true, 0) => striped::places(chunk, logical, length, mirror, u64::from(facts.copies)),
        (true, _) if mirror == 0 => parity::places(chunk, logical, length),
        (true, _) => None,
    };
    parts.ok_or(VolumeError::Unmapped { logical, length })
}

/// In how many ways each byte of a chunk can be had. The first is read directly; with RAID5 and RAID6 the
/// others are worked out ([`plan_rebuild`]), else they are copies.
pub fn reconstructions(chunk: &MappedChunk) -> u8 {
    if has_parity(chunk) { parity::reconstructions(chunk) } else { chunk.profile.copies() }
}

/// What is read to work a range out of parity, in one of the ways after the first; none where that way is a
/// copy.
///
/// # Errors
/// [`VolumeError::Unmapped`] where the range leaves the chunk or there is no such way.
pub fn plan_rebuild(
    chunk: &MappedChunk,
    logical: Logical,
    length: u64,
    reconstruction: u8,
) -> Result<Option<Vec<Rebuild>>, VolumeError> {
    if !has_parity(chunk) || reconstruction == 0 {
        return Ok(None);
    }
    parity::rebuilds(chunk, logical, length, reconstruction)
        .map(Some)
        .ok_or(VolumeError::Unmapped { logical, length })
}

/// Whether all bytes of a chunk can be had while only these devices are there.
pub fn is_readable(chunk: &MappedChunk, is_there: impl Fn(DeviceId) -> bool) -> bool {
    let stripes = &chunk.chunk.stripes;
    let facts = chunk.profile.facts();
    if has_parity(chunk) {
        let missing = stripes.iter().filter(|stripe| !is_there(stripe.device)).count();
        return missing <= usize::from(facts.parities);
    }
    // The stripes that hold the same bytes lie side by side.
    let any = |stripes: &[Stripe]| stripes.iter().any(|stripe| is_there(stripe.device));
    stripes.chunks(usize::from(facts.copies)).all(any)
}

fn has_parity(chunk: &MappedChunk) -> bool {
    chunk.profile.facts().parities > 0
}

/// What is to be written for a range, and how many of these writes may fail.
///
/// # Errors
/// As [`plan_read`].
pub fn plan_write(chunk: &MappedChunk, logical: Logical, length: u64) -> Result<WritePlan, VolumeError> {
    if !chunk.profile.is_writable() {
        return Err(VolumeError::UnsupportedProfile { profile: chunk.profile, operation: "writing" });
    }
    let facts = chunk.profile.facts();
    let write = |mirror| {
        let place = mirrored::place(chunk, logical, length, mirror)?;
        let role = if mirror == 0 { WriteRole::Data } else { WriteRole::Copy };
        Some(PlannedWrite { place, role })
    };
    let writes: Option<SmallVec<_>> = (0..facts.copies).map(write).collect();
    let writes = writes.ok_or(VolumeError::Unmapped { logical, length })?;
    // As Linux has it (`btrfs_chunk_max_errors`). That is none with DUP: a device that failed to write one
    // copy is not trusted with the only other.
    Ok(WritePlan { writes, tolerated_failures: facts.tolerated_failures })
}

#[cfg(test)]
mod tests;
