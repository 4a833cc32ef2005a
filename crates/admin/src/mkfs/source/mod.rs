//! The tree that a new file system is filled from: listed by one thread, loaded by several, and handed on in an order
//! that depends on the names alone.
//!
//! [`read`] sends [`Event`]s: a directory's entries in the order of the bytes of their names, in parts of
//! [`NAMES_IN_PART`]; then, for each directory among them in the same order, the events of that directory. Small files
//! come with their bytes; large ones are read piecewise ([`Reading::contents`]) by the same threads that load entries.
//! Whoever wants all that is a [`Sink`].

mod dropped;
mod entry;
mod levels;
mod list;

use std::collections::VecDeque;
use std::os::fd::OwnedFd;

use rustix::io::Errno;
use vlinder_base::channel::{Receiver, Sender, bounded};
use vlinder_base::sync::Arc;
use vlinder_base::thread;

pub use dropped::{DroppedSource, read_source};
pub(super) use entry::{Content, Entry, Kind, root_entry};
pub(super) use list::{Totals, totals};

/// Names loaded together.
const NAMES_IN_PART: usize = 32;
/// Parts that may be loaded ahead of the writer: what is read while the writer waits for the image.
const PARTS_AHEAD: usize = 32;
/// Bytes of a piece of a large file.
const PIECE_BYTES: u64 = 1 << 20;

/// A source that can't be read.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum SourceError {
    /// A system call failed.
    #[error("{path}: {call} failed: {errno}; leave it out or make it readable")]
    Call {
        /// Path below the source directory.
        path: String,
        /// The system call.
        call: &'static str,
        /// What the system said.
        errno: Errno,
    },
    /// It changed while it was read.
    #[error("{path} changed while it was read; stop what writes there, or copy a snapshot of it")]
    Changed {
        /// Path below the source directory.
        path: String,
    },
    /// Something that can't be stored.
    #[error("{path}: {what}")]
    Unsupported {
        /// Path below the source directory.
        path: String,
        /// What.
        what: &'static str,
    },
}

impl SourceError {
    pub(super) fn call(path: &[u8], call: &'static str, errno: Errno) -> Self {
        Self::Call { path: shown(path), call, errno }
    }

    pub(super) fn changed(path: &[u8]) -> Self {
        Self::Changed { path: shown(path) }
    }
}

/// A path as errors show it.
pub(super) fn shown(path: &[u8]) -> String {
    if path.is_empty() {
        "the source directory".to_owned()
    } else {
        String::from_utf8_lossy(path).into_owned()
    }
}

/// A path and a name.
pub(super) fn join(path: &[u8], name: &[u8]) -> Vec<u8> {
    if path.is_empty() { name.to_vec() } else { [path, b"/", name].concat() }
}

/// A directory of the source.
pub(super) struct SourceDirectory {
    pub(super) file: OwnedFd,
    /// Below the source directory; empty for itself.
    pub(super) path: Vec<u8>,
}

/// What takes a source as it comes.
pub(super) trait Sink {
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

/// What the listing thread says.
enum Event {
    /// Entries of the present directory, being loaded.
    Part(Arc<SourceDirectory>, Receiver<Result<Vec<Entry>, SourceError>>),
    /// See [`Sink`] for these three.
    Listed,
    Enter,
    Leave,
    /// The listing ends here.
    Failed(SourceError),
}

/// What a loading thread does next.
enum Job {
    Load {
        directory: Arc<SourceDirectory>,
        names: Vec<Vec<u8>>,
        reply: Sender<Result<Vec<Entry>, SourceError>>,
    },
    Piece {
        file: Arc<OwnedFd>,
        offset: u64,
        length: usize,
        reply: Sender<Result<Vec<u8>, Errno>>,
    },
}

/// A source that is being read.
pub(super) struct Reading {
    events: Receiver<Event>,
    jobs: Sender<Job>,
    threads: usize,
}

impl Reading {
    /// Gives everything to `sink`, to the end or the first error.
    ///
    /// # Errors
    /// The sink's, and what reading met.
    pub(super) fn give_to<S: Sink>(&self, sink: &mut S) -> Result<(), S::Error> {
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

    /// Gives the bytes of a regular file that came without them, but for its holes, to `take`: offsets and pieces.
    ///
    /// # Errors
    /// Those of `take`, and what reading met.
    pub(super) fn contents<E: From<SourceError>>(
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

/// Lists and loads the directory with some threads, fewer where the system gives no more, while `take` has it given to a
/// [`Sink`]: bytes in vectors with capacity for whole sectors. Whoever takes it is what all wait for, so those who read ahead must not
/// interrupt that thread (decision 14).
///
/// # Errors
/// The system's, where it does not give the two without which nothing is read.
pub(super) fn read<R>(
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
