//! The deletion of files that have no name any more and that the kernel forgot, by a thread that answers no
//! requests.
//!
//! Files are deleted some time after they were forgotten, many in a row: waking the thread for each would
//! cost the thread that answers requests more than a deletion, and the program that removes a tree waits for
//! no deletion.
//!
//! Invariants, and the function that keeps each:
//! 1. `held` counts the files without names from [`Deleter::hold`] on until each is deleted (the drop of
//!    [`Held`]).
//! 2. `waiting` counts those that were handed over by [`Deleter::delete`] and are not deleted yet. So
//!    [`Deleter::settle`] returns when all that was handed over before the call is deleted.
//! 3. A waiting file is deleted without another call: the thread is woken for the first file of a row, for
//!    the last that makes it long, and for a large one, and gathers no longer than [`GATHERING`].
//! 4. After [`Deleter::finish`] no file waits.

use std::time::Duration;

use rustix::io::Errno;
use vlinder_base::affinity::{Aside, narrowed_to};
use vlinder_base::clock::Clock;
use vlinder_base::sync::atomic::{AtomicUsize, Ordering};
use vlinder_base::sync::{Arc, Condvar, Mutex};
use vlinder_base::thread::{self, JoinHandle};
use vlinder_fs::{FileType, OpenInode};

use crate::transport::Reply;

/// Files that are worth waking the thread at once.
const MANY: usize = 64;
/// A file of so many bytes may have so many extents that it is worth that alone.
const LARGE_BYTES: u64 = 1 << 20;
/// How long fewer files wait for others.
const GATHERING: Duration = Duration::from_millis(10);
/// How long after a file lost its last name the kernel may take to say that no program has it. Where it
/// takes longer, nothing is lost: a full file system may then refuse what would have had room a moment later.
const FORGETTING: Duration = Duration::from_millis(250);

/// How often what found no space is tried again while removed files are being deleted.
const MAX_ATTEMPTS: usize = 64;

/// The thread, and what it has to do.
pub(super) struct Deleter {
    shared: Arc<Deletions>,
    thread: Mutex<Option<JoinHandle<()>>>,
}

struct Deletions {
    clock: Arc<dyn Clock>,
    /// Files without names that are held, those that wait among them.
    held: AtomicUsize,
    state: Mutex<DeletionState>,
    /// There is more to do, or it is urgent.
    work: Condvar,
    /// A file was deleted.
    deleted: Condvar,
}

#[derive(Default)]
struct DeletionState {
    queue: Vec<Held>,
    /// Files in the queue and those that the thread took out of it and that are not deleted yet.
    waiting: usize,
    /// Files deleted so far.
    deleted: u64,
    /// When a file was last held, by the monotonic clock.
    last_loss: Option<Duration>,
    /// The processor of the thread that left the last of it, while a program waits there for what that thread
    /// does.
    answers_on: Option<usize>,
    /// A thread waits for deletions: nothing more is gathered.
    urgent: bool,
    /// The thread takes nothing out of the queue any more.
    ended: bool,
}

/// A file without names. It is deleted when this is dropped.
pub(super) struct Held {
    /// None after it was closed.
    open: Option<OpenInode>,
    shared: Arc<Deletions>,
    is_waiting: bool,
}

impl Held {
    pub(super) fn open(&self) -> Option<&OpenInode> {
        self.open.as_ref()
    }

    fn is_large(&self) -> bool {
        let inode = self.open.as_ref().map(OpenInode::inode);
        inode.is_some_and(|inode| inode.file_type() == FileType::Regular && inode.size() > LARGE_BYTES)
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        drop(self.open.take());
        self.shared.held.fetch_sub(1, Ordering::AcqRel);
        let mut state = self.shared.state.lock();
        state.waiting -= usize::from(self.is_waiting);
        state.deleted += 1;
        drop(state);
        self.shared.deleted.notify_all();
    }
}

impl Deleter {
    /// # Errors
    /// The system's, where it gives no more threads.
    pub(super) fn new(clock: Arc<dyn Clock>) -> std::io::Result<Self> {
        let shared = Arc::new(Deletions {
            clock,
            held: AtomicUsize::default(),
            state: Mutex::default(),
            work: Condvar::new(),
            deleted: Condvar::new(),
        });
        let thread = {
            let shared = Arc::clone(&shared);
            thread::try_spawn("fuse-delete", move || {
                let mut aside = Aside::new();
                while let Some((files, answers_on)) = shared.next() {
                    aside.keep_off(answers_on);
                    files.into_iter().for_each(drop);
                }
            })?
        };
        Ok(Self { shared, thread: Mutex::new(Some(thread)) })
    }

