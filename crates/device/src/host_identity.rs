//! What tells a file or block device of the host from all others.

use rustix::fs::Stat;

/// Device and inode number of a file, and the device's own number if the file is a device node.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct HostIdentity {
    /// st_dev: the file system that holds the file.
    pub file_system: u64,
    /// st_ino.
    pub inode: u64,
    /// st_rdev: the number of a device node, 0 on other files.
    pub device_number: u64,
}

impl HostIdentity {
    /// From stat(2).
    pub fn of(status: &Stat) -> Self {
        HostIdentity { file_system: status.st_dev, inode: status.st_ino, device_number: status.st_rdev }
    }
}
