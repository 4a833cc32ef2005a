//! The thread in the background: commits at an interval and when changes have stopped, frees the blocks of
//! deleted subvolumes, writes data out before writers have to wait for it.
//!
//! Invariant of the idle commit: a change is noted ([`Background::note_change`]) when it is made, or while a
//! transaction handle is open that it is made through, and a commit that takes changes along begins by
//! forgetting what was noted before ([`Background::begin_commit`]). What a commit that fails leaves is tried
//! again at the interval. So each other change that is not committed is noted, and two periods without a
//! further one later a commit begins.

use std::time::Duration;

use vlinder_base::affinity::{Aside, narrowed_to};
use vlinder_base::clock::Clock;
use vlinder_base::sync::atomic::{AtomicBool, Ordering};
use vlinder_base::sync::{Arc, Condvar, Mutex};
use vlinder_base::thread;

use crate::{Filesystem, Result};

/// Blocks of deleted subvolumes looked at before the background work asks whether to stop.
const CLEANED_BLOCKS: usize = 4096;

/// Wakes the thread that works in the background, when its time has come or somebody asks for work.
#[derive(Default)]
pub(crate) struct Background {
    /// Something was changed since this was looked at last.
    has_changed: AtomicBool,
    asked: Mutex<Asked>,
    wake: Condvar,
    /// The thread that waits here.
    thread: Mutex<Option<thread::JoinHandle<()>>>,
}

/// See [`Background::noting`].
#[must_use]
pub(crate) struct Noting<'a>(&'a Background);

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
enum Wake {
    /// Deletions and a commit: the interval is over, or somebody asked.
    Commit,
    /// A commit: nothing was changed for a while, and something before.
    Idle,
    /// Writing data out, until there is room again, but not on this processor.
    WriteOut { asked_on: Option<usize> },
    /// Its end.
    Stop,
}

impl Background {
    /// Waits until it is `due` by the file system's clock, changes have stopped for one to two periods of
    /// `quiet`, or somebody asks for something. A clock that stands still, as a simulation's does, is looked
    /// at again after as much real time as it says there is left.
    fn wait(&self, clock: &dyn Clock, due: Duration, quiet: Option<Duration>) -> Wake {
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
    pub(crate) fn note_change(&self) {
        // A line that is only read stays in every core's cache.
        if !self.has_changed.load(Ordering::Relaxed) && !self.has_changed.swap(true, Ordering::SeqCst) {
            self.asked.lock().watch = true;
            self.wake.notify_all();
        }
    }

    /// Whether something was changed since the last commit began.
    fn has_changed(&self) -> bool {
        self.has_changed.load(Ordering::SeqCst)
    }

    /// Notes a change when this goes, whatever became of it: to be held while a file's data are changed.
    pub(crate) fn noting(&self) -> Noting<'_> {
        Noting(self)
    }

    /// A commit begins that takes along everything that was changed until now.
    pub(crate) fn begin_commit(&self) {
        let mut asked = self.asked.lock();
        self.has_changed.store(false, Ordering::SeqCst);
        (asked.watch, asked.look) = (false, None);
    }

    fn ask_for_commit(&self) {
        self.asked.lock().commit = true;
        self.wake.notify_all();
    }

    fn ask_for_write_out(&self) {
        let mut asked = self.asked.lock();
        (asked.write_out, asked.asked_on) = (true, narrowed_to());
        drop(asked);
        self.wake.notify_all();
    }

    /// Ends the thread, and waits until it has ended.
    pub(crate) fn stop(&self) {
        self.asked.lock().stop = true;
        self.wake.notify_all();
        let thread = self.thread.lock().take();
        if let Some(thread) = thread
            && thread.join().is_err()
        {
            tracing::error!("the background work ended by a panic");
        }
    }

    fn is_stopped(&self) -> bool {
        self.asked.lock().stop
    }
}

