//! What the kernel says about a loop device, and which of it is expected.

use std::os::fd::OwnedFd;
use std::time::Duration;

use rustix::fs::{Mode, OFlags, SeekFrom};
use rustix::io::Errno;
use vlinder_base::sync::atomic::{AtomicBool, Ordering};
use vlinder_base::sync::{Arc, Mutex};
use vlinder_base::thread;

/// The lines that mean nothing is wrong, after the time stamp. `*` stands for anything, `DEVICE` for the loop
/// device's name with an optional state (`loop0`, `loop0 state E`). From Linux 6.1 to 6.18: scan, first
/// mount, checksum, options, discard, space tree or cache, UUID tree, scrub, last unmount.
const EXPECTED: &[&str] = &[
    "DEVICE: detected capacity change from *",
    "BTRFS: device fsid * devid * transid * /dev/DEVICE (*) scanned by *",
    "BTRFS: device label * devid * transid * /dev/DEVICE scanned by *",
    "BTRFS: device label * devid * transid * /dev/DEVICE (*) scanned by *",
    "BTRFS: device fsid * devid * transid * /dev/DEVICE scanned by *",
    // Two images of one UUID (the same recipe, made twice) are looked at at once by tests that run side by
    // side.
    "BTRFS info: device /dev/DEVICE (*) using temp-fsid *",
    "BTRFS info (device DEVICE): first mount of filesystem *",
    "BTRFS info (device DEVICE): last unmount of filesystem *",
    "BTRFS info (device DEVICE): using * checksum algorithm",
    "BTRFS info (device DEVICE): checking UUID tree",
    "BTRFS info (device DEVICE): turning on *discard",
    "BTRFS info (device DEVICE): auto enabling async discard",
    "BTRFS info (device DEVICE): enabling free space tree",
    "BTRFS info (device DEVICE): using free space tree",
    "BTRFS info (device DEVICE): enabling disk space caching",
    "BTRFS info (device DEVICE): disk space caching is enabled",
    "BTRFS info (device DEVICE): enabling ssd optimizations",
    "BTRFS info (device DEVICE): using spread ssd allocation scheme",
    "BTRFS info (device DEVICE): has skinny extents",
    "BTRFS info (device DEVICE): flagging fs with big metadata feature",
    "BTRFS info (device DEVICE): scrub: started on devid *",
    "BTRFS info (device DEVICE): scrub: finished on devid * with status: 0",
    // What a mount option or a remount asks for.
    "BTRFS info (device DEVICE): setting nodatacow",
    "BTRFS info (device DEVICE): setting nodatasum",
    "BTRFS info (device DEVICE): setting *compression*",
    "BTRFS info (device DEVICE): force * compression*",
    "BTRFS info (device DEVICE): use * compression*",
    "BTRFS info (device DEVICE): disabling tree log",
    "BTRFS info (device DEVICE): disabling log replay at mount time",
    "BTRFS info (device DEVICE): turning on flush-on-commit",
    "BTRFS info (device DEVICE): enabling auto defrag",
    "BTRFS info (device DEVICE): max_inline set to *",
    "BTRFS info (device DEVICE): allowing degraded mounts",
    "BTRFS info (device DEVICE): qgroup scan completed (inconsistency flag cleared)",
    // An image without a free-space tree brings this one warning.
    "BTRFS warning (device DEVICE): space cache v1 is being deprecated and will be removed in a future release, \
     please use -o space_cache=v2",
];

/// Lines that concern any process that was in the kernel at the time.
const ALARMS: &[&str] = &["WARNING:", "BUG:", "kernel BUG", "Oops", "cut here ]", "Call Trace", "refcount_t"];

/// How often a follower looks: the kernel's ring holds what it says in seconds of the worst noise.
const PAUSE: Duration = Duration::from_millis(50);

/// A reader of the kernel's log from a moment on. A thread follows the log as long as this lives, because the
/// kernel overwrites what nobody has read, and others make noise too.
#[derive(Debug)]
pub(crate) struct KernelLog {
    reader: Arc<Mutex<Reader>>,
    /// Tells the follower to end, which it does at its next look.
    ends: Arc<AtomicBool>,
}

/// What was read and not asked for yet.
#[derive(Debug)]
struct Reader {
    descriptor: OwnedFd,
    lines: Vec<String>,
    /// Why lines are missing: overwritten before they were read (EPIPE), or not readable.
    failure: Option<Errno>,
}

impl Reader {
    /// Reads up to the log's end.
    fn catch_up(&mut self) {
        let mut buffer = [0; 8192];
        while self.failure.is_none() {
            match rustix::io::read(&self.descriptor, &mut buffer) {
                Ok(length) => self.lines.extend(message(&buffer[..length])),
                Err(Errno::AGAIN) => return,
                Err(Errno::INTR) => {}
                // What is missing can't be judged: that is a failure, not a clean log.
                Err(errno) => self.failure = Some(errno),
            }
        }
    }
}

