//! The thread that looks after the gate: it shuts files whose attributes the kernel takes without comparing
//! versions, and looks at the room at intervals while files are open for writing.

use std::collections::BTreeMap;
use std::time::Duration;

use vlinder_base::clock::Clock;
use vlinder_base::sync::atomic::{AtomicBool, Ordering};
use vlinder_base::sync::{Arc, Condvar, Mutex, Weak};
use vlinder_base::thread::{self, JoinHandle};

use super::super::MountService;
use crate::transport::NodeNumber;

/// How long after a reply the kernel is told again: it takes the reply when the program that waits for it
/// runs.
const AFTER_REPLY: [Duration; 3] =
    [Duration::from_millis(1), Duration::from_millis(20), Duration::from_millis(200)];
/// How often there is a look.
const TICK: Duration = Duration::from_millis(250);

/// What the thread has to do.
#[derive(Default)]
pub(super) struct Keeper {
    shared: Arc<Shared>,
    thread: Mutex<Option<JoinHandle<()>>>,
}

#[derive(Default)]
struct Shared {
    /// A file was opened for writing since the thread saw that none is.
    is_busy: AtomicBool,
    work: Mutex<Work>,
    wake: Condvar,
}

#[derive(Default)]
struct Work {
    /// Files to shut, by when.
    later: BTreeMap<Duration, Vec<NodeNumber>>,
    ended: bool,
}

/// What is due.
enum Due {
    Shut(Vec<NodeNumber>),
    Look,
    End,
}

impl Keeper {
    /// Starts the thread.
    ///
    /// # Errors
    /// The system's, where it gives no more threads.
    pub(super) fn start(&self, service: Weak<MountService>, clock: Arc<dyn Clock>) -> std::io::Result<()> {
        let shared = Arc::clone(&self.shared);
        let keep = move || {
            let mut next_look = clock.monotonic().saturating_add(TICK);
            loop {
                let due = shared.next(&*clock, &mut next_look);
                let Some(service) = service.upgrade() else { return };
                match due {
                    Due::Shut(nodes) => nodes.into_iter().for_each(|node| service.shut(node)),
                    Due::Look => {
                        // Cleared before it is asked, so that an opening in between is not lost.
                        shared.is_busy.store(false, Ordering::SeqCst);
                        let is_busy = service.look_again();
                        shared.is_busy.fetch_or(is_busy, Ordering::SeqCst);
                        next_look = clock.monotonic().saturating_add(TICK);
                    }
                    Due::End => return,
                }
            }
        };
        *self.thread.lock() = Some(thread::try_spawn("fuse-gate", keep)?);
        Ok(())
    }

    /// A file was opened for writing.
    pub(super) fn note_opened(&self) {
        if !self.shared.is_busy.load(Ordering::Relaxed) && !self.shared.is_busy.swap(true, Ordering::SeqCst) {
            let _work = self.shared.work.lock();
            self.shared.wake.notify_one();
        }
    }

    /// Has a file shut some time after now, and again.
    pub(super) fn shut_later(&self, node: NodeNumber, now: Duration) {
        let mut work = self.shared.work.lock();
        for delay in AFTER_REPLY {
            work.later.entry(now.saturating_add(delay)).or_default().push(node);
        }
        drop(work);
        self.shared.wake.notify_one();
    }

    /// Ends the thread, and waits until it has ended.
    pub(super) fn finish(&self) {
        self.shared.work.lock().ended = true;
        self.shared.wake.notify_one();
        let thread = self.thread.lock().take();
        if thread.is_some_and(|thread| thread.join().is_err()) {
            tracing::error!("the thread that looks after the room for writers died");
        }
    }
}

impl Shared {
    /// What is due, as soon as anything is. While no file is open for writing, the next look moves on with
    /// the time.
    fn next(&self, clock: &dyn Clock, next_look: &mut Duration) -> Due {
        let mut work = self.work.lock();
        loop {
            if work.ended {
                return Due::End;
            }
            let now = clock.monotonic();
            let is_busy = self.is_busy.load(Ordering::SeqCst);
            if is_busy && now >= *next_look {
                return Due::Look;
            }
            if !is_busy {
                *next_look = now.saturating_add(TICK);
            }
            let later = work.later.split_off(&now.saturating_add(Duration::from_nanos(1)));
            let due = std::mem::replace(&mut work.later, later);
            if !due.is_empty() {
                return Due::Shut(due.into_values().flatten().collect());
            }
            let next = work.later.keys().next().copied();
            let next = next.into_iter().chain(is_busy.then_some(*next_look)).min();
            match next {
                Some(next) => drop(self.wake.wait_for(&mut work, next.saturating_sub(now))),
                None => self.wake.wait(&mut work),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use vlinder_base::clock::{FixedClock, Timestamp};

    use super::*;

    #[test]
    fn files_that_are_shut_all_the_time_keep_no_look_away() {
        let clock = FixedClock::new(Timestamp::EPOCH);
        let keeper = Keeper::default();
        keeper.note_opened();
        let (mut next_look, mut shut) = (TICK, 0);
        let step = Duration::from_millis(10);
        for _ in 0..100 {
            keeper.shut_later(NodeNumber::ROOT, clock.monotonic());
            clock.advance(step);
            match keeper.shared.next(&clock, &mut next_look) {
                Due::Shut(nodes) => shut += nodes.len(),
                Due::Look => {
                    assert!(clock.monotonic() >= TICK && clock.monotonic() <= TICK + step);
                    assert!(shut > 0);
                    return;
                }
                Due::End => unreachable!("nobody ended it"),
            }
        }
        panic!("no look while files were shut {shut} times");
    }
}
