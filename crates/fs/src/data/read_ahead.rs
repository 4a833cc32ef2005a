//! Reading ahead: who reads a file in order in small steps gets the steps after it from memory.
//!
//! What is read ahead is a copy of bytes on disk, good as long as the file has the same [`Version`]. What all open files
//! hold of it together is limited.

use vlinder_base::sync::Arc;
use vlinder_base::sync::atomic::{AtomicU64, Ordering};
use vlinder_extent_state::ByteRange;

use super::file_data::Version;

/// Who asks for more at once is not helped by more still.
const LARGEST_STEP: u64 = 64 << 10;
/// A gap up to this size, which may be a hole, does not break the order.
const LARGEST_GAP: u64 = 1 << 20;
/// So many steps in order before anything is read ahead.
const STEPS_BEFORE: u32 = 2;
const FIRST_BYTES: u64 = 128 << 10;
const MOST_BYTES: u64 = 1 << 20;
/// For all open files of a file system.
const MOST_HELD_BYTES: u64 = 32 << 20;

/// How many bytes all open files of a file system hold that were read ahead.
#[derive(Debug, Default)]
pub(crate) struct Budget(Arc<AtomicU64>);

impl Budget {
    /// Room for so many bytes, if there is room.
    fn take(&self, bytes: u64) -> Option<Share> {
        let share = Share { held: Arc::clone(&self.0), bytes };
        let before = share.held.fetch_add(bytes, Ordering::Relaxed);
        (before.saturating_add(bytes) <= MOST_HELD_BYTES).then_some(share)
    }
}

/// Gives its bytes back when dropped.
#[derive(Debug)]
struct Share {
    held: Arc<AtomicU64>,
    bytes: u64,
}

impl Drop for Share {
    fn drop(&mut self) {
        self.held.fetch_sub(self.bytes, Ordering::Relaxed);
    }
}

/// What an open file has read ahead, and how it came to do so.
#[derive(Debug, Default)]
pub(super) struct ReadAhead {
    last_end: u64,
    in_order: u32,
    next_bytes: u64,
    held: Option<Held>,
}

/// Bytes of a file, and room for them.
#[derive(Debug)]
pub(super) struct Held {
    version: Version,
    range: ByteRange,
    bytes: Vec<u8>,
    _share: Share,
}

impl Held {
    /// Room for a range, to be filled; that of `used`, whatever it holds, if it is as large.
    pub(super) fn new(
        version: Version,
        range: ByteRange,
        budget: &Budget,
        used: Option<Self>,
    ) -> Option<Self> {
        if let Some(used) = used.filter(|used| used.bytes.len() as u64 == range.length_bytes()) {
            return Some(Self { version, range, ..used });
        }
        let share = budget.take(range.length_bytes())?;
        let bytes = vec![0; usize::try_from(range.length_bytes()).ok()?];
        Some(Self { version, range, bytes, _share: share })
    }

    /// The bytes.
    pub(super) fn bytes_mut(&mut self) -> &mut [u8] {
        &mut self.bytes
    }

    /// Copies a range out of it, if it has all of that.
    fn copy(&self, range: ByteRange, target: &mut [u8]) -> bool {
        let inside = self.range.start() <= range.start() && range.end() <= self.range.end();
        if !inside {
            return false;
        }
        let start = (range.start() - self.range.start()) as usize;
        target.copy_from_slice(&self.bytes[start..start + target.len()]);
        true
    }
}

impl ReadAhead {
    /// Copies a range of the file's present version, if it was read ahead.
    pub(super) fn copy(&mut self, version: Version, range: ByteRange, target: &mut [u8]) -> bool {
        let Some(held) = &self.held else { return false };
        if held.version != version || !held.copy(range, target) {
            return false;
        }
        self.last_end = range.end();
        true
    }

    /// What is held, to be used again for what is planned.
    pub(super) fn take_held(&mut self) -> Option<Held> {
        self.held.take()
    }

