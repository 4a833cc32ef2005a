//! What can go wrong with a mount.

use std::io;
use std::path::PathBuf;

use rustix::io::Errno;
use vlinder_control::server::ServerError;
use vlinder_fs::{FsError, InodeId, OptionError};

/// A mount that can't be made, or did not end well.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum MountError {
    /// A mount option is unknown or has a bad value.
    #[error(transparent)]
    Option(#[from] OptionError),
    /// The file system can't be opened, or its last commit failed.
    #[error(transparent)]
    Filesystem(#[from] FsError),
    /// What the mount would show at its top can't be read.
    #[error(
        "the root directory of the mount ({root}) can't be read: {source}; keep the image as it is, look at it with \
         vlinder check, and mount another subvolume with -o subvol= or subvolid= to reach what is in that"
    )]
    Root {
        /// The directory.
        root: InodeId,
        /// Why.
        source: FsError,
    },
    /// An error stopped the file system while it was mounted.
    #[error(
        "not everything that was written is durable: {reason}; run vlinder check on the image before it is used again"
    )]
    NotDurable {
        /// What happened.
        reason: String,
    },
    /// There is no place to mount at.
    #[error("{} can't be a mount point: {source}; give a directory that is there", .path.display())]
    Mountpoint {
        /// The place.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// The kernel's FUSE can't be reached.
    #[error(
        "/dev/fuse can't be opened: {errno}; load the kernel's module fuse (modprobe fuse), and see that you may read and write /dev/fuse"
    )]
    Device {
        /// Why.
        errno: Errno,
    },
    /// The system call was refused.
    #[error("mounting at {} failed: {errno}; {}", .mountpoint.display(), advice_on_mounting(*.errno))]
    Refused {
        /// Where.
        mountpoint: PathBuf,
        /// Why.
        errno: Errno,
    },
    /// The program that mounts for ordinary users failed.
    #[error("fusermount3 did not mount at {}: {message}; {}", .mountpoint.display(), .cause.advice())]
    Helper {
        /// Where.
        mountpoint: PathBuf,
        /// What it said.
        message: String,
        /// What that means.
        cause: HelperCause,
    },
    /// The flags of a mount can't be changed.
    #[error("{} can't be remounted: {reason}; {goes_on}", .mountpoint.display())]
    Remount {
        /// Where.
        mountpoint: PathBuf,
        /// Why.
        reason: String,
        /// What the mount is like now.
        goes_on: &'static str,
        /// What to do about it, where that is known.
        advice: Option<String>,
    },
    /// The mount can't be undone.
    #[error("{} can't be unmounted: {message}; {}", .mountpoint.display(), advice_on_unmounting(*.is_busy))]
    Unmount {
        /// Where.
        mountpoint: PathBuf,
        /// What the system said.
        message: String,
        /// It is in use.
        is_busy: bool,
    },
    /// The transport to the kernel broke.
    #[error(
        "the connection to the kernel through /dev/fuse failed: {source}; what was synced before is durable: unmount what is left of the mount, and mount again"
    )]
    Transport {
        /// Why.
        source: io::Error,
    },
    /// The threads that serve a mount can't be started.
    #[error("the system gives no more threads: {source}; raise the limit of processes (ulimit -u, pids.max)")]
    NoThreads {
        /// What the system said.
        source: io::Error,
    },
    /// There are too few descriptors to make a mount and take it away again.
    #[error("the system gives no more descriptors: {source}; raise the limit of open files (ulimit -n)")]
    NoDescriptors {
        /// What the system said.
        source: io::Error,
    },
    /// There is no process to watch over the mount.
    #[error(
        "auto_unmount needs the program sh, which can't be run: {source}; install it, or mount without that option"
    )]
    Watcher {
        /// Why.
        source: io::Error,
    },
    /// The control socket can't be made.
    #[error(transparent)]
    Control(#[from] ServerError),
    /// Signals can't be caught.
    #[error(
        "the server of the mount can't catch signals: {source}; end it with vlinder umount alone, or mount again"
    )]
    Signals {
        /// Why.
        source: io::Error,
    },
}

/// Why `fusermount3` did not mount, as far as its words tell.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HelperCause {
    /// It is not installed.
    Missing,
    /// `allow_other` is not for ordinary users here.
    AllowOther,
    /// The directory is not the user's to mount on.
    Directory,
    /// It may not look at the directory: it lies on, or is, a FUSE mount without `allow_other`.
    Unreachable,
    /// There is no `/dev/fuse`.
    NoDevice,
    /// The user may not open `/dev/fuse`.
    Device,
    /// The kernel does not let it mount.
    Powerless,
    /// Ordinary users have as many mounts as they may.
    TooMany,
    /// Something else.
    Other,
}

impl HelperCause {
    /// What the words of `fusermount3` mean (those of fuse 3.14); the first that are found count.
    pub(crate) fn of(said: &str) -> Self {
        const WORDS: [(&str, HelperCause); 9] = [
            ("user_allow_other", HelperCause::AllowOther),
            ("no write access to mountpoint", HelperCause::Directory),
            ("not owned by user", HelperCause::Directory),
            ("failed to access mountpoint", HelperCause::Unreachable),
            ("fuse device not found", HelperCause::NoDevice),
            ("/dev/fuse: Permission denied", HelperCause::Device),
            ("/dev/fuse", HelperCause::NoDevice),
            ("mount failed: Operation not permitted", HelperCause::Powerless),
            ("too many FUSE filesystems", HelperCause::TooMany),
        ];
        let found = WORDS.iter().find(|(words, _)| said.contains(words));
        found.map_or(Self::Other, |(_, cause)| *cause)
    }

    /// What helps.
    #[must_use]
    pub const fn advice(self) -> &'static str {
        match self {
            Self::Missing => "install fusermount3 (package fuse3), or mount as root",
            Self::AllowOther => {
                "as root, put the line user_allow_other into /etc/fuse.conf; or mount without allow_other"
            }
            Self::Directory => "mount on a directory that is yours and that you may write to",
            Self::Unreachable => {
                "unmount what is there, if it is a mount of FUSE; or mount on a directory outside of such mounts"
            }
            Self::NoDevice => "as root, load the kernel's module fuse: modprobe fuse",
            Self::Device => "as root, let everybody open the device: chmod 666 /dev/fuse",
            Self::Powerless => {
                "see that fusermount3 is set-user-id root (as root: chmod u+s), and that a container may mount at all"
            }
            Self::TooMany => "unmount one of the others; or as root, raise mount_max in /etc/fuse.conf",
            Self::Other => {
                "see that fusermount3 (package fuse3) is set-user-id root, that /dev/fuse is yours to use, and that the directory is yours"
            }
        }
    }
}

fn advice_on_mounting(errno: Errno) -> &'static str {
    match errno {
        Errno::PERM | Errno::ACCESS => {
            "mount as root, or as the owner of the directory with fusermount3 (package fuse3) installed"
        }
        Errno::NODEV => "load the kernel's module fuse (modprobe fuse)",
        Errno::NOENT | Errno::NOTDIR => "give a directory that is there",
        Errno::BUSY => "unmount what is there, or choose another directory",
        _ => "see the kernel's log (dmesg), and try without mount options of your own",
    }
}

fn advice_on_unmounting(is_busy: bool) -> &'static str {
    if is_busy {
        "end or move the programs that use it (fuser -vm, lsof), and try again"
    } else {
        "see that it is a mount of yours, or unmount as root"
    }
}
