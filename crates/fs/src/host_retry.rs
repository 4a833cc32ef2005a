//! When a host that is full is tried again: at intervals that double.

use std::time::Duration;

use vlinder_base::sync::{Mutex, MutexGuard};

/// After the first try that failed.
const FIRST_WAIT: Duration = Duration::from_millis(250);

/// A try may take as long as writing out all that is dirty.
pub(crate) const LONGEST_WAIT: Duration = Duration::from_secs(8);

/// When a host that is full is tried again.
pub(crate) struct HostRetry {
    next: Mutex<Next>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Next {
    /// Which time of a full host this is about
    /// ([`Engine::times_host_was_full`](vlinder_transaction::Engine)).
    pub(crate) time: u64,
    /// By the monotonic clock.
    pub(crate) at: Duration,
    wait: Duration,
}

impl Next {
    /// The first try of a time: at once.
    pub(crate) const fn first(time: u64) -> Self {
        Self { time, at: Duration::ZERO, wait: FIRST_WAIT }
    }

    /// After a try that the host had no space for.
    pub(crate) fn after_vain_try(self, now: Duration) -> Self {
        Self { at: now.saturating_add(self.wait), wait: (self.wait * 2).min(LONGEST_WAIT), ..self }
    }
}

impl Default for HostRetry {
    fn default() -> Self {
        Self { next: Mutex::new(Next::first(0)) }
    }
}

impl HostRetry {
    /// When to try next, locked, if nobody is trying.
    pub(crate) fn try_next(&self) -> Option<MutexGuard<'_, Next>> {
        self.next.try_lock()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn intervals_double_up_to_the_longest() {
        let mut next = Next::first(3);
        let mut waits = Vec::new();
        for _ in 0..8 {
            let before = next.wait;
            next = next.after_vain_try(Duration::from_secs(100));
            assert_eq!((next.time, next.at), (3, Duration::from_secs(100) + before));
            waits.push(before.as_millis());
        }
        assert_eq!(waits, [250, 500, 1000, 2000, 4000, 8000, 8000, 8000]);
    }
}
