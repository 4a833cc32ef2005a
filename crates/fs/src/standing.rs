//! How a file system stands as a whole, for a server that shows it to others: what it is, what keeps it from
//! taking changes, and how it ended.

use std::time::Duration;

use vlinder_base::sync::Arc;
use vlinder_base::thread;
use vlinder_transaction::ReadOnlyReason;

use crate::{Filesystem, Result, Uuid};

/// How often, and how long each time, the end of the last user of the devices is waited for.
const LOOKS: u32 = 5_000;
const LOOK_INTERVAL: Duration = Duration::from_millis(1);

/// A look at a file system as a whole.
#[derive(Clone, Copy, Debug)]
pub struct Standing<'a>(&'a Filesystem);

impl<'a> Standing<'a> {
    /// That of a file system.
    #[must_use]
    pub const fn of(filesystem: &'a Filesystem) -> Self {
        Self(filesystem)
    }

    /// The UUID of the file system (`fsid` in the superblock).
    #[must_use]
    pub fn uuid(self) -> Uuid {
        self.0.engine().superblock().fsid
    }

    /// Whether the host has no space for the image: what was accepted waits in memory.
    #[must_use]
    pub fn is_host_full(self) -> bool {
        self.0.engine().is_host_full()
    }

    /// Whether the file system is read-only for a reason that was there when it was opened, and not because
    /// an error stopped it.
    #[must_use]
    pub fn is_read_only_by_nature(self) -> bool {
        let reason = self.0.engine().read_only_reason();
        reason.is_some_and(|reason| !matches!(reason, ReadOnlyReason::Error(_)))
    }

    /// Commits where that frees at least `least_bytes` and writers have less room than it frees.
    ///
    /// # Errors
    /// What the commit met.
    pub fn free_pinned(self, least_bytes: u64) -> Result<()> {
        let pinned_bytes = self.0.maintenance().bytes_freed_by_commit().unwrap_or(0);
        if pinned_bytes >= least_bytes && self.0.maintenance().room_for_writers() < pinned_bytes {
            self.0.maintenance().commit()?;
        }
        Ok(())
    }

    /// Closes a file system ([`Filesystem::close`]), and waits until its devices are free, for ten seconds at
    /// most: a thread that answered somebody may still be letting go of them, and the next opener would be
    /// refused. Returns the error that made it read-only before, if one did. Not everything that was written
    /// is durable then.
    ///
    /// # Errors
    /// What writing everything out and committing met.
    pub fn close(filesystem: Filesystem) -> Result<Option<ReadOnlyReason>> {
        let engine = Arc::clone(filesystem.engine());
        let closed = if filesystem.is_read_only() { Ok(()) } else { filesystem.sync().map(drop) };
        drop(filesystem);
        // The last handle commits when it is dropped, wherever that is: only then is the reason final.
        wait_until_alone(&engine);
        let reason = engine.read_only_reason();
        let volume = Arc::clone(engine.volume());
        drop(engine);
        // The thread that drops the volume last lets go of the devices. That must be done when this returns.
        wait_until_alone(&volume);
        drop(volume);
        closed?;
        Ok(reason.filter(|reason| matches!(reason, ReadOnlyReason::Error(_))))
    }
}

/// Waits until nobody else keeps this.
fn wait_until_alone<T>(kept: &Arc<T>) {
    for _ in 0..LOOKS {
        if Arc::strong_count(kept) == 1 {
            return;
        }
        thread::sleep(LOOK_INTERVAL);
    }
    tracing::warn!("the file system is closed, but a thread still uses it");
}

#[cfg(test)]
mod tests {
    use vlinder_device::Device;
    use vlinder_testkit::subject::Recipe;

    use super::*;
    use crate::OpenOptions;

    #[test]
    fn a_closed_file_system_has_let_go_of_its_devices() {
        let device: Arc<dyn Device> = Arc::new(Recipe::default().in_memory());
        let filesystem = Filesystem::open_devices(vec![Arc::clone(&device)], OpenOptions::default()).unwrap();
        let late = filesystem.clone();
        let last = thread::spawn("late", move || {
            thread::sleep(Duration::from_millis(100));
            drop(late);
        });
        assert_eq!(Standing::close(filesystem).unwrap(), None);
        assert_eq!(Arc::strong_count(&device), 1, "nobody else holds it");
        last.join().unwrap();
    }
}
