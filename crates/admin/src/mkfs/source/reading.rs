//! The threads that read a source, and what they give to a [`Sink`].

use std::collections::VecDeque;
use std::os::fd::OwnedFd;

use rustix::io::Errno;
use vlinder_base::channel::{Receiver, Sender, bounded};
use vlinder_base::sync::Arc;
use vlinder_base::thread;

use super::directory::{SourceDirectory, join};
use super::entry::{self, Entry};
use super::error::SourceError;
use super::list;
use super::messages::{Event, Job};

/// Parts that may be loaded ahead of the writer: what is read while the writer waits for the image.
const PARTS_AHEAD: usize = 32;
/// Bytes of a piece of a large file.
const PIECE_BYTES: u64 = 1 << 20;

/// What takes a source as it comes.
pub(in super::super) trait Sink {
    /// What ends the reading early.
    type Error: From<SourceError>;

    /// Further entries of the present directory, the source itself at first.
    fn take(
        &mut self,
        reading: &Reading,
        directory: &SourceDirectory,
        entries: Vec<Entry>,
    ) -> Result<(), Self::Error>;

    /// The present directory has no more entries; its attributes can be set.
    fn finish_directory(&mut self) -> Result<(), Self::Error>;

    /// The next directory among those that came, in their order, is the present one from here on.
    fn enter(&mut self) -> Result<(), Self::Error>;

    /// Back to the directory above.
    fn leave(&mut self);
}

/// A source that is being read.
pub(in super::super) struct Reading {
    events: Receiver<Event>,
    jobs: Sender<Job>,
    threads: usize,
}

impl Reading {
    /// Gives everything to `sink`, to the end or the first error.
    ///
    /// # Errors
    /// The sink's, and what reading met.
    pub(in super::super) fn give_to<S: Sink>(&self, sink: &mut S) -> Result<(), S::Error> {
        for event in self.events.iter() {
            match event {
                Event::Part(directory, entries) => {
                    let entries = entries.recv().map_err(|_| SourceError::changed(&directory.path))??;
                    sink.take(self, &directory, entries)?;
                }
                Event::Listed => sink.finish_directory()?,
                Event::Enter => sink.enter()?,
                Event::Leave => sink.leave(),
                Event::Failed(error) => return Err(error.into()),
            }
        }
        Ok(())
    }

    /// Gives the bytes of a regular file that came without them, but for its holes, to `take`: offsets and
    /// pieces.
    ///
    /// # Errors
    /// Those of `take`, and what reading met.
    pub(in super::super) fn contents<E: From<SourceError>>(
        &self,
        directory: &SourceDirectory,
        entry: &Entry,
        mut take: impl FnMut(u64, Vec<u8>) -> Result<(), E>,
    ) -> Result<(), E> {
        let path = join(&directory.path, &entry.name);
        let file = Arc::new(entry::open_file(directory, &entry.name, entry.identity)?);
        let ranges = if entry.may_have_holes {
            entry::data_ranges(&file, entry.size_bytes)
                .map_err(|errno| SourceError::call(&path, "lseek", errno))?
        } else {
            core::iter::once(0..entry.size_bytes).collect()
        };
        for range in ranges.into_iter().filter(|range| !range.is_empty()) {
            let mut pieces = Pieces::new(&file, &path, range);
            while let Some((offset, bytes)) = pieces.next(self)? {
                take(offset, bytes)?;
            }
        }
        Ok(())
    }
}

/// A range of a large file, read in pieces, several at once.
struct Pieces<'a> {
    file: &'a Arc<OwnedFd>,
    path: &'a [u8],
    range: core::ops::Range<u64>,
    /// Where the next piece to be asked for begins.
    asked: u64,
    waiting: VecDeque<Receiver<Result<Vec<u8>, Errno>>>,
}

impl<'a> Pieces<'a> {
    fn new(file: &'a Arc<OwnedFd>, path: &'a [u8], range: core::ops::Range<u64>) -> Self {
        Self { file, path, asked: range.start, range, waiting: VecDeque::new() }
    }

    /// The next piece and its offset; none at the range's end.
    ///
    /// # Errors
    /// What reading met; an earlier end of the file as [`SourceError::Changed`].
    fn next(&mut self, reading: &Reading) -> Result<Option<(u64, Vec<u8>)>, SourceError> {
        while self.asked < self.range.end && self.waiting.len() <= reading.threads {
            let (reply, answer) = bounded(1);
            let length = PIECE_BYTES.min(self.range.end - self.asked);
            let length_bytes = usize::try_from(length).unwrap_or(usize::MAX);
            let job =
                Job::Piece { file: Arc::clone(self.file), offset: self.asked, length: length_bytes, reply };
            reading.jobs.send(job).map_err(|_| SourceError::changed(self.path))?;
            self.waiting.push_back(answer);
            self.asked += length;
        }
        let Some(answer) = self.waiting.pop_front() else { return Ok(None) };
        let bytes = match answer.recv() {
            Ok(Ok(bytes)) => bytes,
            Ok(Err(errno)) => return Err(SourceError::call(self.path, "read", errno)),
            Err(_) => return Err(SourceError::changed(self.path)),
        };
        let offset = self.range.start;
        let length = u64::try_from(bytes.len()).unwrap_or(u64::MAX);
        if length != PIECE_BYTES.min(self.range.end - offset) {
            return Err(SourceError::changed(self.path));
        }
        self.range.start += length;
        Ok(Some((offset, bytes)))
    }
}

/// Lists and loads the directory with some threads, fewer where the system gives no more, while `take` has it
/// given to a [`Sink`]: bytes in vectors with capacity for whole sectors. All wait for the thread that takes
/// it, so the threads that read ahead must not interrupt that thread (decision 14).
///
/// # Errors
/// The system's, where it does not give the two without which nothing is read.
pub(in super::super) fn read<R>(
    root: Arc<SourceDirectory>,
    threads: usize,
    sector_bytes: usize,
    take: impl FnOnce(Reading) -> R,
) -> std::io::Result<R> {
    let threads = threads.max(1);
    let (events_in, events) = bounded(PARTS_AHEAD);
    let (jobs, jobs_out) = bounded(2 * threads);
    thread::scope(|scope| {
        for number in 0..threads {
            let jobs_out: Receiver<Job> = jobs_out.clone();
            match thread::try_spawn_scoped(scope, move || {
                thread::wait_for_turn();
                jobs_out.iter().for_each(|job| work(job, sector_bytes))
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
            list::list(root, &events_in, &loading);
        })?;
        Ok(take(Reading { events, jobs, threads }))
    })
}

fn work(job: Job, sector_bytes: usize) {
    // Nobody waits for an answer any more once the writer has failed.
    match job {
        Job::Load { directory, names, reply } => {
            let _ = reply.send(entry::load(&directory, names, sector_bytes));
        }
        Job::Piece { file, offset, length, reply } => {
            let _ = reply.send(entry::read_range(&file, offset, length, sector_bytes));
        }
    }
}
