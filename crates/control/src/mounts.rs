//! The kernel's table of mounts, as `/proc/self/mountinfo` shows it (proc_pid_mountinfo(5)).

use std::ffi::OsStr;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use rustix::mount::MountFlags;

/// The type of the mounts that this program serves.
pub const FILESYSTEM_TYPE: &str = "fuse.vlinder";

/// One mount.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MountEntry {
    /// The mount's number, which no other has as long as it is there.
    pub id: u64,
    /// The device number, as stat(2) shows it in `st_dev`.
    pub device: (u32, u32),
    /// The directory of the file system that is shown, from its root.
    pub root: PathBuf,
    /// Where it is shown.
    pub mountpoint: PathBuf,
    /// The type, `fuse.vlinder`.
    pub filesystem_type: String,
    /// What is mounted.
    pub source: PathBuf,
    /// The user who mounted it: the option `user_id` of FUSE.
    pub owner: Option<u32>,
    /// Not only its owner may use it: the option `allow_other` of FUSE.
    pub allow_other: bool,
    /// Nothing can be changed by way of it.
    pub read_only: bool,
    /// The kernel's flags of the place and of the file system.
    pub flags: MountFlags,
}

impl MountEntry {
    /// The mount that a path lies on: the innermost of those of its device.
    ///
    /// # Errors
    /// The path can't be looked up, or the table can't be read.
    pub fn of_path(path: &Path) -> io::Result<Option<Self>> {
        let status = rustix::fs::stat(path)?;
        let device = (rustix::fs::major(status.st_dev), rustix::fs::minor(status.st_dev));
        let path = path.canonicalize()?;
        Ok(Self::all()?
            .into_iter()
            .filter(|entry| entry.device == device && path.starts_with(&entry.mountpoint))
            // Of several mounts over one another at the same place the last is what is seen.
            .max_by_key(|entry| entry.mountpoint.as_os_str().len()))
    }

    /// The mount at a place: the last, where several lie over one another. The mount itself is not asked, so
    /// that one whose server is gone is found, too.
    ///
    /// # Errors
    /// The directory that the place lies in can't be looked up, or the table can't be read.
    pub fn at(mountpoint: &Path) -> io::Result<Option<Self>> {
        let place = match (mountpoint.parent(), mountpoint.file_name()) {
            (Some(parent), Some(name)) => {
                let parent = if parent.as_os_str().is_empty() { Path::new(".") } else { parent };
                let place = parent.canonicalize()?.join(name);
                // Only a link that leads here is worth following.
                if place.is_symlink() { place.canonicalize()? } else { place }
            }
            _ => mountpoint.canonicalize()?,
        };
        Ok(Self::all()?.into_iter().rfind(|entry| entry.mountpoint == place))
    }

    /// The mount whose place a path's own names lead to, as far as the table knows them: nothing is looked
    /// up, so that a path on a mount whose server is gone is found, too.
    ///
    /// # Errors
    /// The working directory or the table can't be read.
    pub fn by_name(path: &Path) -> io::Result<Option<Self>> {
        let path = std::path::absolute(path)?;
        let above = Self::all()?.into_iter().filter(|entry| path.starts_with(&entry.mountpoint));
        // Of several mounts over one another at the same place the last is what is seen.
        Ok(above.max_by_key(|entry| entry.mountpoint.as_os_str().len()))
    }

    /// All mounts that this process sees.
    ///
    /// # Errors
    /// The table can't be read.
    pub fn all() -> io::Result<Vec<Self>> {
        Self::in_table(Path::new("/proc/self/mountinfo"))
    }

    /// The mounts of a file `mountinfo` of any process.
    pub(crate) fn in_table(path: &Path) -> io::Result<Vec<Self>> {
        let table = std::fs::read(path)?;
        Ok(table.split(|byte| *byte == b'\n').filter_map(Self::parse).collect())
    }

    /// Whether this program serves it.
    #[must_use]
    pub fn is_ours(&self) -> bool {
        self.filesystem_type == FILESYSTEM_TYPE
    }

