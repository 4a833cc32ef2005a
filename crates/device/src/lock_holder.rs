//! The process that keeps a file or block device locked.

use std::fmt;
use std::fs;
use std::path::Path;

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

/// The process that has a lock of an open file on this file, as far as /proc tells: `/proc/locks` names no
/// process for such locks, but `/proc/PID/fdinfo` shows those of each descriptor to root and to the process's
/// own user. (The kernel alone makes it: the file system that a descriptor leads to is not asked.)
pub(crate) fn lock_holder(status: &Stat) -> Option<LockHolder> {
    let wanted = format!("{:02x}:{:02x}:{}", major(status.st_dev), minor(status.st_dev), status.st_ino);
    let locks = fs::read_to_string("/proc/locks").unwrap_or_default();
    if !locks.lines().any(|line| is_lock_line(line, &wanted)) {
        return None;
    }
    for process in fs::read_dir("/proc").ok()?.flatten() {
        let Some(process_id) = process.file_name().to_str().and_then(|name| name.parse().ok()) else {
            continue;
        };
        if has_lock(&process.path(), &wanted) {
            let command = fs::read_to_string(process.path().join("comm")).unwrap_or_default();
            return Some(LockHolder { process_id, command: command.trim_end().to_owned() });
        }
    }
    None
}

/// Whether a descriptor of the process at this path in /proc has the lock.
fn has_lock(process: &Path, wanted: &str) -> bool {
    let descriptors = fs::read_dir(process.join("fdinfo")).into_iter().flatten().flatten();
    descriptors.map(|descriptor| fs::read_to_string(descriptor.path()).unwrap_or_default()).any(|shown| {
        shown.lines().filter_map(|line| line.strip_prefix("lock:")).any(|line| is_lock_line(line, wanted))
    })
}

/// `1: OFDLCK ADVISORY  WRITE -1 08:01:5678 0 EOF`; lines of waiters have `->` after the number.
fn is_lock_line(line: &str, wanted: &str) -> bool {
    let fields: Vec<&str> = line.split_whitespace().collect();
    matches!(fields.as_slice(), [_, "OFDLCK", _, _, _, place, ..] if *place == wanted)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn locks_of_open_files_are_told_from_others() {
        assert!(is_lock_line("\t1: OFDLCK ADVISORY  WRITE -1 08:01:5678 0 EOF", "08:01:5678"));
        assert!(is_lock_line("3: OFDLCK ADVISORY  READ -1 08:01:5678 0 EOF", "08:01:5678"));
        for other in [
            "1: FLOCK  ADVISORY  WRITE 12 08:01:5678 0 EOF",
            "1: -> OFDLCK ADVISORY  WRITE -1 08:01:5678 0 EOF",
            "1: OFDLCK ADVISORY  WRITE -1 08:01:567 0 EOF",
            "",
        ] {
            assert!(!is_lock_line(other, "08:01:5678"), "{other}");
        }
    }
}
