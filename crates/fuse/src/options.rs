//! Mount options: the file system's, the mount's own, and the general ones of mount(8) and FUSE.
//!
//! | option | meaning |
//! |---|---|
//! | those of `vlinder_fs::OpenOptions` | the file system's |
//! | `threads=N` | requests answered at a time |
//! | `writeback=on`, `writeback=off` | the kernel keeps written pages for a while, or hands each write over at once |
//! | `killpriv=server`, `killpriv=kernel` | who drops set-id bits when a file changes: with `kernel` a chown through an overlay keeps them |
//! | `transport=fuse` | how requests arrive (the only way so far) |
//! | `allow_other` | not only the one who mounts may use it |
//! | `default_permissions` | always on |
//! | `auto_unmount` | the mount goes when this process dies |
//! | `fsname=`, `subtype=` | how it is shown in the table of mounts |
//! | `suid`, `dev`, `exec`, `sync`, `dirsync` and their opposites, `*atime` | handed to the kernel |
//! | `user`, `users`, `owner`, `group` (and `no…`) | for mount(8); the first four imply `nosuid,nodev`, `user` and `users` `noexec` |
//! | `remount` | a mount that is there is made read-only or writable, or gets other flags of the kernel; see [`remount`](crate::remount()) |
//! | `defaults`, `auto`, `noauto`, `nofail`, `loop`, `_netdev`, `x-…`, `comment=` | for others; without effect (an image needs no loop device) |

use rustix::mount::MountFlags;
use vlinder_base::inode_clock::InodeClock;
use vlinder_base::sync::Arc;
use vlinder_base::thread;
use vlinder_fs::{OpenOptions, OptionError};

/// One thread may be waiting for the disk while other programs ask for what is in memory.
const LEAST_DEFAULT_THREADS: usize = 2;
/// A single program needs one thread: the others rest out of the kernel's sight until they are called
/// (`transport/attendance.rs`). So more threads help only where as many requests wait at once; that more than
/// these do has not been shown.
const MOST_DEFAULT_THREADS: usize = 8;

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

