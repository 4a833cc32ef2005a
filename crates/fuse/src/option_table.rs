//! The options of a mount itself, and the general ones of mount(8) and FUSE; and how a list of them is read.

use rustix::mount::MountFlags;
use vlinder_fs::OptionError;
use vlinder_fs::mount_option::{Apply, MountOption, Origin, apply};

use crate::options::MountOptions;

type Names = &'static [(&'static str, Apply<MountOptions>)];

/// The options of a mount, beside those of its file system.
pub const MOUNT_OPTIONS: &[MountOption<MountOptions>] = &[
    vlinder(
        "threads=N",
        "threads that answer requests, 1 to 256",
        &[(
            "threads",
            Apply::Value("number from 1 to 256", |options, number| {
                options.threads = number.parse().ok().filter(|threads| (1..=256).contains(threads))?;
                Some(())
            }),
        )],
    ),
    vlinder(
        "writeback=on, writeback=off",
        "whether the kernel holds back what is written",
        &[(
            "writeback",
            Apply::Value("word: on or off", |options, word| {
                options.writeback = is_first(word, "on", "off")?;
                Some(())
            }),
        )],
    ),
    vlinder(
        "killpriv=server, killpriv=kernel",
        "who takes set-id bits off a file that changes; kernel for the upper layer of an overlay (one request \
         more for each write)",
        &[(
            "killpriv",
            Apply::Value("word: server or kernel", |options, word| {
                options.kernel_kills_privileges = is_first(word, "kernel", "server")?;
                Some(())
            }),
        )],
    ),
    vlinder(
        "transport=fuse",
        "how requests come",
        &[("transport", Apply::Value("transport: fuse", |_, word| (word == "fuse").then_some(())))],
    ),
    mount(
        "nosuid, nodev, noexec, sync, dirsync, ...",
        "handed to the kernel, as their opposites are",
        &[
            ("ro", Apply::Flag(|options| options.set_flags(MountFlags::RDONLY, true))),
            ("rw", Apply::Flag(|options| options.set_flags(MountFlags::RDONLY, false))),
            ("nosuid", Apply::Flag(|options| options.set_flags(MountFlags::NOSUID, true))),
            ("suid", Apply::Flag(|options| options.set_flags(MountFlags::NOSUID, false))),
            ("nodev", Apply::Flag(|options| options.set_flags(MountFlags::NODEV, true))),
            ("dev", Apply::Flag(|options| options.set_flags(MountFlags::NODEV, false))),
            ("noexec", Apply::Flag(|options| options.set_flags(MountFlags::NOEXEC, true))),
            ("exec", Apply::Flag(|options| options.set_flags(MountFlags::NOEXEC, false))),
            ("sync", Apply::Flag(|options| options.set_flags(MountFlags::SYNCHRONOUS, true))),
            ("async", Apply::Flag(|options| options.set_flags(MountFlags::SYNCHRONOUS, false))),
            ("dirsync", Apply::Flag(|options| options.set_flags(MountFlags::DIRSYNC, true))),
            ("noatime", Apply::Flag(|options| options.set_flags(MountFlags::NOATIME, true))),
            ("atime", Apply::Flag(|options| options.set_flags(MountFlags::NOATIME, false))),
            ("nodiratime", Apply::Flag(|options| options.set_flags(MountFlags::NODIRATIME, true))),
            ("diratime", Apply::Flag(|options| options.set_flags(MountFlags::NODIRATIME, false))),
            (
                "relatime",
                Apply::Flag(|options| {
                    options.set_flags(MountFlags::NOATIME | MountFlags::STRICTATIME, false);
                    options.set_flags(MountFlags::RELATIME, true);
                }),
            ),
            (
                "strictatime",
                Apply::Flag(|options| {
                    options.set_flags(MountFlags::NOATIME | MountFlags::RELATIME, false);
                    options.set_flags(MountFlags::STRICTATIME, true);
                }),
            ),
            ("norelatime", Apply::Flag(|options| options.set_flags(MountFlags::RELATIME, false))),
            ("nostrictatime", Apply::Flag(|options| options.set_flags(MountFlags::STRICTATIME, false))),
        ],
    ),
    mount(
        "user, users, owner, group",
        "others than root may mount; nosuid and nodev with it, and noexec with the first two",
        &[
            ("user", Apply::Flag(|options| options.set_flags(UNTRUSTED | MountFlags::NOEXEC, true))),
            ("users", Apply::Flag(|options| options.set_flags(UNTRUSTED | MountFlags::NOEXEC, true))),
            ("owner", Apply::Flag(|options| options.set_flags(UNTRUSTED, true))),
            ("group", Apply::Flag(|options| options.set_flags(UNTRUSTED, true))),
        ],
    ),
    mount(
        "allow_other",
        "not only the user who mounts may use it",
        &[("allow_other", Apply::Flag(|options| options.allow_other = true))],
    ),
    mount(
        "auto_unmount",
        "the mount goes when its server dies",
        &[("auto_unmount", Apply::Flag(|options| options.auto_unmount = true))],
    ),
    mount(
        "fsname=NAME, subtype=NAME",
        "how the table of mounts shows it",
        &[
            (
                "fsname",
                Apply::Value("name", |options, name| {
                    options.source = Some(name.to_owned());
                    Some(())
                }),
            ),
            (
                "subtype",
                Apply::Value("name", |options, name| {
                    options.subtype = name.to_owned();
                    Some(())
                }),
            ),
        ],
    ),
    mount(
        "remount",
        "change a mount that is there: ro, rw and the kernel's flags",
        &[
            ("remount", Apply::Flag(|options| options.remount = true)),
            // What the table of mounts shows comes back from mount(8).
            ("user_id", Apply::Value(OF_REMOUNT, |options, _| options.remount.then_some(()))),
            ("group_id", Apply::Value(OF_REMOUNT, |options, _| options.remount.then_some(()))),
            ("max_read", Apply::Value(OF_REMOUNT, |options, _| options.remount.then_some(()))),
            ("blksize", Apply::Value(OF_REMOUNT, |options, _| options.remount.then_some(()))),
        ],
    ),
    mount(
        "noauto, nofail, loop, _netdev, default_permissions, x-...",
        "for others; without effect here",
        &[
            ("defaults", Apply::Flag(|_| {})),
            ("auto", Apply::Flag(|_| {})),
            ("noauto", Apply::Flag(|_| {})),
            ("nofail", Apply::Flag(|_| {})),
            // An image needs no loop device.
            ("loop", Apply::Flag(|_| {})),
            ("_netdev", Apply::Flag(|_| {})),
            ("nouser", Apply::Flag(|_| {})),
            ("nousers", Apply::Flag(|_| {})),
            ("noowner", Apply::Flag(|_| {})),
            ("nogroup", Apply::Flag(|_| {})),
            // It is always on, but with owners=root.
            ("default_permissions", Apply::Flag(|_| {})),
            ("comment", Apply::MayHaveValue("text", |_, value| value.map(drop))),
            ("x-", Apply::AnyThatBeginsSo),
        ],
    ),
];