    /// Whether it is another user's, and the kernel shows it to nobody else: not even to root.
    #[must_use]
    pub fn is_for_its_owner_alone(&self) -> bool {
        !self.allow_other && self.owner != Some(rustix::process::geteuid().as_raw())
    }

    /// The path from the file system's root of a path below the mount point.
    #[must_use]
    pub fn inner_path(&self, path: &Path) -> Option<PathBuf> {
        let below = path.strip_prefix(&self.mountpoint).ok()?;
        let root = self.root.strip_prefix("/").unwrap_or(&self.root);
        Some(root.join(below))
    }

    fn parse(line: &[u8]) -> Option<Self> {
        let mut fields = line.split(|byte| *byte == b' ');
        let id = std::str::from_utf8(fields.next()?).ok()?.parse().ok()?;
        let mut fields = fields.skip(1);
        let device = std::str::from_utf8(fields.next()?).ok()?;
        let (major, minor) = device.split_once(':')?;
        let root = unescape(fields.next()?);
        let mountpoint = unescape(fields.next()?);
        let of_place = flags_of(fields.next()?);
        let mut fields = fields.skip_while(|field| *field != b"-").skip(1);
        let filesystem_type = String::from_utf8_lossy(fields.next()?).into_owned();
        let source = unescape(fields.next()?);
        let options = fields.next()?;
        let owner = options
            .split(|byte| *byte == b',')
            .find_map(|option| std::str::from_utf8(option.strip_prefix(b"user_id=")?).ok()?.parse().ok());
        let allow_other = options.split(|byte| *byte == b',').any(|option| option == b"allow_other");
        let device = (major.parse().ok()?, minor.parse().ok()?);
        let flags = of_place | flags_of(options);
        let read_only = flags.contains(MountFlags::RDONLY);
        Some(Self {
            id,
            device,
            root,
            mountpoint,
            filesystem_type,
            source,
            owner,
            allow_other,
            read_only,
            flags,
        })
    }
}

/// Whether the file system of a device is read-only for a process that came by way of the mount of this
/// number. Whether the process came that way is its own word: it counts only among the mounts that the
/// process sees, and without it any of those that is writable. A process that is not known (0) sees what this
/// one sees. False where no mount is seen: what the kernel holds of one that left the tree is open files, and
/// it looks at them by itself.
#[must_use]
pub fn is_read_only_for(device: (u32, u32), process: i32, mount: Option<u64>) -> bool {
    let seen_in = |table: &Path| {
        let entries = MountEntry::in_table(table).unwrap_or_default();
        entries.into_iter().filter(|entry| entry.device == device && entry.is_ours()).collect::<Vec<_>>()
    };
    let mut entries = Vec::new();
    if process > 0 {
        entries = seen_in(&Path::new("/proc").join(process.to_string()).join("mountinfo"));
    }
    if entries.is_empty() {
        entries = seen_in(Path::new("/proc/self/mountinfo"));
    }
    takes_no_changes(&entries, mount)
}

fn takes_no_changes(entries: &[MountEntry], mount: Option<u64>) -> bool {
    match entries.iter().find(|entry| Some(entry.id) == mount) {
        Some(entry) => entry.read_only,
        None => !entries.is_empty() && entries.iter().all(|entry| entry.read_only),
    }
}

/// `MS_NOSYMFOLLOW` (include/uapi/linux/mount.h), since Linux 5.10.
const NO_SYMBOLIC_LINKS: MountFlags = MountFlags::from_bits_retain(256);

/// The flags among options as the table shows them (`show_mnt_opts` and `show_sb_opts`, fs/proc_namespace.c).
fn flags_of(options: &[u8]) -> MountFlags {
    let flag = |option: &[u8]| match option {
        b"ro" => MountFlags::RDONLY,
        b"nosuid" => MountFlags::NOSUID,
        b"nodev" => MountFlags::NODEV,
        b"noexec" => MountFlags::NOEXEC,
        b"noatime" => MountFlags::NOATIME,
        b"nodiratime" => MountFlags::NODIRATIME,
        b"relatime" => MountFlags::RELATIME,
        b"sync" => MountFlags::SYNCHRONOUS,
        b"dirsync" => MountFlags::DIRSYNC,
        b"lazytime" => MountFlags::LAZYTIME,
        b"nosymfollow" => NO_SYMBOLIC_LINKS,
        _ => MountFlags::empty(),
    };
    options.split(|byte| *byte == b',').fold(MountFlags::empty(), |flags, option| flags | flag(option))
}

