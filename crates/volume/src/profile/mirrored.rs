//! Profiles in which every stripe is a whole copy of the chunk: single and DUP.

use std::ops::Range;

use vlinder_format::Logical;

use super::{SUPERBLOCK_STRIPE, StripeRange, superblocks_in};
use crate::chunk_map::MappedChunk;

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

/// A superblock under any copy takes its stripe from all copies.
pub(super) fn superblock_ranges(chunk: &MappedChunk) -> Vec<Range<Logical>> {
    let length = chunk.chunk.length;
    let mut starts: Vec<u64> = chunk
        .chunk
        .stripes
        .iter()
        .flat_map(|stripe| superblocks_in(stripe, length))
        .filter_map(|distance| distance.checked_sub(distance.checked_rem(SUPERBLOCK_STRIPE)?))
        .collect();
    starts.sort_unstable();
    starts.dedup();
    let range = |start: u64| {
        let first = chunk.logical.checked_add(start)?;
        let end = chunk.logical.checked_add(start.saturating_add(SUPERBLOCK_STRIPE).min(length))?;
        Some(first..end)
    };
    starts.into_iter().filter_map(range).collect()
}
