//! The thread in the background: commits at an interval and when changes have stopped, frees the blocks of
//! deleted subvolumes, writes data out before writers have to wait for it.

use std::time::Duration;

use vlinder_base::affinity::Aside;
use vlinder_base::clock::Clock;
use vlinder_base::sync::Arc;
use vlinder_base::thread;
use vlinder_data::{SpaceFailure, Wake};

use crate::Result;
use crate::maintenance::Maintenance;
use crate::options::OpenOptions;

/// The work of the thread in the background.
struct BackgroundWork {
    maintenance: Arc<Maintenance>,
    clock: Arc<dyn Clock>,
    /// So long the freeing of deleted subvolumes goes on before what was changed meanwhile is committed.
    pause: Duration,
}

/// Commits at the interval of the options, which writes out all data that came before; frees the blocks of
/// deleted subvolumes; and writes data out where there is much of it, so that writers need not wait for that.
/// Until the last handle goes.
pub(crate) fn start(maintenance: &Arc<Maintenance>, options: &OpenOptions) -> Result<()> {
    let background = Arc::clone(maintenance.store().background());
    let weak = Arc::downgrade(maintenance);
    let (interval, quiet) = (options.commit_interval, options.idle_commit.map(|idle| idle / 2));
    let pause = options.idle_commit.unwrap_or(interval);
    let clock = Arc::clone(&options.clock);
    let attend = move || {
        let (mut due, mut aside) = (clock.monotonic().saturating_add(interval), Aside::new());
        loop {
            let wake = background.wait(&*clock, due, quiet);
            let Some(maintenance) = weak.upgrade() else { return };
            let work = BackgroundWork { maintenance, clock: Arc::clone(&clock), pause };
            let done = match wake {
                Wake::Stop => return,
                Wake::WriteOut { asked_on } => {
                    aside.keep_off(asked_on);
                    if let Err(error) = vlinder_data::flush_until_below_limit(work.maintenance.store()) {
                        // The data stay; the next writer or commit tells its caller.
                        tracing::debug!(%error, "data could not be written out early");
                    }
                    Ok(())
                }
                Wake::Idle => {
                    aside.keep_off(None);
                    work.run_idle()
                }
                Wake::Commit => {
                    due = clock.monotonic().saturating_add(interval);
                    aside.keep_off(None);
                    work.run()
                }
            };
            if let Err(error) = done {
                // The log says it once for all commits that fail for it (`Engine::note_failed_commit`).
                tracing::debug!(%error, "the background work failed");
            }
            if let Some(wait) = work.maintenance.wait_for_host() {
                due = due.min(clock.monotonic().saturating_add(wait));
            }
        }
    };
    let thread =
        thread::try_spawn("fs-commit", attend).map_err(|source| crate::FsError::NoThreads { source })?;
    maintenance.store().background().keep_thread(thread);
    Ok(())
}

impl BackgroundWork {
    /// Makes durable what was changed and is left alone, before anything that may take long; what finds no
    /// room now is tried again. Then the blocks of deleted subvolumes are freed, which may have found no room
    /// before.
    fn run_idle(&self) -> Result<()> {
        if self.maintenance.store().is_read_only() {
            return Ok(());
        }
        let synced = self.maintenance.sync().map(drop);
        let freed = if self.maintenance.has_deletions() { self.run() } else { Ok(()) };
        SpaceFailure::graver(synced, freed)
    }

    /// Frees what deleted subvolumes leave, then commits.
    fn run(&self) -> Result<()> {
        if self.maintenance.store().is_read_only() {
            return Ok(());
        }
        let cleaned = self.clean_until_stopped();
        // A deleted subvolume that can't be freed keeps nothing from becoming durable.
        self.maintenance.sync()?;
        cleaned
    }

    /// What is changed meanwhile does not wait for the end of that.
    fn clean_until_stopped(&self) -> Result<()> {
        let (background, clock) = (self.maintenance.store().background(), &self.clock);
        let mut synced_at = clock.monotonic();
        while !background.is_stopped() && self.maintenance.clean_some()? {
            if background.has_changed() && clock.monotonic().saturating_sub(synced_at) >= self.pause {
                self.maintenance.sync()?;
                synced_at = clock.monotonic();
            }
        }
        Ok(())
    }
}
