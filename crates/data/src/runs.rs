//! The bytes of a file that are not on disk yet, as runs of whole sectors.

use std::collections::BTreeMap;
use std::ops::Bound;

use vlinder_base::sync::Arc;
use vlinder_extent_state::ByteRange;

/// A write up to this size is copied behind the run that it continues, so that small sequential writes become
/// one run.
const MAX_COPIED: usize = 128 * 1024;
/// No run grows past this by being continued: growing copies it.
const LARGEST_GROWN_RUN: usize = 1 << 20;

/// Runs of bytes by their offset in the file. They do not overlap and none is empty; neighbours may touch.
///
/// A large buffer is moved in and never copied again; what a later write covers is cut away from the older
/// run. Runs are shared with the requests that bring them to the devices, and with clones: who changes one
/// that is shared changes a copy.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Runs {
    runs: BTreeMap<u64, Arc<Vec<u8>>>,
    bytes: u64,
}

impl Runs {
    /// How many bytes all runs have.
    pub(crate) fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Whether there is no byte.
    pub(crate) fn is_empty(&self) -> bool {
        self.runs.is_empty()
    }

    /// The offset behind the last byte.
    pub(crate) fn end(&self) -> Option<u64> {
        self.runs.last_key_value().map(|(start, run)| start + length(run))
    }

