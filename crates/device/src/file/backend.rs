//! The engine that serves batches of more than one request.

use vlinder_base::sync::Arc;

use super::host_file::HostFile;
use super::options::{Backend, OpenOptions};
use super::threads::ThreadPool;
#[cfg(feature = "io-uring")]
use super::uring::Uring;
use crate::{DeviceError, DeviceErrorKind, Operation, Request, Ticket};

/// A running backend.
#[derive(Debug)]
pub(super) enum Engine {
    Threads(ThreadPool),
    #[cfg(feature = "io-uring")]
    Uring(Uring),
}

impl Engine {
    pub(super) fn new(host: &Arc<HostFile>, options: &OpenOptions) -> Result<Self, DeviceError> {
        match options.backend {
            Backend::Auto | Backend::Threads => Ok(Engine::Threads(ThreadPool::new())),
            #[cfg(feature = "io-uring")]
            Backend::Uring => Uring::new().map(Engine::Uring).map_err(|error| {
                let errno = error.raw_os_error().unwrap_or_default();
                DeviceError::whole(DeviceErrorKind::Io { errno }, Operation::Open, &host.name)
            }),
            #[cfg(not(feature = "io-uring"))]
            Backend::Uring => {
                let errno = rustix::io::Errno::NOSYS.raw_os_error();
                Err(DeviceError::whole(DeviceErrorKind::Io { errno }, Operation::Open, &host.name))
            }
        }
    }

    pub(super) fn submit(&self, host: &Arc<HostFile>, batch: Vec<Request>) -> Ticket {
        match self {
            Engine::Threads(pool) => pool.submit(host, batch),
            #[cfg(feature = "io-uring")]
            Engine::Uring(uring) => uring.submit(host, batch),
        }
    }
}
