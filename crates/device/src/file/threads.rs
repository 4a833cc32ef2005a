//! A few threads that take runs of requests from one queue.

use std::collections::VecDeque;

use vlinder_base::sync::{Arc, Condvar, Mutex};
use vlinder_base::thread::{self, JoinHandle};

use super::HostFile;
use super::run::{Run, runs};
use crate::{Completer, Completion, Request, Ticket};

/// Enough to keep a local disk's queue filled while the page cache serves others; more only add switches.
const MOST_THREADS: usize = 4;
/// A single run of writes up to this size is done by who asks for it: waking a thread takes longer. Reads go to the threads,
/// because who reads from several devices asks all of them before it waits.
const SMALL_BYTES: u64 = 256 << 10;

/// The pool. Threads start with the first batch and end with the pool.
#[derive(Debug)]
pub(super) struct ThreadPool {
    queue: Arc<Queue>,
    threads: Mutex<Vec<JoinHandle<()>>>,
}

#[derive(Default)]
struct Queue {
    state: Mutex<QueueState>,
    changed: Condvar,
}

#[derive(Default)]
struct QueueState {
    work: VecDeque<Work>,
    closed: bool,
}

struct Work {
    host: Arc<HostFile>,
    run: Run,
    completer: Completer,
}

impl std::fmt::Debug for Queue {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(formatter, "Queue({} waiting)", self.state.lock().work.len())
    }
}

impl ThreadPool {
    pub(super) fn new() -> Self {
        ThreadPool { queue: Arc::default(), threads: Mutex::new(Vec::new()) }
    }

    pub(super) fn submit(&self, host: &Arc<HostFile>, batch: Vec<Request>) -> Ticket {
        let unanswered = Ticket::pending(&host.name, &batch);
        let runs = runs(batch);
        let is_small =
            runs.len() == 1 && runs.iter().all(|run| run.writes() && run.length_bytes() <= SMALL_BYTES);
        if is_small || !self.start_threads(runs.len()) {
            let answers = runs.into_iter().flat_map(|run| run.finish(host));
            return Ticket::ready(answers.map(|(_, completion)| completion).collect::<Vec<Completion>>());
        }
        let (ticket, completer) = unanswered;
        let mut state = self.queue.state.lock();
        state.work.extend(runs.into_iter().map(|run| Work {
            host: host.clone(),
            run,
            completer: completer.clone(),
        }));
        drop(state);
        self.queue.changed.notify_all();
        ticket
    }

    /// False where the system gives not one thread: the caller then does the work itself.
    fn start_threads(&self, wanted: usize) -> bool {
        let mut threads = self.threads.lock();
        while threads.len() < wanted.min(MOST_THREADS) {
            let queue = self.queue.clone();
            match thread::try_spawn("device-io", move || serve(&queue)) {
                Ok(thread) => threads.push(thread),
                Err(_) => break,
            }
        }
        !threads.is_empty()
    }
}

fn serve(queue: &Queue) {
    while let Some(work) = take(queue) {
        work.completer.complete_all(work.run.finish(&work.host));
    }
}

/// The next run; none when the pool is closed and everything queued was taken.
fn take(queue: &Queue) -> Option<Work> {
    let mut state = queue.state.lock();
    loop {
        if let Some(work) = state.work.pop_front() {
            return Some(work);
        }
        if state.closed {
            return None;
        }
        queue.changed.wait(&mut state);
    }
}

impl Drop for ThreadPool {
    fn drop(&mut self) {
        self.queue.state.lock().closed = true;
        self.queue.changed.notify_all();
        for thread in self.threads.get_mut().drain(..) {
            // A panic of that thread has been reported where it happened; a drop has nobody to tell.
            drop(thread.join());
        }
    }
}
