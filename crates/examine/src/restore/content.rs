//! The bytes of one file.

use vlinder_base::sync::Arc;
use vlinder_format::ItemType;
use vlinder_fs::data::{self, OpenCache};
use vlinder_fs::salvage::{ItemPlace, LostPart, Run, Salvage};
use vlinder_fs::{FsError, Inode};
use vlinder_places::failure::Failure;
use vlinder_places::place::Sink;
use vlinder_places::place::host::HostSink;
use vlinder_places::progress::Progress;

/// Bytes read at a time: what one compressed extent can hold.
const STEP: u64 = 128 * 1024;
/// Zeros of this many bytes in a row are left a hole.
const PIECE: usize = 4096;

/// A range of a file that could not be read.
#[derive(Debug)]
pub struct Hole {
    pub start: u64,
    pub end: u64,
    pub reason: String,
    /// What described it, if that alone was lost.
    pub item: Option<ItemPlace>,
}

/// What became of a file's bytes.
#[derive(Debug, Default)]
pub struct Copied {
    /// Bytes that were read.
    pub bytes: u64,
    /// Bytes on disk whose checksums are lost.
    pub unverified_bytes: u64,
    /// What could not be read.
    pub holes: Vec<Hole>,
}

/// The copying of one file.
pub struct Copy<'a> {
    pub salvage: &'a Salvage,
    pub inode: &'a Arc<Inode>,
    pub buffer: &'a mut Vec<u8>,
    pub progress: &'a Progress,
}

impl Copy<'_> {
    /// Writes all that can be read; what can't is a hole.
    ///
    /// # Errors
    /// What the host said: then nothing is worth going on with.
    pub fn run(&mut self, sink: &mut HostSink) -> Result<Copied, Failure> {
        let size = self.inode.size();
        let (mut next, mut done_to, mut is_first) = (None, 0, true);
        let mut copied = Copied::default();
        let cache = OpenCache::new();
        while is_first || next.is_some() {
            is_first = false;
            let found = match self.salvage.runs(self.inode.id(), next) {
                Ok(found) => found,
                Err(error) => {
                    add(&mut copied.holes, done_to, size, &error.to_string(), None);
                    break;
                }
            };
            let mut lost_from = Vec::new();
            for part in &found.lost {
                let (start, end) = self.range_of(part, size);
                if start < end {
                    add(&mut copied.holes, start, end, &part.reason, part.item);
                    lost_from.push(start);
                }
            }
            for run in found.runs {
                // Runs that overlap are damage: what comes first counts, as when the file is read. What is
                // told as lost is not taken from the run before.
                let next_lost = lost_from.partition_point(|start| *start <= run.start);
                let most = lost_from.get(next_lost).map_or(size, |start| size.min(*start));
                let run = Run { start: run.start.max(done_to), end: run.end.min(most), ..run };
                if run.start < run.end {
                    self.copy_run(run, &cache, sink, &mut copied)?;
                    done_to = run.end;
                }
            }
            next = found.next;
        }
        copied.unverified_bytes = cache.unverified_bytes();
        copied.holes.sort_by_key(|hole| hole.start);
        sink.set_size(size)?;
        Ok(copied)
    }

    fn copy_run(
        &mut self,
        run: Run,
        cache: &OpenCache,
        sink: &mut HostSink,
        copied: &mut Copied,
    ) -> Result<(), Failure> {
        let sector = u64::from(self.salvage.filesystem().sector_size());
        let mut at = run.start;
        while at < run.end {
            let end = run.end.min(at.saturating_add(STEP));
            match self.read(cache, at, end) {
                Ok(()) => self.write(sink, at, copied)?,
                // All of it depends on the same bytes.
                Err(error) if run.is_compressed => add(&mut copied.holes, at, end, &error.to_string(), None),
                Err(_) => {
                    let mut from = at;
                    while from < end {
                        let to = end.min((from / sector).saturating_add(1).saturating_mul(sector));
                        match self.read(cache, from, to) {
                            Ok(()) => self.write(sink, from, copied)?,
                            Err(error) => add(&mut copied.holes, from, to, &error.to_string(), None),
                        }
                        from = to;
                    }
                }
            }
            at = end;
        }
        Ok(())
    }

    fn read(&mut self, cache: &OpenCache, start: u64, end: u64) -> Result<(), FsError> {
        self.buffer.resize(usize::try_from(end.saturating_sub(start)).unwrap_or(0), 0);
        let _operation = self.inode.operation.read();
        data::read(self.salvage.filesystem(), self.inode, cache, start, self.buffer).map(drop)
    }

    /// The bytes of the file that may have been described by what was lost. A key with an odd offset is a
    /// wrong one of which the sector is right.
    fn range_of(&self, part: &LostPart, size: u64) -> (u64, u64) {
        let inode = self.inode.id().number;
        let of = |key: &vlinder_format::Key| {
            (key.objectid == inode && key.item_type == ItemType::EXTENT_DATA).then_some(key.offset)
        };
        let sector = u64::from(self.salvage.filesystem().sector_size()).max(1);
        let start = of(part.keys.start()).unwrap_or(0);
        let end = of(part.keys.end()).map_or(size, |last| last.saturating_add(1)).min(size);
        (start - start % sector, end)
    }

    /// Writes what was read; zeros are left out.
    fn write(&self, sink: &mut HostSink, start: u64, copied: &mut Copied) -> Result<(), Failure> {
        let mut at = start;
        for piece in self.buffer.chunks(PIECE) {
            let length = u64::try_from(piece.len()).unwrap_or(0);
            if piece.iter().any(|byte| *byte != 0) {
                sink.write_at(at, piece)?;
            }
            at = at.saturating_add(length);
            copied.bytes = copied.bytes.saturating_add(length);
            self.progress.add(length);
        }
        Ok(())
    }
}

/// Adds a range that could not be read; it grows the one before if it follows it and is not lost with an item
/// of its own.
fn add(holes: &mut Vec<Hole>, start: u64, end: u64, reason: &str, item: Option<ItemPlace>) {
    match holes.last_mut() {
        Some(last) if last.end == start && last.item == item => last.end = end,
        _ => holes.push(Hole { start, end, reason: reason.to_owned(), item }),
    }
}
