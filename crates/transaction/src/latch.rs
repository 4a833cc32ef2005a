//! Whether changes are taken, and why not.

use vlinder_base::sync::Mutex;
use vlinder_format::Logical;

use crate::events::LATCH_EVENTS;
use crate::{EngineError, ReadOnlyReason};

/// Why nothing can be changed, once there is a reason.
///
/// Invariants:
/// 1. The first reason stays: what comes after it is a consequence, or matters less.
/// 2. Only [`ReadOnlyReason::Log`] ever goes, when the log was taken up ([`open`](Self::open)), or gives way
///    to a reason that lasts ([`note_missing_group`](Self::note_missing_group)).
pub(crate) struct Latch {
    reason: Mutex<Option<ReadOnlyReason>>,
}

impl Latch {
    pub(crate) fn new(reason: Option<ReadOnlyReason>) -> Self {
        Self { reason: Mutex::new(reason) }
    }

    /// Why nothing can be changed, if so.
    pub(crate) fn reason(&self) -> Option<ReadOnlyReason> {
        self.reason.lock().clone()
    }

    /// An error left it unsure what is on the devices.
    pub(crate) fn close_after(&self, error: &dyn std::error::Error) {
        let mut reason = self.reason.lock();
        if reason.is_none() {
            *reason = Some(ReadOnlyReason::Error(error.to_string()));
            tracing::error!(target: LATCH_EVENTS, %error, "the file system is read-only from now on");
        }
    }

    /// Nothing is changed from now on, as was asked for.
    pub(crate) fn close_for(&self, reason: ReadOnlyReason) {
        self.reason.lock().get_or_insert(reason);
    }

    /// A chunk has no group.
    pub(crate) fn note_missing_group(&self, chunk: Logical) {
        let mut reason = self.reason.lock();
        // A log that waits to be replayed is no reason that lasts.
        if matches!(*reason, None | Some(ReadOnlyReason::Log)) {
            *reason = Some(ReadOnlyReason::MissingGroup(chunk));
        }
    }

    /// The log that had to be replayed before anything else was taken up.
    pub(crate) fn open(&self) {
        *self.reason.lock() = None;
    }

    /// Refuses to go on once an error left it unsure what is on the devices.
    pub(crate) fn check_unbroken(&self) -> Result<(), EngineError> {
        match self.reason() {
            Some(reason @ ReadOnlyReason::Error(_)) => Err(EngineError::ReadOnly { reason }),
            _ => Ok(()),
        }
    }

    /// Refuses to change anything once there is a reason.
    pub(crate) fn check_writable(&self) -> Result<(), EngineError> {
        match self.reason() {
            Some(reason) => Err(EngineError::ReadOnly { reason }),
            None => Ok(()),
        }
    }
}
