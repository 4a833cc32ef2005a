//! A host that has no space for the image.
//!
//! An image grows on its host as it is written to, and the host's file system, or a quota there, may be full.
//! The image is sound then: its last commit is whole, and what came since is in memory, where the user may
//! still save it by freeing space on the host. Invariants:
//! 1. What was accepted stays in memory until it is on the devices: data stay dirty, a commit stays frozen
//!    (`Engine::is_host_full`).
//! 2. While the host is full, callers are refused what needs more room there
//!    ([`Maintenance::check_host_room`]). What the kernel took from them before is accepted within `dirty=`.
//! 3. Writing is tried again: by every sync, by the background work, and by writers at intervals that double
//!    ([`Maintenance::try_host_again`]). Only a sync that has written everything ends the state. The next
//!    time that the host is full, the intervals begin anew, whatever sync ended the last one.
//! 4. A caller is told of a full host only if the last try met nothing else: a failure of another kind is
//!    told as what it is.

use std::time::Duration;

use vlinder_data::SpaceFailure;

use crate::Result;
use crate::host_retry::{LONGEST_WAIT, Next};
use crate::maintenance::Maintenance;

impl Maintenance {
    /// Refuses what would take more room on the host while that is full. The caller holds no lock and no
    /// transaction handle.
    ///
    /// # Errors
    /// [`EngineError::HostFull`](vlinder_transaction::EngineError::HostFull); what else trying it again met.
    pub(crate) fn check_host_room(&self) -> Result<()> {
        if self.store().engine().is_host_full() { self.try_host_again() } else { Ok(()) }
    }

    /// Writes everything out if it is time to try that again.
    ///
    /// # Errors
    /// As [`check_host_room`](Self::check_host_room).
    fn try_host_again(&self) -> Result<()> {
        let refused = || Err(self.store().engine().troubles().full_host().into());
        // One at a time: who comes meanwhile is refused.
        let Some(mut next) = self.host_retry().try_next() else { return refused() };
        let time = self.store().engine().troubles().times_host_was_full();
        if next.time != time {
            *next = Next::first(time);
        }
        let clock = self.store().engine().clock();
        if clock.monotonic() < next.at {
            return refused();
        }
        match self.sync() {
            Err(error) if error.finds_no_space() => {
                *next = next.after_vain_try(clock.monotonic());
                Err(error)
            }
            // The next caller tries it, too: only it knows what it would be told.
            Err(error) if self.store().engine().is_host_full() => Err(error),
            // The caller finds out by itself what it meets in place of a full host.
            _ => Ok(()),
        }
    }

    /// How long the background work waits before it tries a full host again; none where the host is not full.
    pub(crate) fn wait_for_host(&self) -> Option<Duration> {
        self.store().engine().is_host_full().then_some(LONGEST_WAIT)
    }
}
