//! Where a block group lies.

use vlinder_format::Logical;

/// A block group's place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GroupRange {
    /// The first address.
    pub start: Logical,
    /// Bytes.
    pub length: u64,
}

impl GroupRange {
    /// The first address behind the group.
    pub fn end(&self) -> u64 {
        self.start.0 + self.length
    }
}