    /// A file that just lost its last name.
    pub(super) fn hold(&self, open: OpenInode) -> Held {
        self.shared.held.fetch_add(1, Ordering::AcqRel);
        self.shared.state.lock().last_loss = Some(self.shared.clock.monotonic());
        Held { open: Some(open), shared: Arc::clone(&self.shared), is_waiting: false }
    }

    /// How many are held.
    pub(super) fn held(&self) -> usize {
        self.shared.held.load(Ordering::Acquire)
    }

    /// Deletes a file that the kernel forgot, soon.
    pub(super) fn delete(&self, mut held: Held) {
        let is_large = held.is_large();
        let mut state = self.shared.state.lock();
        if state.ended {
            drop(state);
            return drop(held);
        }
        held.is_waiting = true;
        state.waiting += 1;
        state.queue.push(held);
        state.answers_on = narrowed_to();
        let is_due = is_large || matches!(state.queue.len(), 1 | MANY);
        state.urgent |= is_large;
        drop(state);
        if is_due {
            self.shared.work.notify_one();
        }
    }

    /// Returns when all that the kernel forgot so far is deleted.
    pub(super) fn settle(&self) {
        let mut state = self.shared.state.lock();
        let until = state.deleted.saturating_add(state.waiting as u64);
        while state.waiting > 0 && state.deleted < until {
            self.shared.hurry(&mut state);
            self.shared.deleted.wait(&mut state);
        }
    }

    /// How many deletions are done: to be asked before what may find no room is tried.
    pub(super) fn deleted(&self) -> u64 {
        self.shared.state.lock().deleted
    }

    /// Waits for room that is about to come free: whether more is deleted than `before`. A program that
    /// removed a file counts on its room, though the kernel has not said yet that no program has it. Waits
    /// no longer than it may take the kernel to say so, and for deletions that are under way.
    pub(super) fn wait_for_room(&self, before: u64) -> bool {
        let shared = &self.shared;
        let mut state = shared.state.lock();
        while state.deleted == before {
            let end = state.last_loss.map(|last| last.saturating_add(FORGETTING));
            let left =
                end.and_then(|end| end.checked_sub(shared.clock.monotonic())).filter(|_| self.held() > 0);
            match left {
                _ if state.waiting > 0 => {
                    shared.hurry(&mut state);
                    shared.deleted.wait(&mut state);
                }
                Some(left) => {
                    // A clock that stands still, as a simulation's does, says nothing of how long that took.
                    let waited = shared.deleted.wait_for(&mut state, left);
                    if waited.timed_out() && state.waiting == 0 {
                        return state.deleted != before;
                    }
                }
                None => return false,
            }
        }
        true
    }

    /// Tries what may find no space, and tries it again while files that were removed are being deleted.
    pub(super) fn with_room<T>(&self, mut attempt: impl FnMut() -> Reply<T>) -> Reply<T> {
        for _ in 0..MAX_ATTEMPTS {
            let deleted = self.deleted();
            match attempt() {
                Err(Errno::NOSPC) if self.wait_for_room(deleted) => {}
                other => return other,
            }
        }
        attempt()
    }

    /// Deletes what is left, and returns when that is done. A file that is forgotten later is deleted by the
    /// thread that forgets it.
    pub(super) fn finish(&self) {
        self.shared.state.lock().ended = true;
        self.shared.work.notify_one();
        let thread = self.thread.lock().take();
        if thread.is_some_and(|thread| thread.join().is_err()) {
            tracing::error!("a file without names could not be deleted: the thread that does so died");
        }
    }
}

impl Deletions {
    /// Files to delete, once they are many, one is large, a thread waits, or enough time went by, and
    /// the processor to keep off; none at the end.
    fn next(&self) -> Option<(Vec<Held>, Option<usize>)> {
        let mut state = self.state.lock();
        while state.queue.is_empty() {
            if state.ended {
                return None;
            }
            self.work.wait(&mut state);
        }
        while state.queue.len() < MANY && !state.urgent && !state.ended {
            if self.work.wait_for(&mut state, GATHERING).timed_out() {
                break;
            }
        }
        state.urgent = false;
        Some((std::mem::take(&mut state.queue), state.answers_on))
    }

    fn hurry(&self, state: &mut DeletionState) {
        state.urgent = !state.queue.is_empty();
        self.work.notify_one();
    }
}
