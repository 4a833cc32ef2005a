//! Which engine serves batches of more than one request.

use vlinder_base::sync::Arc;

use super::threads::ThreadPool;
use super::uring::Uring;
use super::{HostFile, OpenOptions};
use crate::{DeviceError, DeviceErrorKind, Operation, Request, Ticket};

/// What serves batches of more than one request.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum Backend {
    /// Threads: on cached data they are as fast as io_uring or faster (16 KiB blocks, two cores), and behind it by a
    /// sixth on cold random reads only; and no sandbox forbids them.
    #[default]
    Auto,
    /// A small pool of threads with positioned reads and writes.
    Threads,
    /// io_uring; opening fails where the kernel refuses it.
    Uring,
}

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
