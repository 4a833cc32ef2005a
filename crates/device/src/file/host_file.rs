//! The open file of the host, and single requests on it.

use std::os::fd::OwnedFd;

use vlinder_base::sync::Arc;
use vlinder_base::sync::atomic::{AtomicU64, Ordering};
use vlinder_base::units::Physical;

use super::{lock, transfer};
use crate::{Completion, DeviceError, DeviceErrorKind, DeviceKind, Durability, Operation, Request};

/// The open file, shared with the threads that serve it.
#[derive(Debug)]
pub(super) struct HostFile {
    pub(super) descriptor: OwnedFd,
    /// The file below a loop device, locked like the device: others may open that one.
    pub(super) below: Option<OwnedFd>,
    pub(super) name: Arc<str>,
    pub(super) kind: DeviceKind,
    pub(super) read_only: bool,
    /// The host keeps all of it in memory (tmpfs), and does not say so call by call.
    pub(super) lies_in_memory: bool,
    /// A regular file that had a name when it was opened.
    pub(super) has_name: bool,
    pub(super) length: AtomicU64,
}

impl Drop for HostFile {
    fn drop(&mut self) {
        // The lock belongs to the open file, of which a process that is just being started by another thread
        // may have an inherited descriptor until it executes its program: closing ours alone would not
        // release the lock yet. Releasing a lock that was never taken is no error, and nobody could be told
        // of one here.
        for descriptor in std::iter::once(&self.descriptor).chain(&self.below) {
            let _ = lock::unlock(descriptor);
        }
    }
}

impl HostFile {
    pub(super) fn fail(
        &self,
        kind: DeviceErrorKind,
        operation: Operation,
        offset: Physical,
        length_bytes: u64,
    ) -> DeviceError {
        DeviceError::new(kind, operation, &self.name, offset, length_bytes)
    }

    /// What can be refused without asking the system.
    pub(super) fn check(
        &self,
        operation: Operation,
        offset: Physical,
        length_bytes: u64,
    ) -> Result<(), DeviceError> {
        if self.read_only && operation != Operation::Read {
            return Err(self.fail(DeviceErrorKind::ReadOnly, operation, offset, length_bytes));
        }
        let device_length = self.length.load(Ordering::Acquire);
        match offset.0.checked_add(length_bytes) {
            Some(end) if end <= device_length => Ok(()),
            _ => {
                Err(self.fail(DeviceErrorKind::OutOfRange { device_length }, operation, offset, length_bytes))
            }
        }
    }

    pub(super) fn check_request(&self, request: &Request) -> Result<(), DeviceError> {
        self.check(request.operation(), request.offset(), request.length_bytes())
    }

    /// What was flushed is durable only in a file that is still there, and as long as it has to be.
    pub(super) fn check_whole(&self) -> Result<(), DeviceError> {
        if self.kind != DeviceKind::RegularFile {
            return Ok(());
        }
        let fail = |kind| DeviceError::whole(kind, Operation::Flush, &self.name);
        let length_bytes = self.length.load(Ordering::Acquire);
        let status = rustix::fs::fstat(&self.descriptor).map_err(|errno| fail(errno.into()))?;
        let found_bytes = status.st_size.unsigned_abs();
        if found_bytes < length_bytes {
            return Err(fail(DeviceErrorKind::CutShort { found_bytes, length_bytes }));
        }
        if self.has_name && status.st_nlink == 0 {
            return Err(fail(DeviceErrorKind::Removed));
        }
        Ok(())
    }

    /// A write ended in the host's cache ([`transfer::begin_write_back`]).
    pub(super) fn note_written(&self, offset: Physical, length_bytes: u64) {
        if !self.lies_in_memory {
            transfer::begin_write_back(&self.descriptor, offset.0, length_bytes);
        }
    }

    /// Runs one request in the calling thread.
    pub(super) fn run(&self, mut request: Request) -> Completion {
        let result = self.check_request(&request).and_then(|()| {
            let transferred = transfer::run(&self.descriptor, &mut request);
            transferred.map_err(|kind| {
                self.fail(kind, request.operation(), request.offset(), request.length_bytes())
            })
        });
        if let (Ok(()), Request::Write { offset, durability: Durability::Cached, .. }) = (&result, &request) {
            self.note_written(*offset, request.length_bytes());
        }
        request.complete(result)
    }
}
