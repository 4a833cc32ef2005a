//! Reading more than was asked for (see [`crate::read_ahead`]).

use vlinder_extent_state::ByteRange;
use vlinder_format::inode::InodeFlags;

use crate::Result;
use crate::file_data::Version;
use crate::held::{Held, Stretch};
use crate::pieces::pieces_of;
use crate::read_ahead::{Coming, MAX_BYTES, NextRead};
use crate::reader::Reader;

/// Devices are asked for several parts, which they bring beside the reader: a single one is read by who asks
/// for it.
const MAX_FETCHED_BYTES: u64 = 256 << 10;

impl Reader<'_> {
    /// Reads a range that is on disk as a whole, from what was read ahead or with what follows. Nothing of
    /// the file may be unflushed since before it had this version: what the coming bytes replace may be
    /// another file's by the time they are read.
    pub(crate) fn read_with_more(&self, version: Version, range: ByteRange, target: &mut [u8]) -> Result<()> {
        let (copied, step, mut buffers) = {
            let mut ahead = self.cache.ahead.lock();
            let copied = ahead.copy(version, range, target);
            if copied == target.len() {
                return Ok(());
            }
            let rest = ByteRange::new(range.start() + copied as u64, range.end()).unwrap_or_default();
            let step = ahead.step(version, rest, self.node.size());
            let buffers = if step.is_some() { ahead.take_buffers() } else { Vec::new() };
            (copied, step, buffers)
        };
        let rest = ByteRange::new(range.start() + copied as u64, range.end()).unwrap_or_default();
        let target = &mut target[copied..];
        let coming = match step {
            None => return self.read_range(rest, target),
            Some(NextRead::Coming(coming)) => Some(coming),
            Some(NextRead::Ask(range)) => self.ask_for(version, range, &mut buffers),
        };
        let at_once = coming.as_ref().is_some_and(|coming| coming.at_once);
        // What follows and can't be read is nobody's concern yet.
        let Some(Ok(stretch)) = coming.map(|coming| self.receive(coming)) else {
            self.cache.ahead.lock().give_up();
            return self.read_range(rest, target);
        };
        if !at_once {
            self.ask_for_next(version, stretch.end(), &mut buffers);
        }
        let mut held = Held::new(version, stretch);
        let copied = held.copy(version, rest, target);
        self.cache.ahead.lock().held = Some(held);
        match ByteRange::new(rest.start() + copied as u64, rest.end()) {
            Some(rest) if !rest.is_empty() => self.read_range(rest, &mut target[copied..]),
            _ => Ok(()),
        }
    }

    /// The stretch of the file that begins at an offset, as long as what is read ahead at most; none where
    /// nothing may be read ahead, or can't be. The memory of `used` is used again.
    pub(crate) fn read_stretch(&self, offset: u64, used: Option<Stretch>) -> Option<Stretch> {
        let version = self.node.data().version()?;
        let (size, flags) = self.node.size_and_flags();
        let is_plain = self.node.data().may_be_forgotten() && !flags.has(InodeFlags::VERITY);
        if !is_plain || !self.may_read_ahead() {
            return None;
        }
        let mut buffers = used.map_or_else(Vec::new, Stretch::into_buffers);
        let (coming, range) = {
            let mut ahead = self.cache.ahead.lock();
            // A reader of stretches wants the whole file.
            ahead.next_bytes = MAX_BYTES;
            (ahead.take_coming(version, offset), ahead.following(offset, size))
        };
        let coming = coming.or_else(|| self.ask_for(version, range?, &mut buffers))?;
        let at_once = coming.at_once;
        // What can't be read so may still be read in smaller parts.
        let mut stretch = self.receive(coming).ok()?;
        stretch.begin_at(offset);
        if !at_once {
            self.ask_for_next(version, stretch.end(), &mut buffers);
        }
        (self.node.data().version() == Some(version) && !stretch.is_hole()).then_some(stretch)
    }

    /// Asks the devices for a range, or as much of it as has not too many items; none where there is no room
    /// for it.
    fn ask_for(&self, version: Version, range: ByteRange, buffers: &mut Vec<Vec<u8>>) -> Option<Coming> {
        let share = self.store.read_ahead().take(range.length_bytes())?;
        let (extents, end) = self.items(range).ok()?;
        let range = ByteRange::new(range.start(), end)?;
        let sector_size = u64::from(self.store.sector_size());
        let pieces = pieces_of(range, extents, MAX_FETCHED_BYTES, sector_size);
        let started = self.start(pieces, MAX_FETCHED_BYTES, buffers).ok()?;
        let at_once = started.reads.are_done();
        Some(Coming { version, range, started, share, at_once })
    }

    /// Asks for what follows, each time more.
    fn ask_for_next(&self, version: Version, start: u64, buffers: &mut Vec<Vec<u8>>) {
        let following = self.cache.ahead.lock().following(start, self.node.size());
        let coming = following.and_then(|following| self.ask_for(version, following, buffers));
        self.cache.ahead.lock().coming = coming;
    }

    /// Waits for what the devices were asked for, and verifies it.
    fn receive(&self, coming: Coming) -> Result<Stretch> {
        let Coming { range, started, share, .. } = coming;
        let fetched = self.finish(started)?;
        let (parts, buffers) = self.decode_parts(fetched)?;
        self.store.write_back().metrics.read_ahead.increment();
        Ok(Stretch::new(range, parts, buffers, Some(share)))
    }
}
