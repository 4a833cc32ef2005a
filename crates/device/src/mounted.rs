//! Is this image in the hands of the kernel? Writing to it then would destroy it, and reading it would show
//! halves.
//!
//! Facts used: `/sys/block/loopN/loop/backing_file` names a loop device's file, `/sys/block/*/dev` (and of
//! its partitions) the numbers of its nodes, `/proc/self/mountinfo` what is mounted here,
//! `/sys/fs/btrfs/UUID/devices/` the members of every mounted Btrfs in any mount namespace.

use std::ffi::OsString;
use std::fs;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};

use rustix::fs::{FileType, major, minor};

use crate::HostIdentity;

/// A mount by the kernel that uses an image.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KernelMount {
    /// The block device through which the kernel has it: a loop device over the image, or the image itself.
    pub device: PathBuf,
    /// Where it is mounted; none if that is in another mount namespace.
    pub mountpoint: Option<PathBuf>,
}

/// The kernel's mount of the image at `path` (through a loop device if it is a regular file), if there is
/// one. What can't be read (no /proc, no /sys) counts as no mount; a path that can't be looked at has none.
pub fn kernel_mount(path: &Path) -> Option<KernelMount> {
    let status = rustix::fs::stat(path).ok()?;
    let identity = HostIdentity::of(&status);
    match FileType::from_raw_mode(status.st_mode) {
        FileType::RegularFile => {
            loop_devices_over(path, identity).iter().find_map(|node| mount_of(node, Servers::Count))
        }
        FileType::BlockDevice => {
            let number = format!("{}:{}", major(identity.device_number), minor(identity.device_number));
            let directory = fs::canonicalize(format!("/sys/dev/block/{number}")).ok()?;
            mount_of(&directory, Servers::Lock)
        }
        _ => None,
    }
}

/// The /sys/block directories of the loop devices over this file.
fn loop_devices_over(path: &Path, identity: HostIdentity) -> Vec<PathBuf> {
    let Ok(entries) = fs::read_dir("/sys/block") else { return Vec::new() };
    let is_over = |directory: &PathBuf| {
        let Ok(mut backing) = fs::read(directory.join("loop/backing_file")) else { return false };
        if backing.last() == Some(&b'\n') {
            backing.pop();
        }
        let backing = PathBuf::from(OsString::from_vec(backing));
        match rustix::fs::stat(&backing) {
            Ok(status) => {
                let other = HostIdentity::of(&status);
                (other.file_system, other.inode) == (identity.file_system, identity.inode)
            }
            // The name means nothing here (another root, a file renamed since): the text is all that is left.
            Err(_) => backing == path,
        }
    };
    entries.flatten().map(|entry| entry.path()).filter(is_over).collect()
}

/// What a FUSE mount means whose source is a device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Servers {
    /// Its server has the device open. Locks of the file below a loop device say nothing of it.
    Count,
    /// Nothing: an opener of the device meets the server's lock, and may then ask which process holds it.
    Lock,
}

/// The mount that uses the disk at this /sys directory, or one of its partitions.
fn mount_of(directory: &Path, servers: Servers) -> Option<KernelMount> {
    let mounts = fs::read("/proc/self/mountinfo").unwrap_or_default();
    let mut nodes = vec![directory.to_owned()];
    let children = fs::read_dir(directory).into_iter().flatten().flatten().map(|entry| entry.path());
    nodes.extend(children.filter(|child| child.join("partition").exists()));
    nodes.iter().find_map(|node| {
        let number = fs::read_to_string(node.join("dev")).ok()?;
        let name = node.file_name()?;
        let mountpoint = mounts
            .split(|byte| *byte == b'\n')
            .find_map(|line| mountpoint_of(line, number.trim_end(), Path::new(name), servers));
        let is_used = mountpoint.is_some() || is_btrfs_member(Path::new(name));
        is_used.then(|| KernelMount { device: Path::new("/dev").join(name), mountpoint })
    })
}