/// Undoes the kernel's escapes: `\040` for a space and so on.
fn unescape(field: &[u8]) -> PathBuf {
    let mut bytes = Vec::with_capacity(field.len());
    let mut rest = field;
    while let Some((first, after)) = rest.split_first() {
        let digits = after.get(..3).filter(|digits| digits.iter().all(|digit| (b'0'..=b'7').contains(digit)));
        match digits {
            Some(digits) if *first == b'\\' => {
                let value = digits.iter().fold(0_u32, |value, digit| value * 8 + u32::from(digit - b'0'));
                bytes.push(u8::try_from(value).unwrap_or(b'?'));
                rest = &after[3..];
            }
            _ => {
                bytes.push(*first);
                rest = after;
            }
        }
    }
    PathBuf::from(OsStr::from_bytes(&bytes))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_of_the_table_is_read_with_its_escapes() {
        let line = br"36 35 0:52 /sub /mnt/a\040b rw,noatime master:1 - fuse.vlinder /x/i\134m.img rw,user_id=1000,group_id=5";
        let entry = MountEntry::parse(line).unwrap();
        assert_eq!((entry.device, entry.owner), ((0, 52), Some(1000)));
        assert_eq!(entry.mountpoint, Path::new("/mnt/a b"));
        assert_eq!(entry.source, Path::new(r"/x/i\m.img"));
        assert!(entry.is_ours() && !entry.read_only && !entry.allow_other);
        assert_eq!((entry.id, entry.flags), (36, MountFlags::NOATIME));
        for line in [
            &b"36 35 0:52 / /mnt ro,noatime - fuse.vlinder x rw"[..],
            b"36 35 0:52 / /mnt rw - fuse.vlinder x ro,a",
        ] {
            assert!(MountEntry::parse(line).unwrap().read_only);
        }
        assert_eq!(entry.inner_path(Path::new("/mnt/a b/c/d")).unwrap(), Path::new("sub/c/d"));
        assert_eq!(entry.inner_path(Path::new("/mnt/other")), None);
        assert_eq!(MountEntry::parse(b""), None);
    }

    #[test]
    fn the_mount_that_was_entered_decides_else_a_writable_one() {
        let entry = |id: u32, of_place: &str, of_filesystem: &str| {
            let line = format!("{id} 1 0:9 / /m {of_place} - fuse.vlinder x {of_filesystem},user_id=0");
            MountEntry::parse(line.as_bytes()).unwrap()
        };
        let mixed = [entry(1, "rw", "rw"), entry(2, "ro", "rw")];
        assert!(!takes_no_changes(&mixed, Some(1)) && takes_no_changes(&mixed, Some(2)));
        assert!(!takes_no_changes(&mixed, Some(3)) && !takes_no_changes(&mixed, None));
        let places = [entry(1, "ro", "rw"), entry(2, "ro", "rw")];
        assert!(takes_no_changes(&places, None) && takes_no_changes(&places, Some(3)));
        let whole = [entry(1, "rw", "ro"), entry(2, "rw", "ro")];
        assert!([None, Some(1), Some(3)].into_iter().all(|mount| takes_no_changes(&whole, mount)));
        assert!(!takes_no_changes(&[], Some(1)));
    }

    #[test]
    fn the_root_directory_lies_on_a_mount() {
        let entry = MountEntry::of_path(Path::new("/proc")).unwrap().unwrap();
        assert_eq!(
            (entry.filesystem_type.as_str(), entry.mountpoint.as_path()),
            ("proc", Path::new("/proc"))
        );
    }
}