impl Filesystem {
    /// Commits at the interval of the options, which writes out all data that came before; frees the blocks
    /// of deleted subvolumes; and writes data out where there is much of it, so that writers need not wait
    /// for that. Until the last handle goes.
    pub(crate) fn start_background(&self) -> Result<()> {
        let background = Arc::clone(&self.shared().background);
        let shared = Arc::downgrade(self.shared());
        let (interval, quiet) =
            (self.options().commit_interval, self.options().idle_commit.map(|idle| idle / 2));
        let clock = Arc::clone(&self.options().clock);
        let attend = move || {
            let (mut due, mut aside) = (clock.monotonic().saturating_add(interval), Aside::new());
            loop {
                let wake = background.wait(&*clock, due, quiet);
                let Some(shared) = shared.upgrade() else { return };
                let filesystem = Self::from_shared(shared);
                let done = match wake {
                    Wake::Stop => return,
                    Wake::WriteOut { asked_on } => {
                        aside.keep_off(asked_on);
                        if let Err(error) = crate::data::relieve(&filesystem) {
                            // The data stay; the next writer or commit tells its caller.
                            tracing::debug!(%error, "data could not be written out early");
                        }
                        Ok(())
                    }
                    Wake::Idle => {
                        aside.keep_off(None);
                        filesystem.run_idle()
                    }
                    Wake::Commit => {
                        due = clock.monotonic().saturating_add(interval);
                        aside.keep_off(None);
                        filesystem.run_background()
                    }
                };
                if let Err(error) = done {
                    // The log says it once for all commits that fail for it (`Engine::note_failed_commit`).
                    tracing::debug!(%error, "the background work failed");
                }
                if let Some(wait) = filesystem.wait_for_host() {
                    due = due.min(clock.monotonic().saturating_add(wait));
                }
            }
        };
        let thread =
            thread::try_spawn("fs-commit", attend).map_err(|source| crate::FsError::NoThreads { source })?;
        *self.shared().background.thread.lock() = Some(thread);
        Ok(())
    }

    /// Makes durable what was changed and is left alone, before anything that may take long; what finds no
    /// room now is tried again. Then the blocks of deleted subvolumes are freed, which may have found no room
    /// before.
    fn run_idle(&self) -> Result<()> {
        if self.is_read_only() {
            return Ok(());
        }
        let synced = self.sync().map(drop);
        let freed = if self.engine().dead_trees().is_empty() { Ok(()) } else { self.run_background() };
        crate::FsError::graver(synced, freed)
    }

    /// Frees what deleted subvolumes leave, then commits.
    fn run_background(&self) -> Result<()> {
        if self.is_read_only() {
            return Ok(());
        }
        let cleaned = self.clean_until_stopped();
        // A deleted subvolume that can't be freed keeps nothing from becoming durable.
        self.sync()?;
        cleaned
    }

    /// What is changed meanwhile does not wait for the end of that.
    fn clean_until_stopped(&self) -> Result<()> {
        let (background, clock) = (&self.shared().background, &self.options().clock);
        let pause = self.options().idle_commit.unwrap_or(self.options().commit_interval);
        let mut synced_at = clock.monotonic();
        while !background.is_stopped() && self.clean_some()? {
            if background.has_changed() && clock.monotonic().saturating_sub(synced_at) >= pause {
                self.sync()?;
                synced_at = clock.monotonic();
            }
        }
        Ok(())
    }

    /// Frees some blocks of deleted subvolumes; whether there are more.
    fn clean_some(&self) -> Result<bool> {
        let cleaned = self.engine().clean(CLEANED_BLOCKS);
        Ok(cleaned.inspect_err(|error| self.engine().note_failed_commit(error))?)
    }

    /// Wakes the background work (freeing blocks of deleted subvolumes, the commit) before its time.
    pub fn wake_background(&self) {
        self.shared().background.ask_for_commit();
    }

    /// Has data written out in the background.
    pub(crate) fn write_out_soon(&self) {
        self.shared().background.ask_for_write_out();
    }

    /// Frees the blocks of every deleted subvolume that nobody has open any more, then commits.
    ///
    /// # Errors
    /// What freeing and committing met.
    pub fn finish_deletions(&self) -> Result<()> {
        while self.engine().clean(CLEANED_BLOCKS)? {}
        self.sync()?;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use vlinder_base::affinity::{Affinity, processor_of};
    use vlinder_base::clock::SystemClock;

    use super::*;

    #[test]
    fn the_thread_hears_on_which_processor_somebody_waits_for_who_asks() {
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
