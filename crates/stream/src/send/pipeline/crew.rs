//! The threads that work at batches.

use vlinder_base::channel::{self, Receiver, Sender};
use vlinder_base::sync::Arc;
use vlinder_base::sync::atomic::{AtomicBool, Ordering};
use vlinder_base::thread::{self, Scope};
use vlinder_data::ContentSource;

use super::batch::Batch;
use super::work::carry_out;
use crate::send::SendError;
use crate::wire::Protocol;

/// Each worker holds what decompression takes beside its batch; more than so many would not fit.
const MAX_WORKERS: usize = 32;

/// A batch with its place in the stream.
struct Job {
    number: u64,
    batch: Batch,
}

/// What became of a batch.
pub(super) struct Finished {
    pub number: u64,
    pub commands: Result<Vec<u8>, SendError>,
}

/// Workers of one send. When it goes, they end with the batches that they are at.
pub(crate) struct Crew {
    jobs: Sender<Job>,
    finished: Receiver<Finished>,
    is_stopped: Arc<AtomicBool>,
}

impl Crew {
    /// Starts `threads` workers; none if one thread is to do all, or the system gives no threads.
    pub fn start<'scope>(
        scope: &'scope Scope<'scope, '_>,
        threads: Option<usize>,
        source: &'scope ContentSource<'_>,
        protocol: Protocol,
    ) -> Option<Self> {
        let threads = threads.unwrap_or_else(thread::available_parallelism).min(MAX_WORKERS);
        if threads < 2 {
            return None;
        }
        let (jobs, to_do) = channel::unbounded();
        let (results, finished) = channel::unbounded();
        let is_stopped = Arc::new(AtomicBool::new(false));
        let start = |_: &usize| {
            let worker = Worker {
                to_do: to_do.clone(),
                results: results.clone(),
                is_stopped: Arc::clone(&is_stopped),
            };
            thread::try_spawn_scoped(scope, move || worker.work(source, protocol)).is_ok()
        };
        let crew = (0..threads).filter(start).count();
        (crew > 0).then_some(Self { jobs, finished, is_stopped })
    }

    /// Gives a batch to the workers, or back if none is left.
    pub(super) fn give(&self, number: u64, batch: Batch) -> Result<(), Batch> {
        self.jobs.send(Job { number, batch }).map_err(|refused| refused.0.batch)
    }

    /// The next batch that is finished, in any order: one that is there, or if it `waits`, one that comes.
    pub(super) fn take(&self, waits: bool) -> Option<Finished> {
        if waits { self.finished.recv().ok() } else { self.finished.try_recv().ok() }
    }
}

impl Drop for Crew {
    fn drop(&mut self) {
        self.is_stopped.store(true, Ordering::Relaxed);
    }
}

struct Worker {
    to_do: Receiver<Job>,
    results: Sender<Finished>,
    is_stopped: Arc<AtomicBool>,
}

impl Worker {
    fn work(self, source: &ContentSource<'_>, protocol: Protocol) {
        for Job { number, batch } in self.to_do.iter() {
            if self.is_stopped.load(Ordering::Relaxed) {
                break;
            }
            let mut unfinished = Unfinished { number, results: &self.results, is_done: false };
            let commands = carry_out(source, protocol, batch);
            unfinished.is_done = true;
            if self.results.send(Finished { number, commands }).is_err() {
                break;
            }
        }
    }
}

/// Tells the thread that waits for a batch that a panic came between.
struct Unfinished<'a> {
    number: u64,
    results: &'a Sender<Finished>,
    is_done: bool,
}

impl Drop for Unfinished<'_> {
    fn drop(&mut self) {
        if !self.is_done {
            let (number, commands) = (self.number, Err(SendError::WorkerEnded));
            let _ = self.results.send(Finished { number, commands });
        }
    }
}
