//! A few threads that take runs of requests from one queue.

use std::collections::VecDeque;

use vlinder_base::sync::{Arc, Condvar, Mutex};
use vlinder_base::thread::{self, JoinHandle};

use super::host_file::HostFile;
use super::run::{Run, runs};
use crate::{Completer, Completion, DeviceKind, Request, Ticket};

/// Enough to keep a local disk's queue filled while the page cache serves others; more only add switches.
const MAX_THREADS: usize = 4;
/// A single run of writes up to this size is done by who asks for it: waking a thread takes longer.
const SMALL_WRITE_BYTES: u64 = 256 << 10;
/// Reads of up to so many bytes that need no device are done by who asks for them: waking threads, of a
/// processor that sleeps above all, takes longer, and the bytes come to lie in the cache of the processor
/// that wants them. Others go to the threads, because who reads from several devices asks all of them before
/// it waits.
const SMALL_READ_BYTES: u64 = 512 << 10;

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
    /// A thread is writing to a regular file.
    writing: bool,
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
        let mut runs = runs(batch);
        if is_done_here(host, &mut runs) || !self.start_threads(runs.len()) {
            let answers = runs.into_iter().flat_map(|run| run.finish(host));
            return Ticket::ready(answers.map(|(_, completion)| completion).collect::<Vec<Completion>>());
        }
        let (ticket, completer) = unanswered;
        let mut state = self.queue.state.lock();
        let before = state.work.len();
        state.work.extend(runs.into_iter().map(|run| Work {
            host: host.clone(),
            run,
            completer: completer.clone(),
        }));
        let together = state.work.range(before..).filter(|work| !work.goes_alone()).count();
        // The thread that writes at present looks for more when it is done.
        let alone = usize::from(!state.writing && before + together < state.work.len());
        drop(state);
        for _ in 0..(together + alone).min(MAX_THREADS) {
            self.queue.changed.notify_one();
        }
        ticket
    }

    /// False where the system gives not one thread: the caller then does the work itself.
    fn start_threads(&self, wanted: usize) -> bool {
        let mut threads = self.threads.lock();
        while threads.len() < wanted.min(MAX_THREADS) {
            let queue = self.queue.clone();
            match thread::try_spawn("device-io", move || serve(&queue)) {
                Ok(thread) => threads.push(thread),
                Err(_) => break,
            }
        }
        !threads.is_empty()
    }
}

/// Whether who asks for a batch should do it. What of it was done meanwhile is not done again.
fn is_done_here(host: &HostFile, runs: &mut [Run]) -> bool {
    let length_bytes: u64 = runs.iter().map(Run::length_bytes).sum();
    match runs {
        [run] if run.writes() => length_bytes <= SMALL_WRITE_BYTES,
        runs => length_bytes <= SMALL_READ_BYTES && runs.iter_mut().all(|run| run.read_from_memory(host)),
    }
}

fn serve(queue: &Queue) {
    while let Some(work) = take(queue) {
        work.finish(queue);
    }
}

impl Work {
    /// Hosts let one thread at a time write to a regular file (the inode's lock); the others would spin on
    /// that.
    fn goes_alone(&self) -> bool {
        self.run.writes() && self.host.kind == DeviceKind::RegularFile
    }

    /// Does it in the calling thread, which then asks for the next.
    fn finish(self, queue: &Queue) {
        let _alone = self.goes_alone().then_some(Alone(queue));
        self.completer.complete_all(self.run.finish(&self.host));
    }
}

/// The thread that writes to a regular file. When it is done it takes what comes next itself, unless it ends
/// by a panic.
struct Alone<'a>(&'a Queue);

impl Drop for Alone<'_> {
    fn drop(&mut self) {
        self.0.state.lock().writing = false;
        if thread::panicking() {
            self.0.changed.notify_all();
        }
    }
}

