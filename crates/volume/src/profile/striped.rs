//! Profiles that spread a chunk over devices in stripes: RAID0, and RAID10 with each stripe on a pair.

use vlinder_format::Logical;
use vlinder_format::chunk::STRIPE_LENGTH;

use super::stripes::{StripeRange, stripes_of};
use crate::mapped_chunk::MappedChunk;

/// Where one copy of a range lies, a part for each stripe that it touches; none where the range leaves the
/// chunk or there is no such copy. `copies` devices hold each stripe.
pub(super) fn places(
    chunk: &MappedChunk,
    logical: Logical,
    length: u64,
    mirror: u8,
    copies: u64,
) -> Option<Vec<StripeRange>> {
    if length == 0 || !chunk.contains(logical, length) || u64::from(mirror) >= copies {
        return None;
    }
    let columns = u64::try_from(chunk.chunk.stripes.len()).ok()?.checked_div(copies)?;
    let distance = logical.0.checked_sub(chunk.logical.0)?;
    stripes_of(distance, length)
        .map(|part| {
            let column =
                part.number.checked_rem(columns)?.checked_mul(copies)?.checked_add(u64::from(mirror))?;
            let row = part.number.checked_div(columns)?;
            let stripe = chunk.chunk.stripes.get(usize::try_from(column).ok()?)?;
            let behind = row.checked_mul(STRIPE_LENGTH)?.checked_add(part.inside)?;
            let physical = stripe.physical.checked_add(behind)?;
            Some(StripeRange {
                mirror,
                device: stripe.device,
                physical,
                start: part.start,
                length: part.length,
            })
        })
        .collect()
}
