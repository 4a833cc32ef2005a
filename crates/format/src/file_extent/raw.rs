//! The two parts of a file extent that have a fixed size.

use super::compression_id::CompressionId;
use crate::record::record;
use crate::types::{Generation, Logical};

/// Bytes before the data of an inline extent.
pub const INLINE_HEADER_SIZE: usize = ExtentHeader::SIZE;
/// Bytes of a regular or preallocated extent's item.
pub const REGULAR_SIZE: usize = 53;
const _: () = assert!(REGULAR_SIZE == ExtentHeader::SIZE.saturating_add(ExtentLocation::SIZE));

record! {
    /// What every extent begins with.
    #[derive(Clone, Copy)]
    pub struct ExtentHeader in RawExtentHeader, 21 bytes {
        /// The transaction that made the extent.
        generation: Generation,
        /// Its length uncompressed.
        ram_bytes: u64,
        /// How it is compressed.
        compression: CompressionId,
        /// Always 0.
        encryption: u8,
        /// Always 0.
        other_encoding: u16,
        /// Inline, regular or preallocated.
        extent_type: u8,
    }
}

record! {
    /// Where an extent lies that is not inline.
    #[derive(Clone, Copy)]
    pub struct ExtentLocation in RawExtentLocation, 32 bytes {
        /// Where it begins.
        disk_bytenr: Logical,
        /// Its length on disk.
        disk_num_bytes: u64,
        /// Where the run begins in it.
        offset: u64,
        /// The run's length.
        num_bytes: u64,
    }
}
