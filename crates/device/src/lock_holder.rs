//! The process that keeps a file or block device locked.

use std::fmt;

use rustix::fs::{Stat, major, minor};

/// The process that keeps a device locked.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LockHolder {
    /// Its process id.
    pub process_id: u32,
    /// Its command name, as `/proc/PID/comm` shows it.
    pub command: String,
}

impl fmt::Display for LockHolder {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "process {} ({})", self.process_id, self.command)
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
