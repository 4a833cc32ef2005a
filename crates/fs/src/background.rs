//! The thread in the background: commits at an interval and when changes have stopped, frees the blocks of
//! deleted subvolumes, writes data out before writers have to wait for it.

use vlinder_base::affinity::Aside;
use vlinder_base::sync::Arc;
use vlinder_base::thread;

use crate::background_wake::Wake;
use crate::{Filesystem, Result};

/// Blocks of deleted subvolumes looked at before the background work asks whether to stop.
const CLEANED_BLOCKS: usize = 4096;

impl Filesystem {
    /// Commits at the interval of the options, which writes out all data that came before; frees the blocks
    /// of deleted subvolumes; and writes data out where there is much of it, so that writers need not wait
    /// for that. Until the last handle goes.
    pub(crate) fn start_background(&self) -> Result<()> {
        let background = Arc::clone(self.shared().store.background());
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
                        if let Err(error) = crate::data::flush::relieve(filesystem.store()) {
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
        self.shared().store.background().keep_thread(thread);
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
        let (background, clock) = (self.store().background(), &self.options().clock);
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
        self.store().background().ask_for_commit();
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
