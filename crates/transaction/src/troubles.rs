//! What keeps commits from succeeding, for a caller that asks how the file system fares: the last one that
//! failed, and a host that is full.

use vlinder_base::clock::Timestamp;
use vlinder_base::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use vlinder_base::sync::{Arc, Mutex};
use vlinder_format::Generation;

use crate::EngineError;
use crate::events::COMMIT_EVENTS;

/// A commit that did not make durable all that it was to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FailedCommit {
    /// When the first of a row of equal failures came.
    pub time: Timestamp,
    /// The transaction that was running then.
    pub generation: Generation,
    /// What went wrong, in a sentence.
    pub reason: String,
    /// How many failed for this reason, one after the other.
    pub count: u64,
    /// A later commit made everything durable.
    pub is_over: bool,
}

/// What keeps commits from succeeding, as far as it is known.
///
/// Invariants:
/// 1. The host counts as full from a write that failed for it ([`or_host_full`](Self::or_host_full)) until
///    everything is durable ([`note_all_durable`](Self::note_all_durable)); both are logged once.
/// 2. Failures for one reason, one after the other, are one failure that is counted, until it is over.
#[derive(Default)]
pub struct Troubles {
    failed_commit: Mutex<Option<FailedCommit>>,
    /// The host has no space for a device.
    host_is_full: AtomicBool,
    /// How often that began.
    times_full: AtomicU64,
    /// The name of that device.
    full_device: Mutex<Option<Arc<str>>>,
}

impl Troubles {
    /// The last commit that failed since the file system was opened.
    #[must_use]
    pub fn failed_commit(&self) -> Option<FailedCommit> {
        self.failed_commit.lock().clone()
    }

    /// Keeps what went wrong in a commit, or before it. The log says each reason once as long as no commit
    /// succeeds.
    pub(crate) fn note_failed_commit(&self, reason: String, time: Timestamp, generation: Generation) {
        let mut kept = self.failed_commit.lock();
        match kept.as_mut().filter(|failed| !failed.is_over && failed.reason == reason) {
            Some(failed) => failed.count += 1,
            None => {
                tracing::error!(target: COMMIT_EVENTS, %reason, %generation, "a commit failed; it is tried again");
                *kept = Some(FailedCommit { time, generation, reason, count: 1, is_over: false });
            }
        }
    }

    pub(crate) fn is_host_full(&self) -> bool {
        self.host_is_full.load(Ordering::Relaxed)
    }

    /// How often the host became full: what one such time has learned says nothing of the next.
    #[must_use]
    pub fn times_host_was_full(&self) -> u64 {
        self.times_full.load(Ordering::Relaxed)
    }

    /// The error of a caller that needs room on the host while that is full.
    #[must_use]
    pub fn full_host(&self) -> EngineError {
        EngineError::HostFull { device: self.full_device.lock().clone().unwrap_or_default() }
    }

    /// An error of a write, told as [`EngineError::HostFull`] where it is that; it is so from now on.
    #[must_use]
    pub fn or_host_full(&self, error: EngineError) -> EngineError {
        let EngineError::Volume(failed) = &error else { return error };
        let Some(full) = failed.full_host() else { return error };
        tracing::debug!(target: COMMIT_EVENTS, %failed, "a write waits for space on the host");
        *self.full_device.lock() = Some(Arc::clone(&full.device));
        if !self.host_is_full.swap(true, Ordering::Relaxed) {
            self.times_full.fetch_add(1, Ordering::Relaxed);
            tracing::warn!(
                target: COMMIT_EVENTS,
                device = &*full.device,
                "the host has no space for the image; what was accepted waits in memory, and writers are refused"
            );
        }
        self.full_host()
    }

    /// Everything is durable that was done before.
    pub fn note_all_durable(&self) {
        if self.host_is_full.load(Ordering::Relaxed) {
            self.host_is_full.store(false, Ordering::Relaxed);
            tracing::info!(target: COMMIT_EVENTS, "the host has space for the image again");
        }
        let mut kept = self.failed_commit.lock();
        if let Some(failed) = kept.as_mut().filter(|failed| !failed.is_over) {
            failed.is_over = true;
            tracing::info!(target: COMMIT_EVENTS, failures = failed.count, "commits succeed again");
        }
    }
}