    /// Takes note of a read that goes to the devices, and gives what to read in its place: the same with what follows.
    pub(super) fn plan(&mut self, range: ByteRange, end_of_file: u64) -> Option<ByteRange> {
        let gap = range.start().checked_sub(self.last_end);
        let goes_on = gap.is_some_and(|gap| gap <= LARGEST_GAP) && range.length_bytes() <= LARGEST_STEP;
        self.last_end = range.end();
        if !goes_on {
            *self = Self { last_end: range.end(), ..Self::default() };
            return None;
        }
        self.in_order = self.in_order.saturating_add(1);
        if self.in_order <= STEPS_BEFORE {
            return None;
        }
        let bytes = self.next_bytes.clamp(FIRST_BYTES, MOST_BYTES);
        self.next_bytes = bytes * 2;
        let end = range.start().saturating_add(bytes).min(end_of_file);
        ByteRange::new(range.start(), end).filter(|ahead| ahead.end() > range.end())
    }

    /// Keeps what was read.
    pub(super) fn keep(&mut self, held: Held) {
        self.held = Some(held);
    }

    /// Begins anew: what was to be read ahead can't be read.
    pub(super) fn give_up(&mut self) {
        *self = Self { last_end: self.last_end, ..Self::default() };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const END: u64 = 64 << 20;

    fn range(start: u64, length: u64) -> ByteRange {
        ByteRange::with_length(start, length).unwrap()
    }

    #[test]
    fn small_steps_in_order_are_read_ahead_in_growing_parts() {
        let mut ahead = ReadAhead::default();
        let mut sizes = Vec::new();
        let mut at = 0;
        for _ in 0..12 {
            let planned = ahead.plan(range(at, 4096), END);
            sizes.push(planned.map_or(0, |planned| planned.length_bytes() >> 10));
            at = planned.map_or(at + 4096, ByteRange::end) + 4096;
        }
        assert_eq!(sizes, [0, 0, 128, 256, 512, 1024, 1024, 1024, 1024, 1024, 1024, 1024]);
        assert_eq!(ahead.plan(range(END - 8192, 4096), END), None, "far away");
    }

    #[test]
    fn large_steps_and_steps_elsewhere_are_not() {
        let mut ahead = ReadAhead::default();
        for number in 0..10 {
            assert_eq!(ahead.plan(range(number * (128 << 10), 128 << 10), END), None);
        }
        for number in (0..10).rev() {
            assert_eq!(ahead.plan(range(number * 8192, 4096), END), None);
        }
    }

    #[test]
    fn it_ends_with_the_file() {
        let mut ahead = ReadAhead::default();
        for number in 0..2 {
            assert_eq!(ahead.plan(range(number * 4096, 4096), 20_480), None);
        }
        assert_eq!(ahead.plan(range(8192, 4096), 20_480), ByteRange::new(8192, 20_480));
        assert_eq!(ahead.plan(range(16_384, 4096), 20_480), None, "nothing follows");
    }

    #[test]
    fn what_is_held_is_limited_and_given_back() {
        let budget = Budget::default();
        let version = crate::data::FileData::new().version().unwrap();
        let hold = || Held::new(version, range(0, MOST_BYTES), &budget, None);
        let mut all: Vec<Held> = (0..MOST_HELD_BYTES / MOST_BYTES).map(|_| hold().unwrap()).collect();
        assert!(hold().is_none());
        all.pop();
        assert!(hold().is_some());
    }

    #[test]
    fn another_version_gets_nothing() {
        let budget = Budget::default();
        let data = crate::data::FileData::new();
        let mut ahead = ReadAhead::default();
        let mut target = [1; 4096];
        ahead.keep(Held::new(data.version().unwrap(), range(0, 8192), &budget, None).unwrap());
        assert!(ahead.copy(data.version().unwrap(), range(4096, 4096), &mut target) && target == [0; 4096]);
        ahead.keep(Held::new(data.version().unwrap(), range(0, 8192), &budget, None).unwrap());
        let guard = data.lock_extents();
        assert_eq!(data.version(), None);
        drop(guard);
        assert!(!ahead.copy(data.version().unwrap(), range(0, 4096), &mut target));
    }
}
