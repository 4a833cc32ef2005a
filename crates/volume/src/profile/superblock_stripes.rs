//! The parts of a chunk that lie under superblock copies, where nothing may be allocated.

use std::ops::Range;

use vlinder_format::Logical;
use vlinder_format::chunk::{STRIPE_LENGTH, Stripe};
use vlinder_format::superblock::SuperblockMirror;

use crate::mapped_chunk::MappedChunk;

impl MappedChunk {
    /// The logical ranges that lie under superblock copies of any device, in order and apart; nothing may be
    /// allocated there. (Chunks lie over the copies; Linux excludes these bytes from their groups.)
    pub fn superblock_ranges(&self) -> Vec<Range<Logical>> {
        // Nothing is allocated in chunks of profiles that can't be written.
        if self.profile.is_writable() { mirrored_ranges(self) } else { Vec::new() }
    }
}

/// Bytes around a superblock copy that Linux keeps free: one stripe.
const SUPERBLOCK_STRIPE: u64 = STRIPE_LENGTH;

/// The superblock copies that lie in a run of a device: how far behind the run's start.
fn superblocks_in(stripe: &Stripe, length: u64) -> impl Iterator<Item = u64> {
    let start = stripe.physical.0;
    SuperblockMirror::ALL
        .into_iter()
        .filter_map(move |mirror| mirror.offset().0.checked_sub(start))
        .filter(move |distance| *distance < length)
}

/// A superblock under any copy takes its stripe from all copies.
fn mirrored_ranges(chunk: &MappedChunk) -> Vec<Range<Logical>> {
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
