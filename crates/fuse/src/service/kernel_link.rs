//! The way to the kernel: how it is told what it did not ask for, and the threads that may wait for it.

use vlinder_base::sync::{Arc, OnceLock};

use super::aside::{Aside, Job};
use crate::transport::{NodeNumber, Notifier};

/// The connection, as far as the service uses it.
pub(super) struct KernelLink {
    notifier: OnceLock<Arc<dyn Notifier>>,
    aside: Aside,
}

impl KernelLink {
    /// A link without a notifier: nothing is told until there is one.
    ///
    /// # Errors
    /// The system's, where it gives no more threads.
    pub(super) fn start() -> std::io::Result<Self> {
        Ok(Self { notifier: OnceLock::new(), aside: Aside::start()? })
    }

    /// Says how to reach the kernel, once the transport is there.
    pub(super) fn set_notifier(&self, notifier: Arc<dyn Notifier>) {
        // Said twice, the first stays; a mount has one connection.
        let _ = self.notifier.set(notifier);
    }

    /// What tells the kernel. None before the transport is there: then the kernel has nothing cached.
    pub(super) fn notifier(&self) -> Option<&Arc<dyn Notifier>> {
        self.notifier.get()
    }

    /// Has a thread that answers no requests do a job, which may wait for the kernel.
    pub(super) fn run(&self, job: Job) {
        self.aside.run(job);
    }

    /// Has the kernel ask for a file's attributes before it shows them again.
    pub(super) fn attributes_changed(&self, node: NodeNumber) {
        if let Some(notifier) = self.notifier()
            && let Err(error) = notifier.invalidate_attributes(node)
        {
            tracing::warn!(%error, "the kernel could not be told that attributes changed");
        }
    }

    /// Waits until all jobs are done; drops jobs that come later.
    pub(super) fn finish(&self) {
        self.aside.finish();
    }
}
