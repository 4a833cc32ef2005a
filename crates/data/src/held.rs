//! Bytes that an open file holds beyond what was asked for, as the devices gave them: no zeros for holes, no
//! copies.

use vlinder_base::sync::Arc;
use vlinder_base::sync::atomic::{AtomicU64, Ordering};
use vlinder_extent_state::ByteRange;

use crate::file_data::Version;

/// For all open files of a file system.
pub(crate) const MAX_HELD_BYTES: u64 = 32 << 20;

/// How many bytes all open files of a file system hold that were read ahead.
#[derive(Debug, Default)]
pub(crate) struct Budget(Arc<AtomicU64>);

impl Budget {
    /// Room for so many bytes, if there is room.
    pub(crate) fn take(&self, bytes: u64) -> Option<Share> {
        let share = Share { held: Arc::clone(&self.0), bytes };
        let before = share.held.fetch_add(bytes, Ordering::Relaxed);
        (before.saturating_add(bytes) <= MAX_HELD_BYTES).then_some(share)
    }
}

/// Gives its bytes back when dropped.
#[derive(Debug)]
pub(crate) struct Share {
    held: Arc<AtomicU64>,
    bytes: u64,
}

impl Drop for Share {
    fn drop(&mut self) {
        self.held.fetch_sub(self.bytes, Ordering::Relaxed);
    }
}

/// A part of a file whose bytes are held.
#[derive(Clone, Copy, Debug)]
pub(crate) struct HeldPart {
    /// Which part.
    pub(crate) range: ByteRange,
    /// The number of the buffer that has it.
    pub(crate) buffer: usize,
    /// Where in that it begins.
    pub(crate) start: usize,
}

/// A stretch of a file: the bytes of its data, without those of holes.
#[derive(Debug)]
pub struct Stretch {
    range: ByteRange,
    /// In order and apart; what lies between them is zeros.
    parts: Vec<HeldPart>,
    buffers: Vec<Vec<u8>>,
    /// None for what was read into memory that the caller has to pay for.
    _share: Option<Share>,
}

impl Stretch {
    pub(crate) fn new(
        range: ByteRange,
        parts: Vec<HeldPart>,
        buffers: Vec<Vec<u8>>,
        share: Option<Share>,
    ) -> Self {
        Self { range, parts, buffers, _share: share }
    }

    /// Data without holes.
    pub(crate) fn of_run(start: u64, bytes: Vec<u8>) -> Self {
        let range = ByteRange::with_length(start, bytes.len() as u64).unwrap_or_default();
        Self::new(range, vec![HeldPart { range, buffer: 0, start: 0 }], vec![bytes], None)
    }

    /// Where it ends in the file.
    #[must_use]
    pub fn end(&self) -> u64 {
        self.range.end()
    }

    /// The data in order, each run with its offset in the file. Runs may touch.
    pub fn runs(&self) -> impl Iterator<Item = (u64, &[u8])> {
        self.parts.iter().map(|part| {
            let end = part.start + part.range.length_bytes() as usize;
            (part.range.start(), &self.buffers[part.buffer][part.start..end])
        })
    }

    /// Whether all of it is a hole.
    pub(crate) fn is_hole(&self) -> bool {
        self.parts.is_empty()
    }

    /// The buffers, to be used again.
    pub(crate) fn into_buffers(self) -> Vec<Vec<u8>> {
        self.buffers
    }

    /// Forgets what lies before an offset.
    pub(crate) fn begin_at(&mut self, offset: u64) {
        let rest = |range: ByteRange| ByteRange::new(offset.max(range.start()), range.end());
        self.range = rest(self.range).unwrap_or_default();
        self.parts.retain_mut(|part| {
            let Some(range) = rest(part.range).filter(|range| !range.is_empty()) else { return false };
            part.start += (range.start() - part.range.start()) as usize;
            part.range = range;
            true
        });
    }
}

/// What an open file holds of one version of the file.
#[derive(Debug)]
pub(crate) struct Held {
    version: Version,
    stretch: Stretch,
    /// The part where the last copy ended.
    position: usize,
}

impl Held {
    pub(crate) fn new(version: Version, stretch: Stretch) -> Self {
        Self { version, stretch, position: 0 }
    }

    pub(crate) fn into_stretch(self) -> Stretch {
        self.stretch
    }

