//! The threads that read a directory of the host, and what they give to a [`Sink`].

use std::collections::VecDeque;
use std::os::fd::OwnedFd;

use rustix::io::Errno;
use vlinder_base::channel::{Receiver, Sender, bounded};
use vlinder_base::sync::Arc;
use vlinder_base::thread;

use super::directory::{SourceDirectory, join};
use super::entry::Entry;
use super::error::SourceError;
use super::list;
use super::load;
use super::messages::{Event, Job};
use super::reading::{FileBytes, Pieces, Reading, Sink};
use super::rules::EntryRules;

/// Parts that may be loaded ahead of the writer: what is read while the writer waits for the image.
const PARTS_AHEAD: usize = 32;
/// Bytes of a piece of a large file.
const PIECE_BYTES: u64 = 1 << 20;

/// A directory of the host, with the threads that read it.
pub(in super::super) struct HostReading {
    events: Receiver<Event>,
    jobs: Sender<Job>,
    threads: usize,
}

impl HostReading {
    /// Gives everything to `sink`, to the end or the first error.
    ///
    /// # Errors
    /// The sink's, and what reading met.
    pub(super) fn give_to<S: Sink>(&self, sink: &mut S) -> Result<(), S::Error> {
        let reading = Reading::of(self);
        for event in self.events.iter() {
            match event {
                Event::Part(directory, entries) => {
                    let entries = entries.recv().map_err(|_| SourceError::changed(&directory.path))??;
                    sink.take(&reading, &directory, entries)?;
                }
                Event::Listed => sink.finish_directory()?,
                Event::Enter(name, opened) => sink.enter(&name, opened.map(|entry| *entry))?,
                Event::Leave => sink.leave(),
                Event::Failed(error) => return Err(error.into()),
            }
        }
        Ok(())
    }
}

impl FileBytes for HostReading {
    fn pieces<'a>(&'a self, directory: &SourceDirectory, entry: &Entry) -> Result<Pieces<'a>, SourceError> {
        let path = join(&directory.path, &entry.name);
        let file = Arc::new(load::open_file(directory, &entry.name, entry.seen)?);
        let ranges = if entry.may_have_holes {
            load::data_ranges(&file, entry.size_bytes)
                .map_err(|errno| SourceError::call(&path, "lseek", errno))?
        } else {
            core::iter::once(0..entry.size_bytes).collect()
        };
        let ranges = ranges.into_iter().filter(|range| !range.is_empty());
        let (whole, whole_path, seen) = (Arc::clone(&file), path.clone(), entry.seen);
        let pieces =
            ranges.flat_map(move |range| RangePieces::new(self, Arc::clone(&file), path.clone(), range));
        // A file that was cut has no data behind its end, which looks like a hole; one that was written holds
        // bytes of two states.
        let changed = move || load::is_still(&whole, &whole_path, seen).err().map(Err);
        Ok(Box::new(pieces.chain(core::iter::once_with(changed).flatten())))
    }
}

/// A range of a large file, read in pieces, several at once.
struct RangePieces<'a> {
    reading: &'a HostReading,
    file: Arc<OwnedFd>,
    path: Vec<u8>,
    range: core::ops::Range<u64>,
    /// Where the next piece to be asked for begins.
    asked: u64,
    waiting: VecDeque<Receiver<Result<Vec<u8>, Errno>>>,
}

impl<'a> RangePieces<'a> {
    fn new(
        reading: &'a HostReading,
        file: Arc<OwnedFd>,
        path: Vec<u8>,
        range: core::ops::Range<u64>,
    ) -> Self {
        Self { reading, file, path, asked: range.start, range, waiting: VecDeque::new() }
    }

    /// The next piece and its offset; none at the range's end.
    ///
    /// # Errors
    /// What reading met; an earlier end of the file as [`SourceError::Changed`].
    fn read(&mut self) -> Result<Option<(u64, Vec<u8>)>, SourceError> {
        while self.asked < self.range.end && self.waiting.len() <= self.reading.threads {
            let (reply, answer) = bounded(1);
            let length = PIECE_BYTES.min(self.range.end - self.asked);
            let length_bytes = usize::try_from(length).unwrap_or(usize::MAX);
            let job =
                Job::Piece { file: Arc::clone(&self.file), offset: self.asked, length: length_bytes, reply };
            self.reading.jobs.send(job).map_err(|_| SourceError::changed(&self.path))?;
            self.waiting.push_back(answer);
            self.asked += length;
        }
        let Some(answer) = self.waiting.pop_front() else { return Ok(None) };
        let bytes = match answer.recv() {
            Ok(Ok(bytes)) => bytes,
            Ok(Err(errno)) => return Err(SourceError::call(&self.path, "read", errno)),
            Err(_) => return Err(SourceError::changed(&self.path)),
        };
        let offset = self.range.start;
        let length = u64::try_from(bytes.len()).unwrap_or(u64::MAX);
        if length != PIECE_BYTES.min(self.range.end - offset) {
            return Err(SourceError::changed(&self.path));
        }
        self.range.start += length;
        Ok(Some((offset, bytes)))
    }
}

