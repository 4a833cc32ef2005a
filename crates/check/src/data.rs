//! Sets of address ranges that come in ascending order.

/// Ascending ranges, each its first byte and the byte behind the last; neighbours are one.
#[derive(Debug, Default)]
pub(crate) struct Ranges(Vec<(u64, u64)>);

impl Ranges {
    /// Adds a range that begins at or behind the begin of the last one.
    pub(crate) fn add(&mut self, start: u64, end: u64) {
        match self.0.last_mut() {
            Some((_, last_end)) if *last_end >= start => *last_end = (*last_end).max(end),
            _ => self.0.push((start, end)),
        }
    }

    /// Adds ranges that come in no order.
    pub(crate) fn add_unordered(&mut self, ranges: &[(u64, u64)]) {
        let mut all = core::mem::take(&mut self.0);
        all.extend_from_slice(ranges);
        all.sort_unstable();
        for (start, end) in all {
            self.add(start, end);
        }
    }

    /// How many bytes are in the set.
    pub(crate) fn bytes(&self) -> u64 {
        self.0.iter().map(|(start, end)| end.saturating_sub(*start)).fold(0, u64::saturating_add)
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = (u64, u64)> + '_ {
        self.0.iter().copied()
    }

    /// How many bytes of a range are in the set.
    pub(crate) fn covered(&self, start: u64, end: u64) -> u64 {
        let first = self.0.partition_point(|(_, range_end)| *range_end <= start);
        let inside = self.0.iter().skip(first).take_while(|(range_start, _)| *range_start < end);
        inside
            .map(|(range_start, range_end)| (*range_end).min(end).saturating_sub((*range_start).max(start)))
            .fold(0, u64::saturating_add)
    }

    /// The first part of a range that is not in the set.
    pub(crate) fn first_gap(&self, start: u64, end: u64) -> Option<(u64, u64)> {
        let mut at = start;
        let first = self.0.partition_point(|(_, range_end)| *range_end <= start);
        for (range_start, range_end) in self.0.iter().skip(first) {
            if at >= end {
                return None;
            }
            if *range_start > at {
                return Some((at, (*range_start).min(end)));
            }
            at = *range_end;
        }
        (at < end).then_some((at, end))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_join_and_are_found() {
        let mut ranges = Ranges::default();
        for (start, end) in [(10, 20), (20, 30), (40, 50)] {
            ranges.add(start, end);
        }
        assert_eq!(ranges.iter().collect::<Vec<_>>(), [(10, 30), (40, 50)]);
        assert_eq!(ranges.covered(0, 100), 30);
        assert_eq!(ranges.covered(25, 45), 10);
        assert_eq!(ranges.first_gap(10, 30), None);
        assert_eq!(ranges.first_gap(12, 45), Some((30, 40)));
        assert_eq!(ranges.first_gap(60, 70), Some((60, 70)));
        ranges.add_unordered(&[(50, 60), (30, 35)]);
        assert_eq!(ranges.iter().collect::<Vec<_>>(), [(10, 35), (40, 60)]);
    }
}
