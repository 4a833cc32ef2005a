//! Threads for what waits for the kernel: it may have to hand over or drop pages first, for which it makes
//! requests of its own. So the threads that answer requests do not wait for it.

use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};

use vlinder_base::channel::{self, Sender};
use vlinder_base::sync::Mutex;
use vlinder_base::thread::{self, JoinHandle};

/// What such a thread does. An answer that is dropped with a job is an I/O error; that happens only when the
/// mount has ended.
pub(super) type Job = Box<dyn FnOnce() + Send>;

const THREADS: usize = 4;

/// The threads, and what they have to do.
pub(super) struct Aside {
    jobs: Mutex<Option<Sender<Job>>>,
    threads: Mutex<Vec<JoinHandle<()>>>,
}

impl Aside {
    /// # Errors
    /// The system's, where it gives no more threads.
    pub(super) fn start() -> io::Result<Self> {
        let (sender, jobs) = channel::unbounded::<Job>();
        let start_one = |_| {
            let jobs = jobs.clone();
            thread::try_spawn("fuse-aside", move || jobs.iter().for_each(guarded))
        };
        let threads = (0..THREADS).map(start_one).collect::<io::Result<_>>()?;
        Ok(Self { jobs: Mutex::new(Some(sender)), threads: Mutex::new(threads) })
    }

    /// Has one of the threads do a job.
    pub(super) fn run(&self, job: Job) {
        if let Some(jobs) = &*self.jobs.lock() {
            let _ = jobs.send(job);
        }
    }

    /// Waits until all jobs are done; drops those that come later.
    pub(super) fn finish(&self) {
        drop(self.jobs.lock().take());
        for thread in self.threads.lock().drain(..) {
            // One that panicked has said so.
            let _ = thread.join();
        }
    }
}

/// Does a job; a mistake in it ends neither the thread nor the mount.
fn guarded(job: Job) {
    if catch_unwind(AssertUnwindSafe(job)).is_err() {
        tracing::error!("a request met a mistake in the program; it is answered with an I/O error");
    }
}
