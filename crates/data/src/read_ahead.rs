//! Reading ahead: who reads a file in order in small steps gets the steps after it from memory. While these
//! are taken from there, the devices are asked for what follows, so that they work beside the reader. Where
//! they answered the last time at once, from a cache of the host's, they are asked when it is wanted: the
//! same memory, which the processor has at hand, then serves part after part.
//!
//! What is read ahead is a copy of bytes on disk, good as long as the file has the same [`Version`]. What all
//! open files hold of it together is [limited](crate::held).
//!
//! Invariants:
//! 1. What is held or on its way was asked for while the file had the version that it carries, and nothing of
//!    the file was unflushed. It is judged and given out only as long as the file still has that version.
//! 2. What is held was compared with its checksums, as everything that comes from a device.

use vlinder_extent_state::ByteRange;

use crate::fetch::Started;
use crate::file_data::Version;
use crate::held::{Held, Share};

/// A reader that asks for more at once is not helped by more still.
const LARGEST_STEP: u64 = 64 << 10;

/// A gap up to this size, which may be a hole, does not break the order.
const LARGEST_GAP: u64 = 1 << 20;

/// So many steps in order before anything is read ahead.
const STEPS_BEFORE: u32 = 2;

const FIRST_BYTES: u64 = 128 << 10;

pub(crate) const MAX_BYTES: u64 = 1 << 20;

/// What an open file has read ahead, and how it came to do so.
#[derive(Debug, Default)]
pub(crate) struct ReadAhead {
    last_end: u64,
    in_order: u32,
    pub(crate) next_bytes: u64,
    pub(crate) held: Option<Held>,
    /// What follows it.
    pub(crate) coming: Option<Coming>,
}

/// Bytes of a file that devices were asked for.
#[derive(Debug)]
pub(crate) struct Coming {
    pub(crate) version: Version,
    pub(crate) range: ByteRange,
    pub(crate) started: Started,
    pub(crate) share: Share,
    /// It was there as soon as it was asked for.
    pub(crate) at_once: bool,
}

/// Where what follows comes from.
#[derive(Debug)]
pub(crate) enum NextRead {
    /// It was asked for before.
    Coming(Coming),
    /// It is to be asked for.
    Ask(ByteRange),
}

impl ReadAhead {
    /// Copies what was read ahead of the file's present version from the start of a range on; gives how many
    /// bytes.
    pub(crate) fn copy(&mut self, version: Version, range: ByteRange, target: &mut [u8]) -> usize {
        let copied = self.held.as_mut().map_or(0, |held| held.copy(version, range, target));
        if copied > 0 {
            self.last_end = range.start() + copied as u64;
        }
        copied
    }

    /// Takes note of a read that is not held, and gives what to read in its place: the same with what
    /// follows.
    pub(crate) fn step(&mut self, version: Version, range: ByteRange, end_of_file: u64) -> Option<NextRead> {
        match self.take_coming(version, range.start()) {
            Some(coming) => {
                self.last_end = range.end();
                Some(NextRead::Coming(coming))
            }
            None => self.plan(range, end_of_file).map(NextRead::Ask),
        }
    }

    fn plan(&mut self, range: ByteRange, end_of_file: u64) -> Option<ByteRange> {
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
        self.following(range.start(), end_of_file).filter(|ahead| ahead.end() > range.end())
    }

    /// What is on its way of this version of the file, if an offset is in it.
    pub(crate) fn take_coming(&mut self, version: Version, offset: u64) -> Option<Coming> {
        let coming = self.coming.take()?;
        let has_it = coming.range.start() <= offset && offset < coming.range.end();
        (coming.version == version && has_it).then_some(coming)
    }

    /// What to read from an offset on, each time more.
    pub(crate) fn following(&mut self, start: u64, end_of_file: u64) -> Option<ByteRange> {
        let bytes = self.next_bytes.clamp(FIRST_BYTES, MAX_BYTES);
        self.next_bytes = bytes * 2;
        let end = start.saturating_add(bytes).min(end_of_file);
        ByteRange::new(start, end).filter(|range| !range.is_empty())
    }

    /// The buffers of what was held, to be used again.
    pub(crate) fn take_buffers(&mut self) -> Vec<Vec<u8>> {
        self.held.take().map_or_else(Vec::new, |held| held.into_stretch().into_buffers())
    }

    /// Begins anew: what was to be read ahead can't be read.
    pub(crate) fn give_up(&mut self) {
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
}
