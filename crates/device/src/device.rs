//! The trait, and what can be said with it alone.

use vlinder_base::sync::Arc;
use vlinder_base::units::Physical;

use crate::{Data, DeviceError, DeviceErrorKind, Operation, Request, Ticket};

/// What a device is made of.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum DeviceKind {
    /// A regular file of the host.
    RegularFile,
    /// A block device of the host.
    BlockDevice,
    /// Memory of this process.
    Memory,
    /// Anything else (a simulation, a remote store).
    Other,
}

/// What errors and listings say about a device.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Description {
    /// Its path, or a made-up name.
    pub name: Arc<str>,
    /// True if writes and discards are refused.
    pub read_only: bool,
    /// What it is made of.
    pub kind: DeviceKind,
}

/// A row of bytes that can be read, written, flushed and partly given back.
///
/// All calls may come from several threads at once. Requests that overlap while both are in flight have no
/// order.
pub trait Device: Send + Sync {
    /// Name and nature.
    fn describe(&self) -> Description;

    /// Length in bytes. May change only by the will of this device's owner.
    fn length(&self) -> u64;

    /// Starts all requests of the batch. Each either completes whole or has an error; a range that does not
    /// lie within the device is [`DeviceErrorKind::OutOfRange`] and touches nothing.
    fn submit(&self, batch: Vec<Request>) -> Ticket;

    /// Makes every write durable that completed before this call.
    ///
    /// # Errors
    /// What the system said. After one nothing is known about writes since the last successful flush, and a
    /// later success says nothing about them.
    fn flush(&self) -> Result<(), DeviceError>;

    /// Tells the device that the range's content is no longer needed; reading it gives anything afterwards,
    /// zeros on files and memory.
    ///
    /// # Errors
    /// [`DeviceErrorKind::Unsupported`] where it can't, [`DeviceErrorKind::OutOfRange`],
    /// [`DeviceErrorKind::ReadOnly`], or what the system said.
    fn discard(&self, offset: Physical, length_bytes: u64) -> Result<(), DeviceError>;
}

/// Single requests, for callers that have no batch.
pub trait DeviceExt: Device {
    /// Reads `length_bytes` bytes at `offset`.
    ///
    /// # Errors
    /// The request's own: [`DeviceErrorKind::OutOfRange`], or what the system said.
    fn read_at(&self, offset: Physical, length_bytes: usize) -> Result<Vec<u8>, DeviceError> {
        self.one(Request::read(offset, length_bytes)).map(Data::into_vec)
    }

    /// Writes all of `data` at `offset` into the device's cache.
    ///
    /// # Errors
    /// The request's own: [`DeviceErrorKind::OutOfRange`], [`DeviceErrorKind::ReadOnly`], or what the system
    /// said.
    fn write_at(&self, offset: Physical, data: impl Into<Data>) -> Result<(), DeviceError> {
        self.one(Request::write(offset, data)).map(drop)
    }

    /// Writes all of `data` at `offset`; it survives a power cut when this returns.
    ///
    /// # Errors
    /// The request's own: [`DeviceErrorKind::OutOfRange`], [`DeviceErrorKind::ReadOnly`], or what the system
    /// said.
    fn write_durable_at(&self, offset: Physical, data: impl Into<Data>) -> Result<(), DeviceError> {
        self.one(Request::write_durable(offset, data)).map(drop)
    }

    /// Runs one request to its end and gives its buffer back.
    ///
    /// # Errors
    /// The request's own, or [`DeviceErrorKind::Abandoned`] where nobody finished it.
    fn one(&self, request: Request) -> Result<Data, DeviceError> {
        let (offset, length_bytes, operation) =
            (request.offset(), request.length_bytes(), request.operation());
        match self.submit(vec![request]).wait().pop() {
            Some(completion) => completion.result.map(|()| completion.data),
            None => Err(self.error(DeviceErrorKind::Abandoned, operation, offset, length_bytes)),
        }
    }

    /// True if writes are refused.
    fn is_read_only(&self) -> bool {
        self.describe().read_only
    }

    /// An error that names this device.
    fn error(
        &self,
        kind: DeviceErrorKind,
        operation: Operation,
        offset: Physical,
        length_bytes: u64,
    ) -> DeviceError {
        DeviceError::new(kind, operation, &self.describe().name, offset, length_bytes)
    }

    /// Refuses a range that does not lie within the device.
    ///
    /// # Errors
    /// [`DeviceErrorKind::OutOfRange`].
    fn check_range(
        &self,
        operation: Operation,
        offset: Physical,
        length_bytes: u64,
    ) -> Result<(), DeviceError> {
        let device_length = self.length();
        match offset.0.checked_add(length_bytes) {
            Some(end) if end <= device_length => Ok(()),
            _ => Err(self.error(
                DeviceErrorKind::OutOfRange { device_length },
                operation,
                offset,
                length_bytes,
            )),
        }
    }
}

impl<D: Device + ?Sized> DeviceExt for D {}

impl<D: Device + ?Sized> Device for Arc<D> {
    fn describe(&self) -> Description {
        (**self).describe()
    }
    fn length(&self) -> u64 {
        (**self).length()
    }
    fn submit(&self, batch: Vec<Request>) -> Ticket {
        (**self).submit(batch)
    }
    fn flush(&self) -> Result<(), DeviceError> {
        (**self).flush()
    }
    fn discard(&self, offset: Physical, length_bytes: u64) -> Result<(), DeviceError> {
        (**self).discard(offset, length_bytes)
    }
}
