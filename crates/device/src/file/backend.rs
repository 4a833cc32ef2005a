//! The engine that serves batches of more than one request.

use vlinder_base::sync::Arc;

use super::host_file::HostFile;
use super::options::{Backend, OpenOptions};
use super::threads::ThreadPool;
use super::uring::Uring;
use crate::{DeviceError, DeviceErrorKind, Operation, Request, Ticket};

/// A running backend.
#[derive(Debug)]
pub(super) enum Engine {
    Threads(ThreadPool),
    Uring(Uring),
}

impl Engine {
    pub(super) fn new(host: &Arc<HostFile>, options: &OpenOptions) -> Result<Self, DeviceError> {
        match options.backend {
            Backend::Auto | Backend::Threads => Ok(Engine::Threads(ThreadPool::new())),
            Backend::Uring => Uring::new().map(Engine::Uring).map_err(|error| {
                let errno = error.raw_os_error().unwrap_or_default();
                DeviceError::whole(DeviceErrorKind::Io { errno }, Operation::Open, &host.name)
            }),
        }
    }

    pub(super) fn submit(&self, host: &Arc<HostFile>, batch: Vec<Request>) -> Ticket {
        match self {
            Engine::Threads(pool) => pool.submit(host, batch),
            Engine::Uring(uring) => uring.submit(host, batch),
        }
    }
}
