//! What a commit has frozen and a superblock does not name yet.

use vlinder_format::Logical;
use vlinder_format::device::DeviceItem;
use vlinder_format::superblock::Superblock;

/// What a commit writes. It is immutable: where the host has no space for it, the next commit begins with it.
pub(crate) struct Unpublished {
    /// Addresses of the frozen blocks, sorted.
    pub(crate) blocks: Vec<Logical>,
    pub(crate) superblock: Superblock,
    pub(crate) device_items: Vec<DeviceItem>,
}
