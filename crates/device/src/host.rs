//! What the host's system knows about a file or block device besides its bytes: who locks it.

use rustix::fs::{Stat, major, minor};

use crate::LockHolder;

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

/// The process that holds a flock on this file, as far as /proc tells.
pub(crate) fn lock_holder(status: &Stat) -> Option<LockHolder> {
    let locks = std::fs::read_to_string("/proc/locks").ok()?;
    let wanted = format!("{:02x}:{:02x}:{}", major(status.st_dev), minor(status.st_dev), status.st_ino);
    let process_id = locks.lines().find_map(|line| parse_lock_line(line, &wanted))?;
    let command = std::fs::read_to_string(format!("/proc/{process_id}/comm")).unwrap_or_default();
    Some(LockHolder { process_id, command: command.trim_end().to_owned() })
}

/// `1: FLOCK  ADVISORY  WRITE 1234 08:01:5678 0 EOF`; lines of waiters have `->` after the number.
fn parse_lock_line(line: &str, wanted: &str) -> Option<u32> {
    let fields: Vec<&str> = line.split_whitespace().collect();
    match fields.as_slice() {
        [_, "FLOCK", _, _, process_id, place, ..] if *place == wanted => process_id.parse().ok(),
        _ => None,
    }
}
