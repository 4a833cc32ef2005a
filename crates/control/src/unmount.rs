//! Taking a mount away: as root by the system call, else with `fusermount3`.
//!
//! A mount may lie in a directory of another user's, who can put another mount, or a link to one, in its
//! place while its server is talked to. So the directory is held open from before, the mount is known by its
//! number in the kernel's table, and nothing on the way is looked up again.

use std::ffi::OsString;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use rustix::fs::{CWD, Mode, OFlags, ResolveFlags};
use rustix::io::Errno;
use rustix::mount::{MountFlags, UnmountFlags};

use vlinder_base::clock::{Clock as _, SystemClock};
use vlinder_base::thread;

use crate::mounts::MountEntry;

/// How long a use may last that no program means. A process that was forked has its parent's open files until
/// it executes a program, and the kernel lets go of a closed file a moment after close(2).
const BRIEF_USE: Duration = Duration::from_millis(500);
const BUSY_INTERVAL: Duration = Duration::from_millis(10);

/// Why a mount is still there.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refused {
    /// What the system said.
    pub message: String,
    /// It is in use.
    pub is_busy: bool,
}

impl Refused {
    fn by_system(errno: Errno) -> Self {
        let text = io::Error::from(errno).to_string();
        // Without Rust's number behind the system's words.
        let message = text.split(" (os error").next().unwrap_or_default().to_owned();
        Self { message, is_busy: errno == Errno::BUSY }
    }

    /// Whether another mount, or none, is at the place.
    #[must_use]
    pub fn is_replaced(&self) -> bool {
        *self == Self::replaced()
    }

    fn replaced() -> Self {
        Self { message: "something else is there now".to_owned(), is_busy: false }
    }
}

/// A mount, found in the table of mounts, and the directory that it lies in.
#[derive(Debug)]
pub struct HeldMount {
    directory: OwnedFd,
    /// In the directory; `.` for a mount that is the root of all.
    name: OsString,
    mountpoint: PathBuf,
    id: u64,
}

impl HeldMount {
    /// Holds the mount of an entry.
    ///
    /// # Errors
    /// The place can't be looked up, or something else is there.
    pub fn of(entry: &MountEntry) -> Result<Self, Refused> {
        let mountpoint = &entry.mountpoint;
        let (directory, name) = match (mountpoint.parent(), mountpoint.file_name()) {
            (Some(directory), Some(name)) => (directory, name.to_owned()),
            _ => (mountpoint.as_path(), OsString::from(".")),
        };
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        // The table of mounts has no links in its paths: what is one now was put there since.
        let directory =
            match rustix::fs::openat2(CWD, directory, flags, Mode::empty(), ResolveFlags::NO_SYMLINKS) {
                // Sandboxes refuse a call that they don't know by either; a look-up is never refused by them.
                Err(Errno::NOSYS | Errno::PERM) => rustix::fs::openat(CWD, directory, flags, Mode::empty()),
                other => other,
            };
        let directory = directory.map_err(Refused::by_system)?;
        let held = Self { directory, name, mountpoint: mountpoint.clone(), id: entry.id };
        held.root()?;
        Ok(held)
    }

    /// The root of the mount, as a descriptor that no file is read or written by. While it is open the mount
    /// is in use.
    ///
    /// # Errors
    /// What the system said; something else is there by now.
    pub fn root(&self) -> Result<OwnedFd, Refused> {
        // Nothing of the file system itself is asked: its server may be dead, or hostile.
        let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let root = rustix::fs::openat(&self.directory, &self.name, flags, Mode::empty());
        let root = root.map_err(Refused::by_system)?;
        match mount_of(root.as_fd()) {
            Ok(id) if id == self.id => Ok(root),
            Ok(_) => Err(Refused::replaced()),
            Err(error) => Err(Refused { message: error.to_string(), is_busy: false }),
        }
    }

