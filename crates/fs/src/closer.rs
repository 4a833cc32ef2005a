//! The end of a file system: what the last handle of a caller does when it goes.

use vlinder_base::sync::Arc;
use vlinder_transaction::COMMIT_EVENTS;

use crate::maintenance::Maintenance;

/// Commits when the last handle of a caller is dropped.
pub(crate) struct Closer(Arc<Maintenance>);

impl Closer {
    pub(crate) fn new(maintenance: Arc<Maintenance>) -> Self {
        Self(maintenance)
    }
}

impl Drop for Closer {
    fn drop(&mut self) {
        // The next opener of the image must find nobody at work on it.
        self.0.store().background().stop();
        if !self.0.store().is_read_only()
            && let Err(error) = self.0.sync()
        {
            tracing::error!(target: COMMIT_EVENTS, %error, "the last commit failed");
        }
    }
}
