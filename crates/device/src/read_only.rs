//! A device that can't be written, whatever lies under it.

use vlinder_base::units::Physical;

use crate::{
    Completion, Description, Device, DeviceError, DeviceErrorKind, DeviceExt, Operation, Request, Ticket,
};

/// Passes reads on and refuses writes and discards with [`DeviceErrorKind::ReadOnly`]; a flush has nothing to
/// do.
#[derive(Debug, Clone)]
pub struct ReadOnlyDevice<D> {
    inner: D,
}

impl<D: Device> ReadOnlyDevice<D> {
    /// Wraps a device.
    pub fn new(inner: D) -> Self {
        ReadOnlyDevice { inner }
    }

    /// The wrapped device.
    pub fn into_inner(self) -> D {
        self.inner
    }

    fn refuse(&self, request: Request) -> Completion {
        let error = self.error(
            DeviceErrorKind::ReadOnly,
            request.operation(),
            request.offset(),
            request.length_bytes(),
        );
        request.complete(Err(error))
    }
}

impl<D: Device> Device for ReadOnlyDevice<D> {
    fn describe(&self) -> Description {
        Description { read_only: true, ..self.inner.describe() }
    }

    fn length(&self) -> u64 {
        self.inner.length()
    }

    fn submit(&self, batch: Vec<Request>) -> Ticket {
        if batch.iter().all(|request| matches!(request, Request::Read { .. })) {
            return self.inner.submit(batch);
        }
        // No caller mixes reads with writes that it may not do, so a mixed batch needs no speed.
        let answer = |request| match request {
            Request::Read { .. } => self.inner.submit(vec![request]).wait(),
            Request::Write { .. } => vec![self.refuse(request)],
        };
        Ticket::ready(batch.into_iter().flat_map(answer).collect())
    }

    fn flush(&self) -> Result<(), DeviceError> {
        Ok(())
    }

    fn discard(&self, offset: Physical, length_bytes: u64) -> Result<(), DeviceError> {
        Err(self.error(DeviceErrorKind::ReadOnly, Operation::Discard, offset, length_bytes))
    }
}
