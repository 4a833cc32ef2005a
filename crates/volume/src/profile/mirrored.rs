//! Profiles in which every stripe is a whole copy of the chunk: single and DUP.

use vlinder_format::Logical;

use super::stripes::StripeRange;
use crate::mapped_chunk::MappedChunk;

/// Where one copy of a range lies; none where the range leaves the chunk or there is no such copy.
pub(super) fn place(chunk: &MappedChunk, logical: Logical, length: u64, mirror: u8) -> Option<StripeRange> {
    if length == 0 || !chunk.contains(logical, length) {
        return None;
    }
    let stripe = chunk.chunk.stripes.get(usize::from(mirror))?;
    let distance = logical.0.checked_sub(chunk.logical.0)?;
    let physical = stripe.physical.checked_add(distance)?;
    Some(StripeRange { mirror, device: stripe.device, physical, start: 0, length })
}
