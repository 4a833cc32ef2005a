//! The end of all changes: after an error or a panic that leaves it unsure what is in memory or on the
//! devices, or because it was asked for.

use vlinder_volume::Volume;

use crate::ReadOnlyReason;
use crate::latch::Latch;
use crate::phase::RunningTransaction;

#[derive(Debug, thiserror::Error)]
#[error(
    "a mistake in this program broke off {0}; please report it, with the lines before this one in the log"
)]
struct BrokenOff(&'static str);

/// What makes a file system read-only for good. Threads that wait for a handle or for a commit hear of it.
#[derive(Clone, Copy)]
pub(crate) struct Shutdown<'a> {
    latch: &'a Latch,
    running: &'a RunningTransaction,
    volume: &'a Volume,
}

impl<'a> Shutdown<'a> {
    pub(crate) fn new(latch: &'a Latch, running: &'a RunningTransaction, volume: &'a Volume) -> Self {
        Self { latch, running, volume }
    }

    /// Nothing can be changed from now on: an error left it unsure what is on the devices.
    pub(crate) fn close_after(&self, error: &dyn std::error::Error) {
        self.latch.close_after(error);
        self.running.wake();
    }

    /// As [`close_after`](Self::close_after), and nothing is written any more.
    pub(crate) fn stop_writing(&self, error: &dyn std::error::Error) {
        self.close_after(error);
        self.volume.make_read_only();
    }

    /// A panic ended something half-way: nothing is written any more, so that the devices hold what was
    /// durable before.
    pub(crate) fn break_off(&self, what: &'static str) {
        self.stop_writing(&BrokenOff(what));
    }

    /// Nothing can be changed from now on, as was asked for: what was done before is committed.
    pub(crate) fn close_for(&self, reason: ReadOnlyReason) {
        self.latch.close_for(reason);
        self.volume.make_read_only();
        self.running.wake();
    }
}
