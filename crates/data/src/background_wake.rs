//! What wakes the thread that works in the background, and what it is asked for.
//!
//! Invariant of the idle commit: a change is noted ([`Background::note_change`]) when it is made, or while a
//! transaction handle is open that it is made through, and a commit that takes changes along begins by
//! forgetting what was noted before ([`Background::begin_commit`]). What a commit that fails leaves is tried
//! again at the interval. So each other change that is not committed is noted, and two periods without a
//! further one later a commit begins. Access times alone are not noted: they wait for the next commit.

use std::time::Duration;

use vlinder_base::affinity::narrowed_to;
use vlinder_base::clock::Clock;
use vlinder_base::sync::atomic::{AtomicBool, Ordering};
use vlinder_base::sync::{Condvar, Mutex};
use vlinder_base::thread;

/// Wakes the thread that works in the background, when its time has come or somebody asks for work.
#[derive(Default)]
pub struct Background {
    /// Something was changed since this was looked at last.
    has_changed: AtomicBool,
    asked: Mutex<Asked>,
    wake: Condvar,
    /// The thread that waits here.
    thread: Mutex<Option<thread::JoinHandle<()>>>,
}

/// See [`Background::noting`].
#[must_use]
pub struct Noting<'a>(&'a Background);

impl Drop for Noting<'_> {
    fn drop(&mut self) {
        self.0.note_change();
    }
}

/// What the thread was asked for and has not begun.
#[derive(Default)]
struct Asked {
    /// To end.
    stop: bool,
    /// All its work, before its time.
    commit: bool,
    /// To watch for the end of the changes that have begun.
    watch: bool,
    /// When it looks next whether there were further ones; none while everything is committed.
    look: Option<Duration>,
    /// To write data out: there is more that is not flushed than there should be.
    write_out: bool,
    /// The processor of the thread that asked for that, while somebody waits there for what that thread does.
    asked_on: Option<usize>,
}

/// What the thread in the background is woken for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wake {
    /// Deletions and a commit: the interval is over, or somebody asked.
    Commit,
    /// A commit: nothing was changed for a while, and something before.
    Idle,
    /// Writing data out, until there is room again, but not on this processor.
    WriteOut {
        /// The processor of the thread that asked, where somebody waits there for what that thread does.
        asked_on: Option<usize>,
    },
    /// Its end.
    Stop,
}

impl Background {
    /// Waits until it is `due` by the file system's clock, changes have stopped for one to two periods of
    /// `quiet`, or somebody asks for something. A clock that stands still, as a simulation's does, is looked
    /// at again after as much real time as it says there is left.
    pub fn wait(&self, clock: &dyn Clock, due: Duration, quiet: Option<Duration>) -> Wake {
        let mut asked = self.asked.lock();
        loop {
            let now = clock.monotonic();
            let later = quiet.map(|quiet| now.saturating_add(quiet));
            if asked.stop {
                return Wake::Stop;
            }
            if std::mem::take(&mut asked.commit) || now >= due {
                return Wake::Commit;
            }
            if std::mem::take(&mut asked.write_out) {
                return Wake::WriteOut { asked_on: asked.asked_on };
            }
            if std::mem::take(&mut asked.watch) {
                asked.look = asked.look.or(later);
            }
            if asked.look.is_some_and(|look| now >= look) {
                if !self.has_changed.swap(false, Ordering::SeqCst) {
                    asked.look = None;
                    return Wake::Idle;
                }
                asked.look = later;
            }
            let next = asked.look.map_or(due, |look| look.min(due));
            self.wake.wait_for(&mut asked, next.saturating_sub(now));
        }
    }

    /// Something was changed that only a commit makes durable.
    pub fn note_change(&self) {
        // A line that is only read stays in every core's cache.
        if !self.has_changed.load(Ordering::Relaxed) && !self.has_changed.swap(true, Ordering::SeqCst) {
            self.asked.lock().watch = true;
            self.wake.notify_all();
        }
    }

    /// Whether something was changed since the last commit began.
    pub fn has_changed(&self) -> bool {
        self.has_changed.load(Ordering::SeqCst)
    }

    /// Notes a change when this goes, whatever became of it: to be held while a file's data are changed.
    pub fn noting(&self) -> Noting<'_> {
        Noting(self)
    }

    /// A commit begins that takes along everything that was changed until now.
    pub fn begin_commit(&self) {
        let mut asked = self.asked.lock();
        self.has_changed.store(false, Ordering::SeqCst);
        (asked.watch, asked.look) = (false, None);
    }

    /// To do all its work now.
    pub fn ask_for_commit(&self) {
        self.asked.lock().commit = true;
        self.wake.notify_all();
    }

    /// To write data out.
    pub(crate) fn ask_for_write_out(&self) {
        let mut asked = self.asked.lock();
        (asked.write_out, asked.asked_on) = (true, narrowed_to());
        drop(asked);
        self.wake.notify_all();
    }

    /// The thread that waits here was started.
    pub fn keep_thread(&self, thread: thread::JoinHandle<()>) {
        *self.thread.lock() = Some(thread);
    }

    /// Ends the thread, and waits until it has ended.
    pub fn stop(&self) {
        self.asked.lock().stop = true;
        self.wake.notify_all();
        let thread = self.thread.lock().take();
        if let Some(thread) = thread
            && thread.join().is_err()
        {
            tracing::error!("the background work ended by a panic");
        }
    }

    /// Whether the thread is to end.
    #[must_use]
    pub fn is_stopped(&self) -> bool {
        self.asked.lock().stop
    }
}

#[cfg(test)]
mod tests {
    use vlinder_base::affinity::{Affinity, processor_of};
    use vlinder_base::clock::SystemClock;
    use vlinder_base::sync::Arc;

    use super::*;

    #[test]
    fn the_thread_hears_on_which_processor_a_waiter_waits() {
        let wake_asked_by = |narrows: bool| {
            let background = Arc::new(Background::default());
            let asked = Arc::clone(&background);
            let work = move || {
                let here = processor_of(std::process::id()).zip(Affinity::current());
                let place = here.filter(|_| narrows).and_then(|(place, all)| {
                    all.narrow_to(place).is_ok_and(|is_narrowed| is_narrowed).then_some(place)
                });
                asked.ask_for_write_out();
                place
            };
            let place = thread::spawn("asks", work).join().unwrap();
            assert_eq!(place.is_some(), narrows);
            let wake = background.wait(&SystemClock::new(), Duration::MAX, None);
            assert_eq!(wake, Wake::WriteOut { asked_on: place });
        };
        wake_asked_by(true);
        wake_asked_by(false);
    }
}