    /// All runs in order.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (u64, &[u8])> {
        self.runs.iter().map(|(start, run)| (*start, run.as_slice()))
    }

    /// The bytes of a range, if one run has them all.
    pub(crate) fn slice(&self, range: ByteRange) -> Option<&[u8]> {
        let (start, run) = self.overlapping(range).next()?;
        let from = range.start().checked_sub(start)?;
        run.get(distance(0, from)..distance(start, range.end()))
    }

    /// Puts bytes at an offset in place of what was there.
    pub(crate) fn insert(&mut self, offset: u64, data: Vec<u8>) {
        let Some(range) = range_of(offset, &data).filter(|range| !range.is_empty()) else { return };
        if data.len() <= MAX_COPIED {
            if self.overwrite(offset, &data) {
                return;
            }
            self.remove(range);
            self.bytes += range.length_bytes();
            if let Some(before) = self.run_that_ends_at(offset)
                && before.len() + data.len() <= LARGEST_GROWN_RUN
            {
                Arc::make_mut(before).extend_from_slice(&data);
                return;
            }
        } else {
            self.remove(range);
            self.bytes += range.length_bytes();
        }
        self.runs.insert(offset, Arc::new(data));
    }

    /// Copies bytes over present ones; false, and nothing changed, where some of the range has none.
    pub(crate) fn overwrite(&mut self, offset: u64, data: &[u8]) -> bool {
        let Some(range) = range_of(offset, data) else { return false };
        if !self.covers(range) {
            return false;
        }
        for (start, run) in overlapping_mut(&mut self.runs, range) {
            let Some(part) = range_of(start, run).and_then(|run| run.intersection(range)) else { continue };
            Arc::make_mut(run)[distance(start, part.start())..distance(start, part.end())]
                .copy_from_slice(&data[distance(offset, part.start())..distance(offset, part.end())]);
        }
        true
    }

    /// Whether every byte of the range is here.
    pub(crate) fn covers(&self, range: ByteRange) -> bool {
        let mut at = range.start();
        for (start, run) in self.overlapping(range) {
            if start > at {
                return false;
            }
            at = start + length(run);
        }
        at >= range.end()
    }

    /// Whether a run has bytes of the range, or ends or begins at its borders.
    pub(crate) fn touches(&self, range: ByteRange) -> bool {
        let before = self.runs.range(..=range.end()).next_back();
        before.is_some_and(|(start, run)| start + length(run) >= range.start())
    }

    /// Whether there are bytes right before the range and right behind it.
    pub(crate) fn surrounds(&self, range: ByteRange) -> bool {
        let before = self.runs.range(..range.start()).next_back();
        let behind = self.runs.range(..=range.end()).next_back();
        before.is_some_and(|(start, run)| start + length(run) >= range.start())
            && behind.is_some_and(|(start, run)| start + length(run) > range.end())
    }

    /// How many bytes of the range are not here.
    pub(crate) fn missing_bytes(&self, range: ByteRange) -> u64 {
        let present =
            self.overlapping(range).filter_map(|(start, run)| range_of(start, run)?.intersection(range));
        range.length_bytes() - present.map(|part| part.length_bytes()).sum::<u64>()
    }

    /// The parts of the range that are not here.
    pub(crate) fn gaps(&self, range: ByteRange) -> Vec<ByteRange> {
        let mut gaps = Vec::new();
        let mut at = range.start();
        for (start, run) in self.overlapping(range) {
            gaps.extend(ByteRange::new(at, start).filter(|gap| !gap.is_empty()));
            at = start + length(run);
        }
        gaps.extend(ByteRange::new(at, range.end()).filter(|gap| !gap.is_empty()));
        gaps
    }

    /// The runs that have bytes of the range, whole.
    pub(crate) fn overlapping(&self, range: ByteRange) -> impl Iterator<Item = (u64, &[u8])> {
        self.overlapping_shared(range).map(|(start, run)| (start, run.as_slice()))
    }

    /// As [`Self::overlapping`], for who keeps them.
    pub(crate) fn overlapping_shared(&self, range: ByteRange) -> impl Iterator<Item = (u64, &Arc<Vec<u8>>)> {
        let before = self.runs.range(..range.start()).next_back();
        let before = before.filter(move |(start, run)| **start + length(run) > range.start());
        let inside = (range.start() < range.end())
            .then(|| self.runs.range((Bound::Included(range.start()), Bound::Excluded(range.end()))));
        before
            .filter(|_| !range.is_empty())
            .into_iter()
            .chain(inside.into_iter().flatten())
            .map(|(start, run)| (*start, run))
    }

    /// Copies what is here of the bytes from `offset` on into `target`, and gives how many that were; the
    /// rest of it stays.
    pub(crate) fn copy_to(&self, offset: u64, target: &mut [u8]) -> usize {
        let Some(range) = range_of(offset, target) else { return 0 };
        let mut copied = 0;
        for (start, run) in self.overlapping(range) {
            let Some(part) = range_of(start, run).and_then(|run| run.intersection(range)) else { continue };
            target[distance(offset, part.start())..distance(offset, part.end())]
                .copy_from_slice(&run[distance(start, part.start())..distance(start, part.end())]);
            copied += distance(part.start(), part.end());
        }
        copied
    }

    /// Takes the bytes of the range away.
    pub(crate) fn remove(&mut self, range: ByteRange) {
        let starts: Vec<u64> = self.overlapping(range).map(|(start, _)| start).collect();
        for start in starts {
            let Some(mut run) = self.runs.remove(&start) else { continue };
            self.bytes -= length(&run);
            let end = start + length(&run);
            if end > range.end() {
                let tail = run[distance(start, range.end())..].to_vec();
                self.bytes += length(&tail);
                self.runs.insert(range.end(), Arc::new(tail));
            }
            if start < range.start() {
                let kept = distance(start, range.start());
                match Arc::get_mut(&mut run) {
                    Some(run) => run.truncate(kept),
                    None => run = Arc::new(run[..kept].to_vec()),
                }
                self.bytes += length(&run);
                self.runs.insert(start, run);
            }
        }
    }

    /// Puts newer bytes in place of what was there; nothing is copied.
    pub(crate) fn put_above(&mut self, newer: Self) {
        for (start, run) in newer.runs {
            let Some(range) = range_of(start, &run) else { continue };
            self.remove(range);
            self.bytes += range.length_bytes();
            self.runs.insert(start, run);
        }
    }

    /// Puts older bytes in where there are none: what a failed flush gives back.
    pub(crate) fn put_below(&mut self, older: &Self) {
        for (start, run) in &older.runs {
            let Some(range) = range_of(*start, run) else { continue };
            for gap in self.gaps(range) {
                let part = if gap == range {
                    Arc::clone(run)
                } else {
                    Arc::new(run[distance(*start, gap.start())..distance(*start, gap.end())].to_vec())
                };
                self.bytes += gap.length_bytes();
                self.runs.insert(gap.start(), part);
            }
        }
    }

    fn run_that_ends_at(&mut self, offset: u64) -> Option<&mut Arc<Vec<u8>>> {
        let (start, run) = self.runs.range_mut(..offset).next_back()?;
        (*start + length(run) == offset).then_some(run)
    }
}

fn overlapping_mut(
    runs: &mut BTreeMap<u64, Arc<Vec<u8>>>,
    range: ByteRange,
) -> impl Iterator<Item = (u64, &mut Arc<Vec<u8>>)> {
    let first = runs.range(..=range.start()).next_back().map_or(range.start(), |(start, _)| *start);
    runs.range_mut(first..range.end().max(first)).map(|(start, run)| (*start, run))
}

fn length(run: &[u8]) -> u64 {
    run.len() as u64
}

fn range_of(offset: u64, data: &[u8]) -> Option<ByteRange> {
    ByteRange::with_length(offset, length(data))
}