impl Iterator for RangePieces<'_> {
    type Item = Result<(u64, Vec<u8>), SourceError>;

    fn next(&mut self) -> Option<Self::Item> {
        self.read().transpose()
    }
}

/// Lists and loads the directory with some threads, fewer where the system gives no more, while `take` has it
/// given to a [`Sink`]: bytes in vectors with capacity for whole sectors. All wait for the thread that takes
/// it, so the threads that read ahead must not interrupt that thread (decision 14).
///
/// # Errors
/// The system's, where it does not give the two without which nothing is read.
pub(super) fn read<R>(
    root: Arc<SourceDirectory>,
    rules: &EntryRules,
    threads: usize,
    sector_bytes: usize,
    take: impl FnOnce(HostReading) -> R,
) -> std::io::Result<R> {
    let threads = threads.max(1);
    let (events_in, events) = bounded(PARTS_AHEAD);
    let (jobs, jobs_out) = bounded(2 * threads);
    thread::scope(|scope| {
        for number in 0..threads {
            let jobs_out: Receiver<Job> = jobs_out.clone();
            match thread::try_spawn_scoped(scope, move || {
                thread::wait_for_turn();
                jobs_out.iter().for_each(|job| work(job, sector_bytes, rules))
            }) {
                Err(error) if number == 0 => return Err(error),
                Err(_) => break,
                Ok(_) => {}
            }
        }
        drop(jobs_out);
        let loading = jobs.clone();
        thread::try_spawn_scoped(scope, move || {
            thread::wait_for_turn();
            list::list(root, rules, &events_in, &loading);
        })?;
        Ok(take(HostReading { events, jobs, threads }))
    })
}

fn work(job: Job, sector_bytes: usize, rules: &EntryRules) {
    // Nobody waits for an answer any more once the writer has failed.
    match job {
        Job::Load { directory, names, reply } => {
            let _ = reply.send(load::load(&directory, names, sector_bytes, rules));
        }
        Job::Piece { file, offset, length, reply } => {
            let _ = reply.send(load::read_range(&file, offset, length, sector_bytes));
        }
    }
}

#[cfg(test)]
mod tests {
    use vlinder_base::clock::Timestamp;
    use vlinder_testkit::Scratch;

    use super::super::directory::open_source;
    use super::super::private_attributes::PrivateAttributes;
    use super::*;
    use crate::mkfs::owner_table::OwnerTable;

    /// Has something done to a file once it was seen, and reads it then.
    struct Meanwhile<F: FnMut()>(F);

    impl<F: FnMut()> Sink for Meanwhile<F> {
        type Error = SourceError;

        fn take(
            &mut self,
            reading: &Reading,
            directory: &SourceDirectory,
            entries: Vec<Entry>,
        ) -> Result<(), SourceError> {
            (self.0)();
            entries.iter().try_for_each(|entry| reading.contents(directory, entry, |_, _| Ok(())))
        }

        fn finish_directory(&mut self) -> Result<(), SourceError> {
            Ok(())
        }

        fn enter(&mut self, _name: &[u8], _opened: Option<Entry>) -> Result<(), SourceError> {
            Ok(())
        }

        fn leave(&mut self) {}
    }

    #[test]
    fn a_file_that_was_cut_is_not_taken_for_one_with_holes() {
        let scratch = Scratch::new("cut-source");
        let path = scratch.join("sparse");
        std::fs::File::create(&path).unwrap().set_len(1 << 20).unwrap();
        let cut = || std::fs::File::options().write(true).open(&path).unwrap().set_len(10).unwrap();
        assert_eq!(read_meanwhile(&scratch, cut), Err(SourceError::changed(b"sparse")));
    }

    #[test]
    fn a_file_that_is_written_meanwhile_is_not_stored_mixed() {
        let scratch = Scratch::new("written-source");
        let path = scratch.join("large");
        std::fs::write(&path, vec![1; 1 << 20]).unwrap();
        assert_eq!(read_meanwhile(&scratch, || {}), Ok(()));
        let write = || {
            // Older kernels take their times from a clock that ticks every ten milliseconds at most.
            thread::sleep(std::time::Duration::from_millis(20));
            let file = std::fs::File::options().write(true).open(&path).unwrap();
            std::os::unix::fs::FileExt::write_all_at(&file, b"new", 1 << 19).unwrap();
        };
        assert_eq!(read_meanwhile(&scratch, write), Err(SourceError::changed(b"large")));
    }

    fn read_meanwhile(scratch: &Scratch, meanwhile: impl FnMut()) -> Result<(), SourceError> {
        let rules = EntryRules {
            owner: None,
            table: OwnerTable::default(),
            latest: Some(Timestamp::EPOCH),
            private_attributes: PrivateAttributes::of_host(),
        };
        let root = open_source(scratch.path()).unwrap();
        read(root, &rules, 1, 4096, |reading| reading.give_to(&mut Meanwhile(meanwhile))).unwrap()
    }
}
