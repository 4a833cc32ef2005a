//! Requests of a batch, and what comes back for each.

use std::fmt;

use vlinder_base::buffers;
use vlinder_base::sync::Arc;
use vlinder_base::units::Physical;

use crate::{DeviceError, Operation};

/// The bytes of a request: owned by it, or shared with others that keep them (a cached block).
#[derive(Clone)]
pub enum Data {
    /// Bytes that belong to the request and come back with its completion.
    Owned(Vec<u8>),
    /// Bytes shared with others.
    Shared(Arc<[u8]>),
    /// Bytes inside a shared value, such as a frozen tree block. `as_ref` must give the same bytes each time.
    Inside(Arc<dyn AsRef<[u8]> + Send + Sync>),
}

impl Data {
    /// The bytes.
    pub fn as_slice(&self) -> &[u8] {
        match self {
            Data::Owned(bytes) => bytes,
            Data::Shared(bytes) => bytes,
            Data::Inside(value) => (**value).as_ref(),
        }
    }

    /// The bytes as a vector; copies them if they are shared.
    pub fn into_vec(self) -> Vec<u8> {
        match self {
            Data::Owned(bytes) => bytes,
            other => other.as_slice().to_vec(),
        }
    }
}

impl fmt::Debug for Data {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "Data({} bytes)", self.as_slice().len())
    }
}

impl From<Vec<u8>> for Data {
    fn from(bytes: Vec<u8>) -> Self {
        Data::Owned(bytes)
    }
}

impl From<&[u8]> for Data {
    fn from(bytes: &[u8]) -> Self {
        Data::Owned(bytes.to_vec())
    }
}

impl From<Arc<[u8]>> for Data {
    fn from(bytes: Arc<[u8]>) -> Self {
        Data::Shared(bytes)
    }
}

/// When a write counts as done.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Durability {
    /// When the device's cache has it; a later flush makes it durable.
    Cached,
    /// When it survives a power cut (FUA, or the write and a flush). Says nothing about other writes.
    Durable,
}

/// One request of a batch.
#[derive(Debug, Clone)]
pub enum Request {
    /// Fill the whole buffer from the device.
    Read {
        /// First byte on the device.
        offset: Physical,
        /// Its length is the number of bytes to read; it comes back with the completion.
        buffer: Vec<u8>,
    },
    /// Put all of the data on the device.
    Write {
        /// First byte on the device.
        offset: Physical,
        /// What to write.
        data: Data,
        /// When it counts as done.
        durability: Durability,
    },
}

impl Request {
    /// A read of `length_bytes` into a new buffer, or one that a tree block gave back.
    pub fn read(offset: Physical, length_bytes: usize) -> Self {
        Request::Read { offset, buffer: buffers::zeroed(length_bytes).into_vec() }
    }

    /// A read of `length_bytes` into a buffer that was used before, whatever it holds.
    pub fn read_into(offset: Physical, length_bytes: usize, mut buffer: Vec<u8>) -> Self {
        buffer.resize(length_bytes, 0);
        Request::Read { offset, buffer }
    }

    /// A cached write.
    pub fn write(offset: Physical, data: impl Into<Data>) -> Self {
        Request::Write { offset, data: data.into(), durability: Durability::Cached }
    }

    /// A durable write.
    pub fn write_durable(offset: Physical, data: impl Into<Data>) -> Self {
        Request::Write { offset, data: data.into(), durability: Durability::Durable }
    }

    /// First byte on the device.
    pub fn offset(&self) -> Physical {
        match self {
            Request::Read { offset, .. } | Request::Write { offset, .. } => *offset,
        }
    }

    /// Number of bytes.
    pub fn length_bytes(&self) -> u64 {
        let length = match self {
            Request::Read { buffer, .. } => buffer.len(),
            Request::Write { data, .. } => data.as_slice().len(),
        };
        length as u64
    }

    /// What an error of this request names.
    pub fn operation(&self) -> Operation {
        match self {
            Request::Read { .. } => Operation::Read,
            Request::Write { .. } => Operation::Write,
        }
    }

    /// The completion of this request, with its buffer.
    pub fn complete(self, result: Result<(), DeviceError>) -> Completion {
        let data = match self {
            Request::Read { buffer, .. } => Data::Owned(buffer),
            Request::Write { data, .. } => data,
        };
        Completion { data, result }
    }
}

/// The answer to one request.
#[derive(Debug, Clone)]
pub struct Completion {
    /// The request's buffer. After a failed read its content means nothing.
    pub data: Data,
    /// Done whole, or failed. A failed write may have changed any part of its range.
    pub result: Result<(), DeviceError>,
}

impl Completion {
    /// The bytes read, or the error.
    ///
    /// # Errors
    /// The request's.
    pub fn into_bytes(self) -> Result<Vec<u8>, DeviceError> {
        let Completion { data, result } = self;
        result.map(|()| data.into_vec())
    }
}
