//! A few threads that take requests from one queue.

use std::collections::VecDeque;

use vlinder_base::sync::{Arc, Condvar, Mutex};
use vlinder_base::thread::{self, JoinHandle};

use super::HostFile;
use crate::{Completer, Request, Ticket};

/// Enough to keep a local disk's queue filled while the page cache serves others; more only add switches.
const MOST_THREADS: usize = 4;

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
    request: Request,
    position: usize,
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
        if !self.start_threads(batch.len()) {
            return Ticket::ready(batch.into_iter().map(|request| host.run(request)).collect());
        }
        let (ticket, completer) = Ticket::pending(&host.name, &batch);
        let mut state = self.queue.state.lock();
        state.work.extend(batch.into_iter().enumerate().map(|(position, request)| Work {
            host: host.clone(),
            request,
            position,
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
        work.completer.complete(work.position, work.host.run(work.request));
    }
}

/// The next request; none when the pool is closed and everything queued was taken.
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
