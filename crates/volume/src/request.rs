//! What a volume is asked to read and to write.

use vlinder_device::Data;
use vlinder_format::Logical;

/// Bytes to read, all in one chunk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReadRequest {
    /// First byte.
    pub logical: Logical,
    /// Number of bytes.
    pub length: usize,
}

/// Bytes to write, all in one chunk.
#[derive(Clone, Debug)]
pub struct WriteRequest {
    /// First byte.
    pub logical: Logical,
    /// The bytes; each copy gets the same.
    pub data: Data,
}