    /// Unmounts; lazily, where that is wanted: it vanishes from the tree now and ends when its last user is
    /// gone. A mount that is in use is asked for again for a moment.
    ///
    /// # Errors
    /// What the system, or the program, said; something else is there by now.
    pub fn unmount(&self, lazily: bool) -> Result<(), Refused> {
        let clock = SystemClock::new();
        loop {
            match self.unmount_at_once(lazily) {
                Err(refused) if refused.is_busy && clock.monotonic() < BRIEF_USE => {
                    thread::sleep(BUSY_INTERVAL);
                }
                ended => return ended,
            }
        }
    }

    fn unmount_at_once(&self, lazily: bool) -> Result<(), Refused> {
        self.unmount_with(if lazily { UnmountFlags::DETACH } else { UnmountFlags::empty() })
    }

    /// Takes the mount out of the tree, and ends what waits for its server with an error.
    ///
    /// # Errors
    /// As [`Self::unmount`].
    pub fn abort(&self) -> Result<(), Refused> {
        self.unmount_with(UnmountFlags::DETACH | UnmountFlags::FORCE)
    }

    fn unmount_with(&self, flags: UnmountFlags) -> Result<(), Refused> {
        drop(self.root()?);
        let place = path_of(self.directory.as_fd()).join(&self.name);
        match rustix::mount::unmount(place, flags | UnmountFlags::NOFOLLOW) {
            Ok(()) => return Ok(()),
            Err(Errno::PERM) => {}
            Err(errno) => return Err(Refused::by_system(errno)),
        }
        // It looks for itself whose the mount is, and acts as the user who calls it.
        let mut program = Command::new("fusermount3");
        program
            .arg("-u")
            .args(flags.contains(UnmountFlags::DETACH).then_some("-z"))
            .arg("--")
            .arg(&self.mountpoint);
        let output = program.output().map_err(|error| Refused {
            message: format!("fusermount3 can't be run: {error}"),
            is_busy: false,
        })?;
        if output.status.success() {
            return Ok(());
        }
        let message = String::from_utf8_lossy(&output.stderr).trim().to_owned();
        Err(Refused { is_busy: message.contains("busy"), message })
    }

    /// Gives the mount these flags and no others.
    ///
    /// # Errors
    /// What the system said; something else is there by now.
    pub fn remount(&self, flags: MountFlags) -> Result<(), Refused> {
        let root = self.root()?;
        rustix::mount::mount_remount(path_of(root.as_fd()), flags, "").map_err(Refused::by_system)
    }
}

/// A descriptor's file as a path that leads to it wherever its names went.
fn path_of(descriptor: BorrowedFd<'_>) -> PathBuf {
    Path::new("/proc/self/fd").join(descriptor.as_raw_fd().to_string())
}

/// The number of the mount that a descriptor's file lies on (proc_pid_fdinfo(5)).
///
/// # Errors
/// What the system said; a kernel that does not tell it.
pub fn mount_of(descriptor: BorrowedFd<'_>) -> io::Result<u64> {
    let path = Path::new("/proc/self/fdinfo").join(descriptor.as_raw_fd().to_string());
    let told = std::fs::read_to_string(path)?;
    let id = told.lines().find_map(|line| line.strip_prefix("mnt_id:")?.trim().parse().ok());
    id.ok_or_else(|| io::Error::other("the kernel does not tell on which mount a file lies"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_place_where_another_mount_or_none_is_now_is_left_alone() {
        let entry = MountEntry::of_path(Path::new("/proc")).unwrap().unwrap();
        let held = HeldMount::of(&entry).unwrap();
        assert!(held.root().is_ok());
        let replaced = MountEntry { id: entry.id + 1_000_000, ..entry.clone() };
        assert_eq!(HeldMount::of(&replaced).unwrap_err(), Refused::replaced());
        let later = HeldMount { id: entry.id + 1_000_000, ..held };
        assert_eq!(later.unmount(false), Err(Refused::replaced()));
        assert_eq!(later.remount(MountFlags::RDONLY), Err(Refused::replaced()));
        assert!(MountEntry::of_path(Path::new("/proc")).unwrap() == Some(entry));
    }
}
