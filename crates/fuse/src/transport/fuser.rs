//! The transport of the crate `fuser`: `/dev/fuse`, a thread for each request under way.
//!
//! What it can't do: O_TMPFILE, statx (birth times), syncfs, rings. It names a file to the kernel by its
//! inode number, so both are one here.

mod adapter;
mod answers;
mod dispatch;
mod ending;
mod features;
mod notifier;

use std::io;
use std::os::fd::OwnedFd;

use ::fuser::{Config, SessionACL};
use vlinder_base::metrics::Registry;
use vlinder_base::sync::Arc;
use vlinder_base::thread;

use self::adapter::Adapter;
use self::notifier::FuserNotifier;
use super::attendance::Attendance;
use super::locality::Locality;
use super::requests::RequestCounters;
use super::{Notifier, Service, Settings};

/// A connection to the kernel that has said hello.
pub struct FuserTransport<S: Service> {
    session: ::fuser::Session<Adapter<S>>,
    device: OwnedFd,
}

impl<S: Service> FuserTransport<S> {
    /// Says hello on a mounted `/dev/fuse`; requests are counted in the registry.
    ///
    /// # Errors
    /// The kernel is too old, or gone.
    pub fn connect(
        device: OwnedFd,
        service: Arc<S>,
        settings: Settings,
        registry: &Registry,
    ) -> io::Result<Self> {
        let mut config = Config::default();
        config.n_threads = Some(settings.threads);
        // A descriptor for each thread spares them a common lock; where the device can't be opened again,
        // they share.
        config.clone_fd = std::fs::OpenOptions::new().read(true).write(true).open("/dev/fuse").is_ok();
        // The kernel judges which users may use the mount. Fuser's own filter would refuse what the kernel's
        // flusher sends.
        let (requests, locality) = (RequestCounters::new(registry), Locality::new(registry));
        let attendance = Attendance::new(device.try_clone()?, registry);
        let adapter = Adapter { service, settings, requests, locality, attendance };
        let remaining = device.try_clone()?;
        let session = ::fuser::Session::from_fd(adapter, device, SessionACL::All, config)?;
        Ok(Self { session, device: remaining })
    }

    /// What sends the kernel what it did not ask for.
    #[must_use]
    pub fn notifier(&self) -> Arc<dyn Notifier> {
        Arc::new(FuserNotifier::new(self.session.notifier()))
    }

    /// Answers requests until the file system is unmounted.
    ///
    /// # Errors
    /// The connection broke.
    pub fn serve(self) -> io::Result<()> {
        ending::judge(&self.device, self.session.run())
    }
}

/// Serves in threads of its own; the handle gives how it ended.
///
/// # Errors
/// The system gives no more threads.
pub fn spawn<S: Service>(transport: FuserTransport<S>) -> io::Result<thread::JoinHandle<io::Result<()>>> {
    thread::try_spawn("fuse", move || transport.serve())
}