impl Default for MountOptions {
    fn default() -> Self {
        Self {
            // The kernel stamps files of the mount, too.
            filesystem: OpenOptions {
                clock: Arc::new(InodeClock::beside_the_kernel()),
                ..OpenOptions::default()
            },
            threads: thread::available_parallelism().clamp(LEAST_DEFAULT_THREADS, MOST_DEFAULT_THREADS),
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

impl MountOptions {
    /// The options of a list as mount(8) takes it. A comma inside of a value is written `\,`.
    ///
    /// # Errors
    /// An unknown name or a bad value.
    pub fn parse(list: &str) -> Result<Self, OptionError> {
        let mut options = Self::default();
        let list = split(list);
        options.remount = list.iter().any(|option| option == "remount");
        for option in list {
            options.apply(&option)?;
        }
        Ok(options)
    }

    /// Applies one option, `name` or `name=value`.
    ///
    /// # Errors
    /// An unknown name or a bad value.
    pub fn apply(&mut self, option: &str) -> Result<(), OptionError> {
        let (name, value) = match option.split_once('=') {
            Some((name, value)) => (name, Some(value)),
            None => (option, None),
        };
        let known = match value {
            None => self.apply_flag(name),
            Some(value) => self.apply_value(name, value)?,
        };
        // Both sides look at ro, rw and the access times.
        let known_to_filesystem = self.filesystem.apply(option)?;
        if known_to_filesystem && !known {
            self.of_filesystem.push(option.to_owned());
        }
        if known || known_to_filesystem {
            Ok(())
        } else {
            Err(OptionError::Unknown { name: name.to_owned() })
        }
    }

    fn apply_flag(&mut self, name: &str) -> bool {
        let mut set = |flags, on: bool| {
            self.flags.set(flags, on);
            self.cleared_flags.set(flags, !on);
        };
        match name {
            "ro" => set(MountFlags::RDONLY, true),
            "rw" => set(MountFlags::RDONLY, false),
            "nosuid" => set(MountFlags::NOSUID, true),
            "suid" => set(MountFlags::NOSUID, false),
            "nodev" => set(MountFlags::NODEV, true),
            "dev" => set(MountFlags::NODEV, false),
            "noexec" => set(MountFlags::NOEXEC, true),
            "exec" => set(MountFlags::NOEXEC, false),
            "sync" => set(MountFlags::SYNCHRONOUS, true),
            "async" => set(MountFlags::SYNCHRONOUS, false),
            "dirsync" => set(MountFlags::DIRSYNC, true),
            "noatime" => set(MountFlags::NOATIME, true),
            "atime" => set(MountFlags::NOATIME, false),
            "nodiratime" => set(MountFlags::NODIRATIME, true),
            "diratime" => set(MountFlags::NODIRATIME, false),
            "relatime" => {
                set(MountFlags::NOATIME | MountFlags::STRICTATIME, false);
                set(MountFlags::RELATIME, true);
            }
            "strictatime" => {
                set(MountFlags::NOATIME | MountFlags::RELATIME, false);
                set(MountFlags::STRICTATIME, true);
            }
            "norelatime" => set(MountFlags::RELATIME, false),
            "nostrictatime" => set(MountFlags::STRICTATIME, false),
            "user" | "users" => set(MountFlags::NOSUID | MountFlags::NODEV | MountFlags::NOEXEC, true),
            "owner" | "group" => set(MountFlags::NOSUID | MountFlags::NODEV, true),
            "allow_other" => self.allow_other = true,
            "auto_unmount" => self.auto_unmount = true,
            "remount" => self.remount = true,
            "defaults"
            | "auto"
            | "noauto"
            | "nofail"
            | "loop"
            | "_netdev"
            | "nouser"
            | "nousers"
            | "noowner"
            | "nogroup"
            | "default_permissions" => {}
            _ => return name.starts_with("x-"),
        }
        true
    }

    fn apply_value(&mut self, name: &str, value: &str) -> Result<bool, OptionError> {
        let bad = |expected| OptionError::Value { name: name.to_owned(), value: value.to_owned(), expected };
        match name {
            "threads" => {
                let most = 256;
                let threads = value.parse().ok().filter(|threads| (1..=most).contains(threads));
                self.threads = threads.ok_or_else(|| bad("number from 1 to 256"))?;
            }
            "writeback" => {
                self.writeback = match value {
                    "on" => true,
                    "off" => false,
                    _ => return Err(bad("word: on or off")),
                };
            }
            "killpriv" => {
                self.kernel_kills_privileges = match value {
                    "server" => false,
                    "kernel" => true,
                    _ => return Err(bad("word: server or kernel")),
                };
            }
            "transport" if value == "fuse" => {}
            "transport" => return Err(bad("transport: fuse")),
            "fsname" => self.source = Some(value.to_owned()),
            "subtype" => self.subtype = value.to_owned(),
            "comment" => {}
            // What the table of mounts shows comes back from mount(8).
            "user_id" | "group_id" | "max_read" | "blksize" if self.remount => {}
            _ => return Ok(name.starts_with("x-")),
        }
        Ok(true)
    }
}

/// Splits at commas that no backslash precedes.
fn split(list: &str) -> Vec<String> {
    let mut options = vec![String::new()];
    let mut characters = list.chars();
    while let Some(character) = characters.next() {
        let current = options.last_mut().expect("the list is never empty");
        match character {
            ',' => options.push(String::new()),
            '\\' => match characters.next() {
                Some(next @ (',' | '\\')) => current.push(next),
                Some(next) => current.extend(['\\', next]),
                None => current.push('\\'),
            },
            other => current.push(other),
        }
    }
    options.retain(|option| !option.is_empty());
    options
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_list_holds_options_of_all_three_kinds() {
        let list = r"ro,compress=zstd:3,noexec,nosuid,allow_other,threads=8,writeback=off,x-systemd.automount,fsname=a\,b,nofail";
        let options = MountOptions::parse(list).unwrap();
        assert!(options.filesystem.read_only && options.filesystem.compress.is_some());
        assert_eq!(options.flags, MountFlags::RDONLY | MountFlags::NOEXEC | MountFlags::NOSUID);
        assert!(options.allow_other && !options.writeback);
        assert_eq!((options.threads, options.source.as_deref()), (8, Some("a,b")));
    }

    #[test]
    fn what_comes_later_counts() {
        let options = MountOptions::parse("user,exec,ro,rw,noatime,relatime").unwrap();
        assert_eq!(options.flags, MountFlags::NOSUID | MountFlags::NODEV | MountFlags::RELATIME);
        assert!(!options.filesystem.read_only);
    }

    #[test]
    fn a_remount_takes_what_the_table_of_mounts_shows() {
        let list = "remount,ro,relatime,user_id=0,group_id=0,default_permissions,allow_other,compress=zstd";
        let options = MountOptions::parse(list).unwrap();
        assert!(options.remount);
        assert_eq!(options.flags, MountFlags::RDONLY | MountFlags::RELATIME);
        assert_eq!(options.of_filesystem, ["compress=zstd"]);
        assert!(MountOptions::parse("user_id=0").is_err());
    }

    #[test]
    fn unknown_names_and_bad_values_are_errors() {
        for unknown in ["frob", "frob=1", "allow_root"] {
            let error = MountOptions::parse(unknown).err();
            assert!(matches!(error, Some(OptionError::Unknown { .. })), "{unknown}: {error:?}");
        }
        for bad in ["threads=0", "threads=x", "writeback=yes", "killpriv=on", "transport=pigeon", "commit=x"]
        {
            let error = MountOptions::parse(bad).err();
            assert!(matches!(error, Some(OptionError::Value { .. })), "{bad}: {error:?}");
        }
    }
}
