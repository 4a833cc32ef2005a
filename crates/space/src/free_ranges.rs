//! Free ranges of one block group in memory, findable by place and by size.

use std::collections::{BTreeMap, BTreeSet};

/// Disjoint, non-adjacent free ranges in bytes of logical address space.
#[derive(Clone, Debug, Default)]
pub struct FreeRanges {
    by_start: BTreeMap<u64, u64>,
    by_length: BTreeSet<(u64, u64)>,
    total: u64,
}

impl FreeRanges {
    /// Bytes free in all.
    pub fn total(&self) -> u64 {
        self.total
    }

    /// Bytes of the largest range.
    pub fn largest(&self) -> u64 {
        self.by_length.last().map_or(0, |(length, _)| *length)
    }

    /// The range with the lowest address.
    pub fn first(&self) -> Option<(u64, u64)> {
        self.by_start.first_key_value().map(|(start, length)| (*start, *length))
    }

    /// All ranges as (start, length).
    pub fn iter(&self) -> impl Iterator<Item = (u64, u64)> + '_ {
        self.by_start.iter().map(|(start, length)| (*start, *length))
    }

    /// How many ranges there are.
    pub fn pieces(&self) -> usize {
        self.by_start.len()
    }

    /// The ranges that share bytes with those from `start` up to `end`.
    pub fn within(&self, start: u64, end: u64) -> impl Iterator<Item = (u64, u64)> + '_ {
        let before = self.by_start.range(..start).next_back();
        let before = before.filter(move |(before, length)| **before + **length > start);
        let within = before.into_iter().chain(self.by_start.range(start..end.max(start)));
        within.map(|(start, length)| (*start, *length))
    }

    /// Whether any byte of a range is free.
    pub fn overlaps(&self, start: u64, length: u64) -> bool {
        let before = self.by_start.range(..start.saturating_add(length)).next_back();
        before.is_some_and(|(before, before_length)| before.saturating_add(*before_length) > start)
    }

    /// Adds a range, joining it with its neighbours. It must not overlap what is free already: what the disk
    /// says is asked for [`FreeRanges::overlaps`] first.
    pub fn add(&mut self, start: u64, length: u64) {
        if length == 0 {
            return;
        }
        let (mut start, mut end) = (start, start + length);
        self.total += length;
        if let Some((before, before_length)) =
            self.by_start.range(..=start).next_back().map(|(s, l)| (*s, *l))
        {
            assert!(before + before_length <= start, "{start}+{length} is free already from {before}");
            if before + before_length == start {
                self.take_out(before, before_length);
                start = before;
            }
        }
        if let Some((after, after_length)) = self.by_start.range(start..).next().map(|(s, l)| (*s, *l)) {
            assert!(end <= after, "{start}..{end} is free already from {after}");
            if after == end {
                self.take_out(after, after_length);
                end = after + after_length;
            }
        }
        self.put_in(start, end - start);
    }

    /// Removes what is free of a range; gives how many bytes that were.
    pub fn remove(&mut self, start: u64, length: u64) -> u64 {
        let end = start + length;
        let mut removed = 0;
        let mut overlapping: Vec<(u64, u64)> = Vec::new();
        if let Some((before, before_length)) = self.by_start.range(..start).next_back().map(|(s, l)| (*s, *l))
            && before + before_length > start
        {
            overlapping.push((before, before_length));
        }
        overlapping.extend(self.by_start.range(start..end).map(|(s, l)| (*s, *l)));
        for (range, range_length) in overlapping {
            self.take_out(range, range_length);
            let range_end = range + range_length;
            if range < start {
                self.put_in(range, start - range);
            }
            if range_end > end {
                self.put_in(end, range_end - end);
            }
            removed += range_end.min(end) - range.max(start);
        }
        self.total -= removed;
        removed
    }

    /// Takes `length` bytes from the first range at or after `from` that has them, else from the first of
    /// all.
    pub fn take_first(&mut self, length: u64, from: u64) -> Option<u64> {
        if self.largest() < length {
            return None;
        }
        let fits = |(start, range): (&u64, &u64)| (*range >= length).then_some(*start);
        let start = self
            .by_start
            .range(from..)
            .find_map(fits)
            .or_else(|| self.by_start.range(..from).find_map(fits))?;
        self.remove(start, length);
        Some(start)
    }

    /// Where up to `most` bytes in one piece are best taken, at least `least`: in the smallest range that has
    /// `most`, else the largest. Sizes are multiples of the sector size, so pieces are too.
    pub fn best(&self, least: u64, most: u64) -> Option<(u64, u64)> {
        let (length, start) = match self.by_length.range((most, 0)..).next() {
            Some(best) => *best,
            None => *self.by_length.last()?,
        };
        (length >= least).then(|| (start, length.min(most)))
    }

    fn take_out(&mut self, start: u64, length: u64) {
        self.by_start.remove(&start);
        self.by_length.remove(&(length, start));
    }

    fn put_in(&mut self, start: u64, length: u64) {
        self.by_start.insert(start, length);
        self.by_length.insert((length, start));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const UNITS: usize = 64;

    /// Which units are free.
    struct Model([bool; UNITS]);

    impl Model {
        /// The runs of free units, by start: (start, length).
        fn runs(&self) -> Vec<(u64, u64)> {
            let mut runs: Vec<(u64, u64)> = Vec::new();
            for (unit, _) in (0..).zip(self.0).filter(|(_, is_free)| *is_free) {
                match runs.last_mut().filter(|(start, length)| start + length == unit) {
                    Some((_, length)) => *length += 1,
                    None => runs.push((unit, 1)),
                }
            }
            runs
        }

        fn free(&self, start: u64, length: u64) -> u64 {
            self.0[start as usize..(start + length) as usize].iter().filter(|is_free| **is_free).count()
                as u64
        }

        fn set(&mut self, start: u64, length: u64, is_free: bool) {
            self.0[start as usize..(start + length) as usize].fill(is_free);
        }

        /// Of the ranges that have `most` the smallest, of those the first; else the last of the largest.
        fn best(&self, least: u64, most: u64) -> Option<(u64, u64)> {
            let runs = self.runs();
            let whole = runs.iter().filter(|(_, length)| *length >= most).min_by_key(|(_, length)| *length);
            let (start, length) = whole.or_else(|| runs.iter().max_by_key(|(_, length)| *length))?;
            (*length >= least).then_some((*start, most.min(*length)))
        }

        fn first(&self, length: u64, from: u64) -> Option<u64> {
            let runs = self.runs();
            let fits = |run: &&(u64, u64)| run.1 >= length;
            let behind = runs.iter().filter(fits).find(|(start, _)| *start >= from);
            behind.or_else(|| runs.iter().find(fits)).map(|(start, _)| *start)
        }
    }

    /// The state of the ranges, and what they say of one range of units, against the model's.
    fn compare(ranges: &FreeRanges, model: &Model, start: u64, length: u64) {
        let runs = model.runs();
        assert_eq!(ranges.iter().collect::<Vec<_>>(), runs);
        let by_length: BTreeSet<(u64, u64)> = runs.iter().map(|(start, length)| (*length, *start)).collect();
        assert_eq!(ranges.by_length, by_length);
        assert_eq!(ranges.total(), model.free(0, UNITS as u64));
        assert_eq!(ranges.pieces(), runs.len());
        assert_eq!(ranges.first(), runs.first().copied());
        assert_eq!(ranges.largest(), runs.iter().map(|(_, length)| *length).max().unwrap_or(0));
        assert_eq!(ranges.overlaps(start, length), model.free(start, length) > 0);
        let end = start + length;
        let meets = |(from, length): &(u64, u64)| *from < end && from + length > start;
        let within: Vec<(u64, u64)> = runs.iter().copied().filter(meets).collect();
        assert_eq!(ranges.within(start, end).collect::<Vec<_>>(), within);
    }

    #[test]
    fn ranges_behave_as_a_set_of_units() {
        let mut ranges = FreeRanges::default();
        let mut model = Model([false; UNITS]);
        let mut state = 7u64;
        let mut refusals = 0;
        for _ in 0..20_000 {
            state = state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
            let start = (state >> 33) % 57;
            let length = 1 + (state >> 45) % 7;
            match (state >> 60) % 8 {
                0..=3 if model.free(start, length) == 0 => {
                    ranges.add(start, length);
                    model.set(start, length, true);
                }
                4 => {
                    let expected = model.free(start, length);
                    assert_eq!(ranges.remove(start, length), expected);
                    model.set(start, length, false);
                }
                5 => {
                    let least = 1 + start % length;
                    let best = model.best(least, length);
                    assert_eq!(ranges.best(least, length), best, "{least} to {length}");
                    best.inspect(|(start, length)| {
                        ranges.remove(*start, *length);
                        model.set(*start, *length, false);
                    });
                    refusals += u32::from(best.is_none());
                }
                6 => {
                    let first = model.first(length, start);
                    assert_eq!(ranges.take_first(length, start), first, "{length} from {start}");
                    first.inspect(|start| model.set(*start, length, false));
                    refusals += u32::from(first.is_none());
                }
                _ => {}
            }
            compare(&ranges, &model, start, length);
        }
        assert!((100..5_000).contains(&refusals), "{refusals}");
    }
}
