//! Sets of address ranges: where extents lie, what is free, what has checksums. Their size grows with the
//! fragmentation of data, so that they go to temporary space where they are large.

use crate::sorted::{Pass, Record, Sorted, Sorter};
use crate::store::Store;

/// A range: its first byte and the byte behind the last. Ranges that meet are one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Range {
    pub(crate) start: u64,
    pub(crate) end: u64,
}

impl Record for Range {
    const BYTES: usize = 16;

    fn encode(&self, bytes: &mut Vec<u8>) {
        bytes.extend_from_slice(&self.start.to_le_bytes());
        bytes.extend_from_slice(&self.end.to_le_bytes());
    }

    fn decode(bytes: &[u8]) -> Self {
        let number = |bytes: &[u8]| bytes.first_chunk().map_or(0, |bytes| u64::from_le_bytes(*bytes));
        let (start, end) = bytes.split_at_checked(8).unwrap_or_default();
        Self { start: number(start), end: number(end) }
    }

    fn absorb(&mut self, next: &Self) -> bool {
        let meets = next.start <= self.end;
        if meets {
            self.end = self.end.max(next.end);
        }
        meets
    }
}

/// A set that is being made.
pub(crate) struct Gathering(Sorter<Range>);

impl Gathering {
    /// An empty one that holds so many bytes in memory.
    pub(crate) fn new(store: &Store, most_bytes: usize) -> Self {
        Self(Sorter::new(store, most_bytes))
    }

    /// Adds a range, at best behind those before.
    pub(crate) fn add(&mut self, start: u64, end: u64) {
        if start < end {
            self.0.add(Range { start, end });
        }
    }

    /// The set.
    pub(crate) fn finish(self) -> Ranges {
        Ranges(self.0.finish())
    }
}

/// A set of ranges.
#[derive(Default)]
pub(crate) struct Ranges(Sorted<Range>);

impl Ranges {
    /// All ranges, in order.
    pub(crate) fn iter(&self) -> Pass<'_, Range> {
        self.0.iter()
    }

    /// The ranges of which bytes from this one on are left.
    pub(crate) fn from(&self, start: u64) -> Pass<'_, Range> {
        self.0.from(|range| range.end <= start)
    }

    /// Whether any byte of a range is in the set.
    pub(crate) fn touches(&self, start: u64, end: u64) -> bool {
        start < end && self.from(start).next().is_some_and(|range| range.start < end)
    }

    /// The first part of a range that is not in the set.
    pub(crate) fn first_gap(&self, start: u64, end: u64) -> Option<(u64, u64)> {
        let mut behind = self.from(start).peekable();
        let at = behind.next_if(|range| range.start <= start).map_or(start, |range| range.end);
        let to = behind.peek().map_or(end, |range| range.start.min(end));
        (at < end).then_some((at, to))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_join_and_are_found() {
        let mut ranges = Gathering::new(&Store::new(None), 0);
        for (start, end) in [(10, 20), (20, 30), (40, 50), (45, 45), (50, 60), (40, 42), (30, 35)] {
            ranges.add(start, end);
        }
        let ranges = ranges.finish();
        assert_eq!(
            ranges.iter().map(|range| (range.start, range.end)).collect::<Vec<_>>(),
            [(10, 35), (40, 60)]
        );
        for (start, end, touches) in [
            (0, 10, false),
            (0, 11, true),
            (34, 36, true),
            (35, 40, false),
            (59, 70, true),
            (60, 70, false),
            (45, 45, false),
        ] {
            assert_eq!(ranges.touches(start, end), touches, "{start} to {end}");
        }
        assert_eq!(ranges.first_gap(10, 35), None);
        assert_eq!(ranges.first_gap(12, 45), Some((35, 40)));
        assert_eq!(ranges.first_gap(12, 38), Some((35, 38)));
        assert_eq!(ranges.first_gap(0, 5), Some((0, 5)));
        assert_eq!(ranges.first_gap(5, 20), Some((5, 10)));
        assert_eq!(ranges.first_gap(55, 70), Some((60, 70)));
        assert_eq!(ranges.first_gap(60, 70), Some((60, 70)));
    }
    #[test]
    fn a_range_that_takes_in_all_before_it_is_written_later() {
        let device = vlinder_device::MemoryDevice::new(1 << 20);
        let store = Store::new(Some(vlinder_base::sync::Arc::new(device)));
        let mut ranges = Gathering::new(&store, 0);
        // Two are held: the second joins the first when they are put in order, and there is nothing to write.
        [(20, 30), (10, 25), (40, 50), (5, 6)].into_iter().for_each(|(start, end)| ranges.add(start, end));
        let found: Vec<(u64, u64)> = ranges.finish().iter().map(|range| (range.start, range.end)).collect();
        assert_eq!(found, [(5, 6), (10, 30), (40, 50)]);
        assert_eq!(store.failure(), None);
    }
}
