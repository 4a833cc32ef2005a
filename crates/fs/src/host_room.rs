//! A host that has no space for the image.
//!
//! An image grows on its host as it is written to, and the host's file system, or a quota there, may be full. The image is
//! sound then: its last commit is whole, and what came since is in memory, where the user may still save it by freeing space
//! on the host. Invariants:
//! 1. What was accepted stays in memory until it is on the devices: data stay dirty, a commit stays frozen
//!    (`Engine::is_host_full`).
//! 2. While the host is full, callers are refused what needs more room there ([`Filesystem::check_host_room`]). What the
//!    kernel took from them before is accepted within `dirty=`.
//! 3. Writing is tried again: by every sync, by the background work, and by writers at intervals that double
//!    ([`Filesystem::try_host_again`]). Only a sync that has written everything ends the state.

use std::time::Duration;

use vlinder_base::sync::Mutex;

use crate::{Filesystem, Result};

/// After the first try that failed.
const FIRST_WAIT: Duration = Duration::from_millis(250);
/// A try may take as long as writing out all that is dirty.
const LONGEST_WAIT: Duration = Duration::from_secs(8);

/// When a host that is full is tried again.
pub(crate) struct HostRetry {
    next: Mutex<Next>,
}

#[derive(Clone, Copy)]
struct Next {
    /// By the monotonic clock.
    at: Duration,
    wait: Duration,
}

impl Default for HostRetry {
    fn default() -> Self {
        Self { next: Mutex::new(Next { at: Duration::ZERO, wait: FIRST_WAIT }) }
    }
}

impl Filesystem {
    /// Refuses what would take more room on the host while that is full. The caller holds no lock and no transaction handle.
    ///
    /// # Errors
    /// [`EngineError::HostFull`](vlinder_transaction::EngineError::HostFull).
    pub(crate) fn check_host_room(&self) -> Result<()> {
        let has_room = !self.engine().is_host_full() || self.try_host_again();
        if has_room { Ok(()) } else { Err(self.engine().full_host().into()) }
    }

    /// Writes everything out if it is time to try that again; whether the host has room.
    fn try_host_again(&self) -> bool {
        // One at a time: who comes meanwhile is refused.
        let Some(mut next) = self.shared().host_retry.next.try_lock() else { return false };
        let clock = self.engine().clock();
        if clock.monotonic() < next.at {
            return false;
        }
        let is_written = self.sync().is_ok();
        let wait = if is_written { FIRST_WAIT } else { next.wait };
        *next = Next { at: clock.monotonic().saturating_add(wait), wait: (wait * 2).min(LONGEST_WAIT) };
        is_written
    }

    /// How long the background work waits before it tries a full host again; none where the host is not full.
    pub(crate) fn wait_for_host(&self) -> Option<Duration> {
        self.engine().is_host_full().then_some(LONGEST_WAIT)
    }
}
