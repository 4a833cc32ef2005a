//! Commits that failed, and a full host, as the engine tells of them.

use crate::EngineError;
use crate::engine::Engine;
use crate::troubles::FailedCommit;

impl Engine {
    /// The last commit that failed since the file system was opened.
    #[must_use]
    pub fn failed_commit(&self) -> Option<FailedCommit> {
        self.troubles.failed_commit()
    }

    /// Keeps what went wrong in a commit, or before it in writing out what it was to make durable. The log
    /// says each reason once as long as no commit succeeds.
    pub fn note_failed_commit(&self, error: &dyn std::error::Error) {
        self.troubles.note_failed_commit(error.to_string(), self.clock().now(), self.generation());
    }

    /// Whether the host has no space for the image. From a write that failed so until everything is durable.
    /// A file system that an error made read-only waits for no space.
    #[must_use]
    pub fn is_host_full(&self) -> bool {
        self.troubles.is_host_full() && self.latch.check_unbroken().is_ok()
    }

    /// How often the host became full: what one such time has learned says nothing of the next.
    #[must_use]
    pub fn times_host_was_full(&self) -> u64 {
        self.troubles.times_host_was_full()
    }

    /// The error of a caller that needs room on the host while that is full.
    #[must_use]
    pub fn full_host(&self) -> EngineError {
        self.troubles.full_host()
    }

    /// An error of a write, told as [`EngineError::HostFull`] where it is that; it is so from now on.
    #[must_use]
    pub fn or_host_full(&self, error: EngineError) -> EngineError {
        self.troubles.or_host_full(error)
    }

    /// Everything is durable that was done before.
    pub fn note_all_durable(&self) {
        self.troubles.note_all_durable();
    }
}
