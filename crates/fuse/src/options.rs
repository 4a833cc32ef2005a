//! Mount options: the file system's, the mount's own, and the general ones of mount(8) and FUSE.
//! [`MOUNT_OPTIONS`](crate::MOUNT_OPTIONS) has those of the mount, [`vlinder_fs::OPEN_OPTIONS`] those of the
//! file system.

use rustix::mount::MountFlags;
use vlinder_base::inode_clock::InodeClock;
use vlinder_base::sync::Arc;
use vlinder_base::thread;
use vlinder_fs::{OpenOptions, OptionError, Owners};

/// One thread may be waiting for the disk while other programs ask for what is in memory.
const MIN_DEFAULT_THREADS: usize = 2;
/// A single program needs one thread: the others rest out of the kernel's sight until they are called
/// (`transport/attendance.rs`). So more threads help only where as many requests wait at once; that more than
/// these do has not been shown.
const MAX_DEFAULT_THREADS: usize = 8;

/// How to mount.
#[derive(Clone)]
pub struct MountOptions {
    /// The file system's own.
    pub filesystem: OpenOptions,
    /// Requests answered at a time, at least 1.
    pub threads: usize,
    /// The kernel keeps written pages for a while.
    pub writeback: bool,
    /// The kernel drops set-id bits itself, rather than leave that to the server.
    pub kernel_kills_privileges: bool,
    /// Users other than the one that mounts may use it.
    pub allow_other: bool,
    /// The mount goes when this process dies.
    pub auto_unmount: bool,
    /// What is shown as the mount's source; the first device where there is none.
    pub source: Option<String>,
    /// The part of the shown type behind `fuse.`.
    pub subtype: String,
    /// What the kernel is given.
    pub flags: MountFlags,
    /// Those of the kernel's flags that were asked not to be set; a remount takes them off.
    pub cleared_flags: MountFlags,
    /// Serve the control socket.
    pub control: bool,
    /// SIGTERM, SIGINT and SIGHUP make everything durable and unmount. A mount that is in use vanishes from
    /// the tree and is served until its last user is gone; another signal ends it at once, after one more
    /// commit.
    pub ends_by_signal: bool,
    /// Change the flags of a mount that is there.
    pub remount: bool,
    /// The options that only the file system knows, as they were given.
    pub of_filesystem: Vec<String>,
}

impl MountOptions {
    /// The user who mounts acts as root in the file system (`owners=root`).
    pub(crate) fn acts_as_root(&self) -> bool {
        self.filesystem.owners == Owners::Root
    }

    /// Flags that the options bring with them. A user who acts as root in an image makes set-id programs of
    /// anybody's, and device nodes: they get no rights.
    pub(crate) fn forced_flags(&self) -> MountFlags {
        if self.acts_as_root() { MountFlags::NOSUID | MountFlags::NODEV } else { MountFlags::empty() }
    }

    /// Whether the options go together.
    ///
    /// # Errors
    /// [`OptionError::Excludes`]: others would act as root, too.
    pub fn check(&self) -> Result<(), OptionError> {
        if self.acts_as_root() && self.allow_other {
            return Err(OptionError::Excludes { option: "owners=root", other: "allow_other" });
        }
        Ok(())
    }
}

impl Default for MountOptions {
    fn default() -> Self {
        Self {
            // The kernel stamps files of the mount, too.
            filesystem: OpenOptions {
                clock: Arc::new(InodeClock::beside_the_kernel()),
                ..OpenOptions::default()
            },
            threads: thread::available_parallelism().clamp(MIN_DEFAULT_THREADS, MAX_DEFAULT_THREADS),
            writeback: true,
            kernel_kills_privileges: false,
            allow_other: false,
            auto_unmount: false,
            source: None,
            subtype: "vlinder".to_owned(),
            flags: MountFlags::empty(),
            cleared_flags: MountFlags::empty(),
            control: true,
            ends_by_signal: false,
            remount: false,
            of_filesystem: Vec::new(),
        }
    }
}