impl KernelLog {
    /// Starts at the log's end.
    pub(crate) fn from_now() -> Result<Self, Errno> {
        let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::CLOEXEC;
        let descriptor = rustix::fs::open("/dev/kmsg", flags, Mode::empty())?;
        rustix::fs::seek(&descriptor, SeekFrom::End(0))?;
        let reader = Arc::new(Mutex::new(Reader { descriptor, lines: Vec::new(), failure: None }));
        let ends = Arc::new(AtomicBool::new(false));
        thread::spawn("kernel log", {
            let (reader, ends) = (Arc::clone(&reader), Arc::clone(&ends));
            move || {
                while !ends.load(Ordering::Relaxed) {
                    reader.lock().catch_up();
                    thread::sleep(PAUSE);
                }
            }
        });
        Ok(KernelLog { reader, ends })
    }

    /// The lines since the last call (or the start) that concern one of these devices, and alarms.
    pub(crate) fn lines_about(&mut self, devices: &[String]) -> Result<Vec<String>, Errno> {
        let mut reader = self.reader.lock();
        reader.catch_up();
        if let Some(errno) = reader.failure {
            return Err(errno);
        }
        let concerns = |line: &String| devices.iter().any(|device| concerns(line, device));
        Ok(std::mem::take(&mut reader.lines).into_iter().filter(concerns).collect())
    }
}

impl Drop for KernelLog {
    fn drop(&mut self) {
        self.ends.store(true, Ordering::Relaxed);
    }
}

/// `priority,number,time,flags;text`, then continuation lines that begin with a blank.
fn message(record: &[u8]) -> Option<String> {
    let text = String::from_utf8_lossy(record);
    let (_, text) = text.split_once(';')?;
    text.lines().next().map(str::to_owned)
}

fn concerns(line: &str, device: &str) -> bool {
    let is_named = line.match_indices(device).any(|(start, _)| {
        !line[start + device.len()..].starts_with(|next: char| next.is_ascii_alphanumeric())
    });
    is_named || ALARMS.iter().any(|alarm| line.contains(alarm))
}

/// The lines that are on neither list for any of these devices.
pub(crate) fn unexpected(lines: &[String], devices: &[String], allowed: &[String]) -> Vec<String> {
    let is_expected = |line: &&String| devices.iter().any(|device| is_expected(line, device, allowed));
    lines.iter().filter(|line| !is_expected(line)).cloned().collect()
}

fn is_expected(line: &str, device: &str, allowed: &[String]) -> bool {
    let shown =
        line.split_once(&format!("(device {device} state ")).and_then(|(_, rest)| rest.split_once(')'));
    let name = match shown {
        // M is a remount; E a recorded error or a rescue option, and the lines about a recorded error are on
        // no list.
        Some((states, _)) if states.chars().all(|state| matches!(state, 'E' | 'M')) => {
            format!("{device} state {states}")
        }
        Some(_) => return false,
        None => device.to_owned(),
    };
    let mut patterns = EXPECTED.iter().copied().chain(allowed.iter().map(String::as_str));
    patterns.any(|pattern| matches(&pattern.replace("DEVICE", &name), line))
}

/// True if the text fits the pattern, in which `*` stands for any text.
pub(crate) fn matches(pattern: &str, text: &str) -> bool {
    let mut parts = pattern.split('*');
    let Some(mut rest) = parts.next().and_then(|first| text.strip_prefix(first)) else { return false };
    let mut is_open = false;
    let parts: Vec<&str> = parts.collect();
    for (position, part) in parts.iter().enumerate() {
        is_open = true;
        if position + 1 == parts.len() {
            return rest.ends_with(part);
        }
        match rest.find(part) {
            Some(start) => rest = &rest[start + part.len()..],
            None => return false,
        }
    }
    is_open || rest.is_empty()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patterns_fit_whole_lines() {
        assert!(
            matches("a*c", "abbc") && matches("a*", "a") && matches("abc", "abc") && matches("*b*", "abc")
        );
        assert!(
            !matches("abc", "abcd")
                && !matches("a*c", "abd")
                && !matches("ab", "a")
                && !matches("*x*", "abc")
        );
    }

    #[test]
    fn lines_of_a_sound_mount_are_expected_and_errors_are_not() {
        let sound = "BTRFS info (device loop7): checking UUID tree";
        assert!(is_expected(sound, "loop7", &[]) && !is_expected(sound, "loop8", &[]));
        assert!(is_expected("BTRFS info (device loop7 state E): last unmount of filesystem x", "loop7", &[]));
        for bad in [
            "BTRFS info (device loop7 state EA): last unmount of filesystem x",
            "BTRFS error (device loop7): parent transid verify failed on logical 30441472 mirror 1 wanted 7 found 6",
            "BTRFS warning (device loop7): checksum verify failed",
            "BTRFS info (device loop7): scrub: finished on devid 1 with status: -5",
            "BTRFS info (device loop7): start tree-log replay",
        ] {
            assert!(concerns(bad, "loop7") && !is_expected(bad, "loop7", &[]), "{bad}");
        }
        let allowed = ["BTRFS info (device DEVICE): start tree-log replay".to_owned()];
        assert!(is_expected("BTRFS info (device loop7): start tree-log replay", "loop7", &allowed));
        assert!(!concerns(sound, "loop") && !concerns("BTRFS info (device loop77): x", "loop7"));
        assert!(concerns("WARNING: CPU: 1 PID: 7 at fs/btrfs/disk-io.c:1", "loop7"));
    }
}
