//! Ranges that are added and taken away again, and how many bytes they cover together.

use std::collections::BTreeMap;

/// A stretch that a number of ranges cover.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Stretch {
    end: u64,
    /// Ranges; more than 0.
    count: u32,
}

/// Ranges of numbers, each counted as often as it was added.
///
/// Invariants:
/// 1. Stretches do not overlap, and none is empty.
/// 2. Stretches that touch have different counts, so ranges that lie side by side are one stretch.
/// 3. `bytes` is the sum of their lengths.
#[derive(Debug, Default)]
pub(super) struct Coverage {
    /// By where they begin.
    stretches: BTreeMap<u64, Stretch>,
    bytes: u64,
}

impl Coverage {
    /// Bytes that at least one range covers.
    pub(super) fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Adds a range: first and end.
    pub(super) fn add(&mut self, (from, to): (u64, u64)) {
        if from >= to {
            return;
        }
        self.cut(from);
        self.cut(to);
        let mut at = from;
        while at < to {
            match self.stretches.range_mut(at..to).next() {
                Some((start, stretch)) if *start == at => {
                    stretch.count = stretch.count.saturating_add(1);
                    at = stretch.end;
                }
                next => {
                    let end = next.map_or(to, |(start, _)| *start);
                    self.stretches.insert(at, Stretch { end, count: 1 });
                    self.bytes = self.bytes.saturating_add(end.saturating_sub(at));
                    at = end;
                }
            }
        }
        self.join(from, to);
    }

    /// Takes a range away that was added.
    pub(super) fn remove(&mut self, (from, to): (u64, u64)) {
        if from >= to {
            return;
        }
        self.cut(from);
        self.cut(to);
        let mut at = from;
        while let Some((start, stretch)) = self.stretches.range_mut(at..to).next() {
            let (start, end) = (*start, stretch.end);
            stretch.count = stretch.count.saturating_sub(1);
            if stretch.count == 0 {
                self.stretches.remove(&start);
                self.bytes = self.bytes.saturating_sub(end.saturating_sub(start));
            }
            at = end;
        }
        self.join(from, to);
    }

    /// Makes a stretch end at a place, and another begin there.
    fn cut(&mut self, at: u64) {
        if let Some((_, stretch)) = self.stretches.range_mut(..at).next_back()
            && stretch.end > at
        {
            let rest = *stretch;
            stretch.end = at;
            self.stretches.insert(at, rest);
        }
    }

    /// Joins stretches that touch, between those around a range.
    fn join(&mut self, from: u64, to: u64) {
        let before = self.stretches.range(..from).next_back().map_or(from, |(start, _)| *start);
        let mut last: Option<(u64, Stretch)> = None;
        let touched: Vec<(u64, Stretch)> =
            self.stretches.range(before..=to).map(|(start, stretch)| (*start, *stretch)).collect();
        for (start, stretch) in touched {
            match last.filter(|(_, last)| last.end == start && last.count == stretch.count) {
                Some((first, joined)) => {
                    self.stretches.remove(&start);
                    let joined = Stretch { end: stretch.end, ..joined };
                    self.stretches.insert(first, joined);
                    last = Some((first, joined));
                }
                None => last = Some((start, stretch)),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const END: u64 = 60;

    proptest! {
        #[test]
        fn it_counts_each_place(ranges in prop::collection::vec((0..END, 0..20_u64, any::<bool>()), 0..60)) {
            let (mut coverage, mut counts, mut added) = (Coverage::default(), vec![0_u32; 100], Vec::new());
            for (from, length, adds) in ranges {
                let range = (from, from + length);
                if adds || added.is_empty() {
                    coverage.add(range);
                    added.push(range);
                    (range.0..range.1).for_each(|at| counts[at as usize] += 1);
                } else {
                    let range = added.swap_remove(from as usize % added.len());
                    coverage.remove(range);
                    (range.0..range.1).for_each(|at| counts[at as usize] -= 1);
                }
                prop_assert_eq!(coverage.bytes(), counts.iter().filter(|count| **count > 0).count() as u64);
                let mut runs = 0;
                for at in 0..counts.len() {
                    runs += usize::from(counts[at] > 0 && (at == 0 || counts[at - 1] != counts[at]));
                }
                prop_assert_eq!(coverage.stretches.len(), runs, "stretches are as long as can be");
            }
        }
    }
}