/// The next run; none when the pool is closed and everything queued was taken, or will be by the thread that
/// writes.
fn take(queue: &Queue) -> Option<Work> {
    let mut state = queue.state.lock();
    loop {
        let writing = state.writing;
        let next = state.work.iter().position(|work| !(writing && work.goes_alone()));
        if let Some(work) = next.and_then(|next| state.work.remove(next)) {
            state.writing |= work.goes_alone();
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

#[cfg(test)]
mod tests {
    use vlinder_base::units::Physical;

    use super::*;
    use crate::file::open;
    use crate::{DeviceErrorKind, OpenOptions};

    const LENGTH: u64 = 1 << 20;

    /// A file in a temporary directory, which may be on any file system.
    fn on_the_host() -> Arc<HostFile> {
        let host = open::temporary(&std::env::temp_dir(), &"scratch".into(), &OpenOptions::writer()).unwrap();
        sized(host)
    }

    /// A file of tmpfs.
    fn in_memory() -> Arc<HostFile> {
        let file = rustix::fs::memfd_create("scratch", rustix::fs::MemfdFlags::CLOEXEC).unwrap();
        let path = format!("/proc/self/fd/{}", std::os::fd::AsRawFd::as_raw_fd(&file));
        sized(open::open(path.as_ref(), &OpenOptions::writer()).unwrap())
    }

    fn sized(host: HostFile) -> Arc<HostFile> {
        rustix::fs::ftruncate(&host.descriptor, LENGTH).unwrap();
        host.length.store(LENGTH, vlinder_base::sync::atomic::Ordering::Release);
        Arc::new(host)
    }

    fn read(offset: u64, length: usize) -> Request {
        Request::read(Physical(offset), length)
    }

    fn write(offset: u64, byte: u8) -> Request {
        Request::write(Physical(offset), vec![byte; 4096])
    }

    #[test]
    fn reads_that_need_no_device_are_answered_at_once() {
        let host = in_memory();
        assert!(host.lies_in_memory);
        host.run(write(8192, 7)).result.unwrap();
        let pool = ThreadPool::new();
        let small = vec![read(0, 4096), read(4096, 8192), read(65_536, 4096)];
        let ticket = pool.submit(&host, small);
        assert!(pool.threads.lock().is_empty(), "no thread was wanted");
        let answers = ticket.wait_all().unwrap();
        let bytes = answers[1].data.as_slice();
        assert!(bytes[..4096].iter().all(|byte| *byte == 0) && bytes[4096..].iter().all(|byte| *byte == 7));

        // What is outside fails, and takes nobody along.
        let answers = pool.submit(&host, vec![read(8192, 4096), read(LENGTH - 1, 2)]).wait();
        assert!(answers[0].data.as_slice() == [7; 4096] && answers[0].result.is_ok());
        let error = answers[1].result.as_ref().unwrap_err();
        assert_eq!(error.kind, DeviceErrorKind::OutOfRange { device_length: LENGTH });

        // Large ones are shared among the threads.
        let threads = pool.threads.lock().len();
        let large = SMALL_READ_BYTES as usize / 2;
        pool.submit(&host, vec![read(0, large), read(0, large), read(0, 1)]).wait_all().unwrap();
        assert!(pool.threads.lock().len() > threads);
    }

    #[test]
    fn reads_of_any_host_give_what_was_written() {
        let host = on_the_host();
        host.run(write(8192, 7)).result.unwrap();
        rustix::fs::fdatasync(&host.descriptor).unwrap();
        let pool = ThreadPool::new();
        for _ in 0..2 {
            let forget = rustix::fs::Advice::DontNeed;
            rustix::fs::fadvise(&host.descriptor, 8192, std::num::NonZeroU64::new(4096), forget).unwrap();
            for _ in 0..2 {
                let answers = pool.submit(&host, vec![read(0, 8192), read(8192, 4096)]).wait_all().unwrap();
                assert!(answers[0].data.as_slice().iter().all(|byte| *byte == 0));
                assert!(answers[1].data.as_slice() == [7; 4096]);
            }
        }
    }

    #[test]
    fn one_thread_at_a_time_writes_to_a_file_and_reads_go_on() {
        let host = in_memory();
        let requests = vec![write(0, 1), write(8192, 2), read(65_536, 1)];
        let (ticket, completer) = Ticket::pending(&host.name, &requests);
        let works = runs(requests).into_iter();
        let works = works.map(|run| Work { host: Arc::clone(&host), run, completer: completer.clone() });
        let queue = Queue::default();
        queue.state.lock().work.extend(works);
        drop(completer);
        let first = take(&queue).unwrap();
        let second = take(&queue).unwrap();
        assert!(first.run.writes() && !second.run.writes());
        queue.state.lock().closed = true;
        assert!(take(&queue).is_none(), "a thread that finds only writes is not needed");
        second.finish(&queue);
        first.finish(&queue);
        serve(&queue);
        ticket.wait_all().unwrap();
        assert!(!queue.state.lock().writing);
    }

    #[test]
    fn a_thread_that_panics_keeps_nobody_from_writing() {
        let host = in_memory();
        let queue = Queue::default();
        let put = |request: Request| {
            let requests = vec![request];
            let (ticket, completer) = Ticket::pending(&host.name, &requests);
            for run in runs(requests) {
                let work = Work { host: Arc::clone(&host), run, completer: completer.clone() };
                queue.state.lock().work.push_back(work);
            }
            (ticket, completer)
        };
        let (_answered, completer) = put(write(0, 1));
        // A fault of the device's own code: it will be answered once more.
        completer.complete(0, write(0, 1).complete(Ok(())));
        let (ticket, completer) = put(write(8192, 2));
        drop(completer);
        let work = take(&queue).unwrap();
        assert!(std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| work.finish(&queue))).is_err());
        take(&queue).unwrap().finish(&queue);
        ticket.wait_all().unwrap();
    }
}