/// From an offset to a later one inside the same buffer, whose length fits memory.
fn distance(from: u64, to: u64) -> usize {
    (to - from) as usize
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// What the runs must equal: each byte there or not.
    #[derive(Clone, Default)]
    struct Model(Vec<Option<u8>>);

    const SIZE: u64 = 4096;

    impl Model {
        fn new() -> Self {
            Self(vec![None; SIZE as usize])
        }

        fn put(&mut self, offset: u64, data: &[u8]) {
            for (at, byte) in data.iter().enumerate() {
                self.0[offset as usize + at] = Some(*byte);
            }
        }

        fn check(&self, runs: &Runs) {
            let mut found = vec![None; SIZE as usize];
            let mut last_end = 0;
            let mut bytes = 0;
            for (start, run) in runs.iter() {
                assert!(!run.is_empty() && start >= last_end);
                last_end = start + run.len() as u64;
                bytes += run.len() as u64;
                for (at, byte) in run.iter().enumerate() {
                    found[start as usize + at] = Some(*byte);
                }
            }
            assert_eq!(found, self.0);
            assert_eq!(bytes, runs.bytes());
        }
    }

    #[derive(Clone, Debug)]
    enum Step {
        Insert(u64, Vec<u8>),
        Overwrite(u64, Vec<u8>),
        Remove(u64, u64),
        PutBelow(u64, Vec<u8>),
        Look(u64, u64),
    }

    fn data() -> impl Strategy<Value = Vec<u8>> {
        (any::<u8>(), 0_usize..600).prop_map(|(value, length)| vec![value; length])
    }

    fn steps() -> impl Strategy<Value = Vec<Step>> {
        let offset = 0_u64..(SIZE - 600);
        let step = prop_oneof![
            3 => (offset.clone(), data()).prop_map(|(offset, data)| Step::Insert(offset, data)),
            1 => (offset.clone(), data()).prop_map(|(offset, data)| Step::Overwrite(offset, data)),
            1 => (offset.clone(), 0_u64..600).prop_map(|(offset, length)| Step::Remove(offset, length)),
            1 => (offset.clone(), data()).prop_map(|(offset, data)| Step::PutBelow(offset, data)),
            1 => (offset, 0_u64..600).prop_map(|(offset, length)| Step::Look(offset, length)),
        ];
        prop::collection::vec(step, 1..60)
    }

    proptest! {
        #[test]
        fn runs_are_a_byte_map(steps in steps()) {
            let mut runs = Runs::default();
            let mut model = Model::new();
            for step in steps {
                match step {
                    Step::Insert(offset, data) => {
                        model.put(offset, &data);
                        runs.insert(offset, data);
                    }
                    Step::Overwrite(offset, data) => {
                        let part = &model.0[offset as usize..offset as usize + data.len()];
                        let covered = part.iter().all(Option::is_some);
                        prop_assert_eq!(runs.overwrite(offset, &data), covered);
                        if covered {
                            model.put(offset, &data);
                        }
                    }
                    Step::Remove(offset, length) => {
                        model.0[offset as usize..(offset + length) as usize].fill(None);
                        runs.remove(ByteRange::with_length(offset, length).unwrap());
                    }
                    Step::PutBelow(offset, data) => {
                        for (at, byte) in data.iter().enumerate() {
                            model.0[offset as usize + at].get_or_insert(*byte);
                        }
                        let mut older = Runs::default();
                        older.insert(offset, data);
                        runs.put_below(&older);
                    }
                    Step::Look(offset, length) => {
                        let range = ByteRange::with_length(offset, length).unwrap();
                        let part = &model.0[offset as usize..(offset + length) as usize];
                        prop_assert_eq!(runs.covers(range), part.iter().all(Option::is_some));
                        let mut copied = vec![0; length as usize];
                        let present = part.iter().filter(|byte| byte.is_some()).count();
                        prop_assert_eq!(runs.copy_to(offset, &mut copied), present);
                        let expected: Vec<u8> = part.iter().map(|byte| byte.unwrap_or(0)).collect();
                        prop_assert_eq!(copied, expected);
                        let gaps: u64 = runs.gaps(range).iter().map(|gap| gap.length_bytes()).sum();
                        prop_assert_eq!(gaps, part.iter().filter(|byte| byte.is_none()).count() as u64);
                        prop_assert_eq!(runs.missing_bytes(range), gaps);
                    }
                }
                model.check(&runs);
            }
        }
    }

    #[test]
    fn a_large_buffer_is_moved_in_and_small_ones_become_one_run() {
        let mut runs = Runs::default();
        let large = vec![1; MAX_COPIED + 1];
        let address = large.as_ptr();
        runs.insert(0, large);
        assert_eq!(runs.iter().next().unwrap().1.as_ptr(), address);
        let start = 1 << 20;
        for at in 0..64 {
            runs.insert(start + at * 4096, vec![at as u8; 4096]);
        }
        assert_eq!(runs.iter().count(), 2);
        assert_eq!(runs.end(), Some(start + 64 * 4096));
    }
}
