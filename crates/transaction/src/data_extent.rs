//! A piece of data space.

use vlinder_format::Logical;

/// A run of data space.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct DataExtent {
    /// First byte.
    pub logical: Logical,
    /// Bytes.
    pub length: u64,
}