/// Nothing that a user put there gets rights.
const UNTRUSTED: MountFlags = MountFlags::NOSUID.union(MountFlags::NODEV);
const OF_REMOUNT: &str = "option of a new mount";

const fn vlinder(shown: &'static str, help: &'static str, names: Names) -> MountOption<MountOptions> {
    MountOption { origin: Origin::Vlinder, shown, help, names }
}

const fn mount(shown: &'static str, help: &'static str, names: Names) -> MountOption<MountOptions> {
    MountOption { origin: Origin::Mount, shown, help, names }
}

/// Whether a word is the first of two; none if it is neither.
fn is_first(word: &str, first: &str, second: &str) -> Option<bool> {
    [first, second].contains(&word).then_some(word == first)
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
        let known = apply(MOUNT_OPTIONS, self, option)?;
        // Both sides look at ro, rw and the access times.
        let known_to_filesystem = self.filesystem.apply(option)?;
        if known_to_filesystem && !known {
            self.of_filesystem.push(option.to_owned());
        }
        if known || known_to_filesystem {
            return Ok(());
        }
        let name = option.split('=').next().unwrap_or(option).to_owned();
        Err(OptionError::Unknown { name })
    }

    fn set_flags(&mut self, flags: MountFlags, on: bool) {
        self.flags.set(flags, on);
        self.cleared_flags.set(flags, !on);
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
