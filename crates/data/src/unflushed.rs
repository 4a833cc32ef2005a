//! The bytes of a file that no extent on disk holds yet, in the layers that they pass through.

use std::time::Duration;

use vlinder_base::sync::Arc;
use vlinder_extent_state::ByteRange;
use vlinder_transaction::ReservedData;

use crate::ordered_extents::Ordered;
use crate::runs::Runs;

/// The bytes in memory.
#[derive(Debug, Default)]
pub(crate) struct Unflushed {
    /// Written since the last flush took what there was.
    pub(crate) dirty: Runs,
    /// Taken by a flush that is not done; older than `dirty` where both have a byte.
    pub(crate) writing: Option<Arc<Runs>>,
    /// On the devices, with extents that no item refers to; older than `writing`, which comes behind it.
    pub(crate) ordered: Ordered,
    /// What was ordered and is being entered; older than all others.
    pub(crate) entering: Option<Arc<Runs>>,
    /// Space that is promised to `dirty` (see `Engine::reserve_data`).
    pub(crate) promised: ReservedData,
    /// The same for `writing`.
    pub(crate) writing_promised: ReservedData,
    /// The file had content that was dropped as a whole; what is written now replaces it.
    pub(crate) replaced: bool,
    /// The last flush could not store all that it took.
    pub(crate) is_held: bool,
    /// When the oldest of `dirty` came, by the monotonic clock.
    pub(crate) dirty_since: Option<Duration>,
}

impl Unflushed {
    /// What there is, oldest first: where two have a byte, the later one's is the newer.
    fn layers(&self) -> impl DoubleEndedIterator<Item = &Runs> {
        let entering = self.entering.as_deref();
        let ordered = [&self.ordered.runs];
        entering.into_iter().chain(ordered).chain(self.writing.as_deref()).chain([&self.dirty])
    }

    /// Whether there is nothing.
    pub(crate) fn is_empty(&self) -> bool {
        self.layers().all(Runs::is_empty)
    }

    /// How many bytes there are, twice where a byte was written again while being written.
    pub(crate) fn bytes(&self) -> u64 {
        self.layers().map(Runs::bytes).sum()
    }

    /// Whether they lie in several runs.
    pub(crate) fn is_scattered(&self) -> bool {
        self.layers().flat_map(Runs::iter).nth(1).is_some()
    }

    /// The sectors that have such bytes, sorted; neighbours are one range.
    pub(crate) fn sectors(&self, sector_size: u64) -> Vec<ByteRange> {
        let mut all: Vec<(u64, u64)> = self
            .layers()
            .flat_map(Runs::iter)
            .map(|(offset, bytes)| {
                let end = offset.saturating_add(bytes.len() as u64);
                (offset / sector_size * sector_size, end.checked_next_multiple_of(sector_size).unwrap_or(end))
            })
            .collect();
        all.sort_unstable();
        all.dedup_by(|next, last| {
            let joins = next.0 <= last.1;
            if joins {
                last.1 = last.1.max(next.1);
            }
            joins
        });
        all.into_iter().filter_map(|(start, end)| ByteRange::new(start, end)).collect()
    }

    /// Bytes that could not be stored when that was tried last.
    pub(crate) fn held_bytes(&self) -> u64 {
        if self.is_held { self.dirty.bytes() } else { 0 }
    }

    /// Copies what there is of a range into `target`, whose first byte is at `offset`; gives the parts that
    /// are on disk.
    pub(crate) fn copy_to(&self, offset: u64, target: &mut [u8]) -> Vec<ByteRange> {
        let Some(range) = ByteRange::with_length(offset, target.len() as u64) else { return Vec::new() };
        // Mostly nothing lies below.
        if self.dirty.copy_to(offset, target) == target.len() {
            return Vec::new();
        }
        self.layers().for_each(|layer| {
            layer.copy_to(offset, target);
        });
        self.gaps(range)
    }

    /// The parts of a range that are on disk.
    pub(crate) fn gaps(&self, range: ByteRange) -> Vec<ByteRange> {
        let others = self.layers().rev().filter(|layer| !layer.is_empty());
        others.fold(vec![range], |gaps, layer| gaps.into_iter().flat_map(|gap| layer.gaps(gap)).collect())
    }

    /// The offset behind the last byte here.
    pub(crate) fn end(&self) -> Option<u64> {
        self.layers().filter_map(Runs::end).max()
    }
}