/// The mount point of a mountinfo line whose file system is on the block device with this number.
///
/// `36 35 98:0 /root /mountpoint options optional… - type source superoptions`. Btrfs shows an anonymous
/// number in the third field, so the source's own number counts as well. What a FUSE mount shows as its
/// source is any user's word: it is compared with the device's name and not looked at, for it may lie on a
/// mount whose server never answers.
fn mountpoint_of(line: &[u8], number: &str, name: &Path, servers: Servers) -> Option<PathBuf> {
    let fields: Vec<&[u8]> = line.split(|byte| *byte == b' ').collect();
    let separator = fields.iter().position(|field| *field == b"-")?;
    let source = unescape(fields.get(separator + 2)?);
    let filesystem_type = *fields.get(separator + 1)?;
    let is_fuse = filesystem_type == b"fuse" || filesystem_type.starts_with(b"fuse.");
    let is_source = || {
        if is_fuse {
            let is_named = servers == Servers::Count && source == Path::new("/dev").join(name);
            return is_named.then_some(());
        }
        // Other sources are words of any kind, which would be looked for in this process's directory.
        let status = source.is_absolute().then(|| rustix::fs::stat(&source).ok())??;
        let is_node = FileType::from_raw_mode(status.st_mode) == FileType::BlockDevice;
        (is_node && number == format!("{}:{}", major(status.st_rdev), minor(status.st_rdev))).then_some(())
    };
    let is_number = *fields.get(2)? == number.as_bytes();
    (is_number || is_source().is_some()).then(|| fields.get(4).map(|field| unescape(field)))?
}

/// Mountinfo writes blanks and backslashes as `\` and three octal digits.
fn unescape(field: &[u8]) -> PathBuf {
    let mut bytes = Vec::with_capacity(field.len());
    let mut rest = field;
    while let Some((first, after)) = rest.split_first() {
        let digits = after.get(..3).and_then(|digits| std::str::from_utf8(digits).ok());
        match digits.and_then(|digits| u8::from_str_radix(digits, 8).ok()) {
            Some(byte) if *first == b'\\' => {
                bytes.push(byte);
                rest = &after[3..];
            }
            _ => {
                bytes.push(*first);
                rest = after;
            }
        }
    }
    PathBuf::from(std::ffi::OsStr::from_bytes(&bytes))
}

fn is_btrfs_member(name: &Path) -> bool {
    let Ok(volumes) = fs::read_dir("/sys/fs/btrfs") else { return false };
    volumes.flatten().any(|volume| volume.path().join("devices").join(name).symlink_metadata().is_ok())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mountinfo_blanks_are_unescaped_and_other_backslashes_kept() {
        assert_eq!(unescape(br"/a\040b\134c"), Path::new(r"/a b\c"));
        assert_eq!(unescape(br"/x\9z\"), Path::new(r"/x\9z\"));
    }

    #[test]
    fn a_mount_is_found_by_the_number_in_its_line() {
        let line = b"36 35 98:3 / /mnt\\040x rw,noatime master:1 shared:2 - ext3 none rw,errors=continue";
        assert_eq!(
            mountpoint_of(line, "98:3", Path::new("loop3"), Servers::Lock),
            Some(PathBuf::from("/mnt x"))
        );
        assert_eq!(mountpoint_of(line, "98:30", Path::new("loop30"), Servers::Lock), None);
        // The source of a user's mount is compared and not looked at.
        for (kind, servers, source, expected) in [
            ("fuse.vlinder", Servers::Count, "/dev/loop3", true),
            ("fuse.vlinder", Servers::Lock, "/dev/loop3", false),
            ("fuse", Servers::Count, "/dev/../dev/loop3", false),
        ] {
            let line = format!("36 35 0:99 / /mnt rw - {kind} {source} rw");
            let found = mountpoint_of(line.as_bytes(), "7:3", Path::new("loop3"), servers);
            assert_eq!(found.is_some(), expected, "{line}");
        }
        assert_eq!(mountpoint_of(b"garbage", "98:3", Path::new("loop3"), Servers::Lock), None);
    }
}
