//! A condition variable whose waits are announced.

use std::time::Duration;

use parking_lot::{MutexGuard, WaitTimeoutResult};

use crate::waiting;

/// Lets threads wait for what another one changes under a lock. Waits may end without a reason.
#[derive(Debug, Default)]
pub struct AnnouncedCondvar(parking_lot::Condvar);

impl AnnouncedCondvar {
    /// Nobody waits.
    #[must_use]
    pub const fn new() -> Self {
        Self(parking_lot::Condvar::new())
    }

    /// Gives the lock up, waits to be notified, and takes it again.
    pub fn wait<T: ?Sized>(&self, guard: &mut MutexGuard<'_, T>) {
        waiting::announce();
        self.0.wait(guard);
    }

    /// As [`wait`](Self::wait), no longer than so long.
    pub fn wait_for<T: ?Sized>(&self, guard: &mut MutexGuard<'_, T>, timeout: Duration) -> WaitTimeoutResult {
        waiting::announce();
        self.0.wait_for(guard, timeout)
    }

    /// Wakes one that waits.
    pub fn notify_one(&self) {
        self.0.notify_one();
    }

    /// Wakes all that wait.
    pub fn notify_all(&self) {
        self.0.notify_all();
    }
}
