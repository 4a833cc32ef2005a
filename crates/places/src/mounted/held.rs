//! A path in an image that a mount holds, as that mount shows it.
//!
//! The mount may be another user's, and lie in a directory of that user's, who can put a link or another
//! directory in the place of each name that leads to the mount. So the mount's root is found by its number in
//! the kernel's table, the path is followed from there, and what was found is used by its directory's
//! descriptor: no name above the mount is looked up again, and none inside leads out.

use std::ffi::{OsStr, OsString};
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;
use vlinder_control::MountEntry;
use vlinder_control::unmount::HeldMount;

use super::inside::{self, Lookup};
use crate::failure::{Failure, Kind};
use crate::place::{Location, locate};
use crate::target::Follow;

/// A name in a directory that is held.
pub struct HeldPath {
    directory: OwnedFd,
    /// `.` for the mount's root.
    name: OsString,
    /// In messages and for requests.
    shown: PathBuf,
}

impl HeldPath {
    /// Follows a path from the root of a mount. Its symbolic links lead nowhere outside, and no other mount
    /// is entered.
    ///
    /// # Errors
    /// The path leads nowhere; something else is where the mount was.
    pub fn of(mount: &MountEntry, path: &[u8], follow: Follow) -> Result<Self, Failure> {
        let root = HeldMount::of(mount).and_then(|held| held.root());
        let root = root.map_err(|refused| {
            Failure::new(Kind::Busy, refused.message).hint("it was moved or unmounted meanwhile: try again")
        })?;
        Self::below(&root, &mount.mountpoint, path, follow).map_err(|errno| {
            // The mount decides what helps, and the caller knows how its user wrote the path.
            Failure { place: None, ..Failure::host(&errno.into(), mount.mountpoint.display()) }
        })
    }

    fn below(root: &OwnedFd, mountpoint: &Path, path: &[u8], follow: Follow) -> rustix::io::Result<Self> {
        let lookup = if follow == Follow::No { Lookup::Name } else { Lookup::Target };
        let found = inside::open(root, path, lookup)?;
        let (top, whole) = (link_of(root)?, link_of(&found)?);
        let inner = whole.strip_prefix(&top).map_err(|_| Errno::NOENT)?;
        let shown = mountpoint.join(inner);
        let (above, name) = match (inner.parent(), inner.file_name()) {
            (Some(above), Some(name)) => (above, name.to_owned()),
            _ => (Path::new(""), OsString::from(".")),
        };
        let above = if above.as_os_str().is_empty() { Path::new(".") } else { above };
        let directory = inside::open(root, above.as_os_str().as_bytes(), Lookup::PlainDirectory)?;
        Ok(Self { directory, name, shown })
    }

    /// Where it lies, as the table of mounts shows the mount.
    pub fn shown(&self) -> &Path {
        &self.shown
    }

    /// A path that leads to it by the descriptor.
    pub fn path(&self) -> PathBuf {
        Path::new("/proc/self/fd").join(self.directory.as_raw_fd().to_string()).join(&self.name)
    }

    /// Where it lies, for verbs that walk.
    ///
    /// # Errors
    /// The directory can't be opened.
    pub fn location(&self) -> Result<Location, Failure> {
        let above = self.shown.parent().unwrap_or(Path::new("/"));
        let above = if self.name == "." { self.shown.as_path() } else { above };
        locate::in_host_directory(&self.directory, above, self.name.as_bytes())
    }

    /// A name in this directory; none where it is no directory.
    pub fn enter(self, name: &[u8]) -> Option<Self> {
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let directory = rustix::fs::openat(&self.directory, &self.name, flags, Mode::empty()).ok()?;
        let name = OsStr::from_bytes(name);
        Some(Self { directory, name: name.to_owned(), shown: self.shown.join(name) })
    }
}

/// Where a descriptor's file lies, by the names that the kernel has for it.
fn link_of(descriptor: &OwnedFd) -> rustix::io::Result<PathBuf> {
    let shown = format!("/proc/self/fd/{}", descriptor.as_raw_fd());
    let text = rustix::fs::readlink(shown, Vec::new())?;
    Ok(PathBuf::from(OsStr::from_bytes(text.as_bytes())))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_is_followed_from_the_right_mount_and_stays_in_it() {
        let mut mount = MountEntry::of_path(Path::new("/proc")).unwrap().unwrap();
        // Containers have mounts of their own in other parts of it.
        let (directory, own) =
            (format!("/proc/{}", std::process::id()), std::fs::read("/proc/self/comm").unwrap());
        let held = HeldPath::of(&mount, b"self/comm", Follow::Yes).unwrap();
        assert_eq!(held.shown(), Path::new(&directory).join("comm"));
        assert_eq!(std::fs::read(held.path()).unwrap(), own);
        assert!(held.location().unwrap().look().unwrap().is_some());
        let below = HeldPath::of(&mount, b"self", Follow::Yes).unwrap().enter(b"comm").unwrap();
        assert_eq!(std::fs::read(below.path()).unwrap(), own);
        let root = HeldPath::of(&mount, b"/", Follow::Yes).unwrap();
        assert!(root.path().join("version").exists() && root.location().unwrap().look().unwrap().is_some());
        // Neither a way up nor a link leads out, and another mount is not entered.
        assert!(HeldPath::of(&mount, b"../etc/passwd", Follow::Yes).is_err());
        assert!(HeldPath::of(&mount, b"self/root/etc", Follow::Yes).is_err());
        let missing = HeldPath::of(&mount, b"/no/such", Follow::Yes).err().unwrap();
        assert_eq!(missing.place, None, "the caller names it");
        // Something else lies there by now.
        mount.id += 1_000_000;
        assert!(HeldPath::of(&mount, b"version", Follow::Yes).is_err());
    }
}