    /// Copies what is held from the start of a range on into `target`, which has all of the range; gives how
    /// many bytes.
    pub(crate) fn copy(&mut self, version: Version, range: ByteRange, target: &mut [u8]) -> usize {
        let Stretch { range: whole, parts, buffers, .. } = &self.stretch;
        let known = whole.intersection(range);
        let known = known.filter(|known| self.version == version && known.start() == range.start());
        let Some(known) = known else { return 0 };
        let length = known.length_bytes() as usize;
        let mut rest = &mut target[..length];
        let mut at = known.start();
        self.position = first_behind(parts, self.position, |part| part.range.end() <= known.start());
        while let Some(part) = parts.get(self.position)
            && let Some(run) = part.range.intersection(known)
        {
            let (hole, behind) = rest.split_at_mut((run.start() - at) as usize);
            hole.fill(0);
            let (now, behind) = behind.split_at_mut(run.length_bytes() as usize);
            let start = part.start + (run.start() - part.range.start()) as usize;
            now.copy_from_slice(&buffers[part.buffer][start..start + now.len()]);
            (rest, at) = (behind, run.end());
            if part.range.end() > known.end() {
                break;
            }
            self.position += 1;
        }
        rest.fill(0);
        length
    }
}

/// The number of the first of some runs, which lie in order, that does not end before a place; how many they
/// are if all do. It is mostly `guess` or the next, where the last search ended.
pub(crate) fn first_behind<T>(runs: &[T], guess: usize, ends_before: impl Fn(&T) -> bool) -> usize {
    let is_first = |number: usize| {
        let before = number.checked_sub(1).and_then(|before| runs.get(before));
        number <= runs.len() && before.is_none_or(&ends_before) && !runs.get(number).is_some_and(&ends_before)
    };
    match [guess, guess + 1].into_iter().find(|number| is_first(*number)) {
        Some(first) => first,
        None => runs.partition_point(ends_before),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn range(start: u64, length: u64) -> ByteRange {
        ByteRange::with_length(start, length).unwrap()
    }

    #[test]
    fn what_is_held_is_limited_and_given_back() {
        let budget = Budget::default();
        let take = || budget.take(1 << 20);
        let mut all: Vec<Share> = (0..MAX_HELD_BYTES >> 20).map(|_| take().unwrap()).collect();
        assert!(take().is_none());
        all.pop();
        assert!(take().is_some());
    }

    #[test]
    fn parts_and_the_holes_between_them_are_copied_in_any_order() {
        let version = crate::file_data::FileData::new().version().unwrap();
        let whole = range(100, 100);
        let part =
            |start, length, buffer, place| HeldPart { range: range(start, length), buffer, start: place };
        let parts = vec![part(110, 10, 0, 0), part(120, 5, 1, 3), part(150, 10, 0, 10)];
        let buffers = vec![(1..=20).collect(), (101..=110).collect()];
        let mut expected = [0; 100];
        expected[10..20].copy_from_slice(&(1..=10).collect::<Vec<u8>>());
        expected[20..25].copy_from_slice(&[104, 105, 106, 107, 108]);
        expected[50..60].copy_from_slice(&(11..=20).collect::<Vec<u8>>());
        let share = Budget::default().take(100).unwrap();
        let mut held = Held::new(version, Stretch::new(whole, parts, buffers, Some(share)));
        for step in [1, 3, 7, 100] {
            let forward: Vec<u64> = (100..200).step_by(step).collect();
            for start in forward.iter().chain(forward.iter().rev()).copied() {
                for length in [1, 4, 10, 50, 100] {
                    let wanted = range(start, length);
                    let known = (200 - start).min(length) as usize;
                    let mut target = vec![9; length as usize];
                    assert_eq!(held.copy(version, wanted, &mut target), known);
                    let place = (start - 100) as usize;
                    assert_eq!(target[..known], expected[place..place + known], "{wanted}");
                    assert!(target[known..].iter().all(|byte| *byte == 9));
                }
            }
        }
        let mut target = [0; 10];
        assert_eq!(held.copy(version, range(95, 10), &mut target), 0, "its start is not held");
        assert_eq!(held.copy(version, range(200, 10), &mut target), 0);
        let later = crate::file_data::FileData::new().version().unwrap();
        assert_eq!(held.copy(later, range(110, 10), &mut target), 0, "another version gets nothing");

        let mut stretch = held.into_stretch();
        stretch.begin_at(113);
        for (offset, bytes) in stretch.runs() {
            let place = (offset - 100) as usize;
            assert_eq!(bytes, &expected[place..place + bytes.len()]);
        }
        let runs: Vec<_> = stretch.runs().map(|(offset, bytes)| (offset, bytes.len())).collect();
        assert_eq!((runs, stretch.end()), (vec![(113, 7), (120, 5), (150, 10)], 200));
    }

    #[test]
    fn the_first_run_is_found_whatever_the_guess() {
        let ends = [10, 20, 30, 40];
        for guess in 0..8 {
            for (place, first) in [(0, 0), (9, 0), (10, 1), (25, 2), (39, 3), (40, 4), (99, 4)] {
                assert_eq!(first_behind(&ends, guess, |end| *end <= place), first, "{guess} {place}");
            }
        }
        assert_eq!(first_behind(&[], 3, |_: &u64| true), 0);
    }
}
