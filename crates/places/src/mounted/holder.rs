//! Finds the mount that holds an image. Each mount of the system may be anybody's, and its server may do
//! anything: so one whose owner could not have the image is not asked, and none is waited for without end.
//!
//! | the mount is of | asked | believed |
//! |---|---|---|
//! | root, or the user who asks | those that show the image as their source first, then the others | by the devices that it names |
//! | a user who could write the image | where it shows the image as its source | by that source |
//! | another user | never | |
//!
//! A path that another user's server names is never looked at: it may lie on a mount of that user's, on which
//! each system call waits for a server that does not answer.

use std::ffi::OsStr;
use std::os::fd::AsRawFd;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::time::Duration;

use rustix::fs::{FileType, Mode, OFlags, SeekFrom, Stat};
use vlinder_base::clock::{Clock, SystemClock};
use vlinder_control::protocol::MountInformation;
use vlinder_control::{Client, MountEntry};
use vlinder_partitions::{ImageName, identity};

use crate::failure::Failure;
use crate::text::escaped;

/// How long a server may take that shows the image as its source. One that commits at that moment answers in
/// time.
const LIKELY_LIMIT: Duration = Duration::from_secs(5);
/// How long all others may take together: those that show a name of their own (`fsname=`), or hold several
/// devices.
const OTHERS_LIMIT: Duration = Duration::from_secs(2);

/// The server that holds an image, among those that answer to this user.
pub fn server_of(image: &Path) -> Option<(Client, MountInformation)> {
    let name = ImageName::of(image);
    let status = rustix::fs::stat(name.file()).ok()?;
    let (wanted, source) = (identity(image)?, name.canonical().to_path());
    let ours = MountEntry::all().ok()?.into_iter().filter(MountEntry::is_ours);
    let (likely, others): (Vec<_>, Vec<_>) =
        ours.filter(|entry| may_hold(entry, &source, &status)).partition(|entry| entry.source == source);
    let is_held_by = |entry: &MountEntry, information: &MountInformation| {
        let mut devices = information.devices.iter().map(|name| Path::new(OsStr::from_bytes(&name.0)));
        !vlinder_control::is_trusted(entry) || devices.any(|device| identity(device) == Some(wanted))
    };
    let asked = |entry: MountEntry, limit| {
        let (client, information) = Client::enquire(entry.clone(), limit).ok()?;
        is_held_by(&entry, &information).then_some((client, information))
    };
    let clock = SystemClock::new();
    likely.into_iter().find_map(|entry| asked(entry, LIKELY_LIMIT)).or_else(|| {
        let begun = clock.monotonic();
        let left = || OTHERS_LIMIT.saturating_sub(clock.monotonic().saturating_sub(begun));
        others.into_iter().find_map(|entry| (left() > Duration::ZERO).then(|| asked(entry, left()))?)
    })
}

/// Where the table of mounts shows an image, and whose mount that is. Nobody vouches for it: it is to be
/// told, and no more.
fn shown_holder(image: &Path) -> Option<(String, u32)> {
    let source = ImageName::of(image).canonical().to_path();
    let mut ours = MountEntry::all().ok()?.into_iter().filter(MountEntry::is_ours);
    let me = rustix::process::geteuid().as_raw();
    let entry = ours.find(|entry| entry.source == source && entry.owner != Some(me))?;
    Some((escaped(entry.mountpoint.as_os_str().as_bytes()), entry.owner?))
}

/// Where another partition of the disk is mounted that an image lies on, by this user or root.
fn mount_beside(image: &Path) -> Option<String> {
    let name = ImageName::of(image).canonical();
    let ours = MountEntry::all().ok()?.into_iter();
    let mut ours = ours.filter(|entry| entry.is_ours() && vlinder_control::is_trusted(entry));
    let entry = ours.find(|entry| {
        let other = ImageName::of(&entry.source);
        other.file() == name.file() && other != name
    })?;
    Some(escaped(entry.mountpoint.as_os_str().as_bytes()))
}

/// A failure to open an image that is in use, with the mount that uses it, or that another user's mount says
/// it is.
pub fn advise(failure: Failure, image: &Path) -> Failure {
    match server_of(image) {
        Some((client, _)) => {
            let mountpoint = client.mount().mountpoint.display().to_string();
            failure
                .hint(format!("it is mounted on {mountpoint}: work there, or end that with vlinder umount"))
        }
        None if let Some(mountpoint) = mount_beside(image) => failure.hint(format!(
            "another partition of it is mounted on {mountpoint}, and one lock is for the whole disk: end that with vlinder umount"
        )),
        None => match shown_holder(image) {
            Some((mountpoint, owner)) => failure.hint(format!(
                "the system shows it mounted on {mountpoint} by user {owner}: ask that user, or wait for that to end"
            )),
            None => failure,
        },
    }
}

/// Whether the mount may be one of this image: for the owner of a mount that is neither root nor this user,
/// whether that user could write the image, as far as its mode tells, and the mount's source says so. Who can
/// only read an image keeps nobody away from it.
fn may_hold(entry: &MountEntry, source: &Path, image: &Stat) -> bool {
    let others_write = Mode::WGRP | Mode::WOTH;
    let could_write =
        || entry.owner == Some(image.st_uid) || Mode::from_raw_mode(image.st_mode).intersects(others_write);
    vlinder_control::is_trusted(entry) || entry.source == source && could_write()
}

/// The bytes of a regular file or block device, or of the part of it that is meant. Whatever else a path
/// leads to is not opened: that alone may wait, or do something to a device.
pub fn device_length(path: &Path) -> Option<u64> {
    if let Some(bytes) = vlinder_partitions::part_bytes(path) {
        return Some(bytes);
    }
    let found = rustix::fs::open(path, OFlags::PATH | OFlags::CLOEXEC, Mode::empty()).ok()?;
    let status = rustix::fs::fstat(&found).ok()?;
    match FileType::from_raw_mode(status.st_mode) {
        FileType::RegularFile => u64::try_from(status.st_size).ok(),
        FileType::BlockDevice => {
            let same = format!("/proc/self/fd/{}", found.as_raw_fd());
            let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::CLOEXEC;
            let device = rustix::fs::open(same, flags, Mode::empty()).ok()?;
            rustix::fs::seek(device, SeekFrom::End(0)).ok()
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use std::path::PathBuf;

    use rustix::mount::MountFlags;
    use vlinder_testkit::Scratch;

    use super::*;

    fn mount_of(owner: u32, source: &Path) -> MountEntry {
        MountEntry {
            id: 1,
            device: (0, 1),
            root: PathBuf::from("/"),
            mountpoint: PathBuf::from("/nowhere"),
            filesystem_type: "fuse.vlinder".into(),
            source: source.to_owned(),
            owner: Some(owner),
            allow_other: false,
            read_only: false,
            flags: MountFlags::empty(),
        }
    }

    #[test]
    fn another_users_mount_is_asked_only_if_it_can_hold_the_image() {
        let scratch = Scratch::new("may-hold");
        let image = scratch.join("image");
        std::fs::write(&image, b"").unwrap();
        let mut status = rustix::fs::stat(&image).unwrap();
        let (me, stranger) = (rustix::process::geteuid().as_raw(), 54_321);
        let elsewhere = scratch.join("other");
        for (owner, user, mode, expected) in [
            (me, stranger, 0o644, false),
            (me, stranger, 0o664, true),
            (me, stranger, 0o602, true),
            (stranger, stranger, 0o600, true),
            (stranger, 12_345, 0o600, false),
        ] {
            (status.st_uid, status.st_mode) = (owner, 0o100_000 | mode);
            assert_eq!(
                may_hold(&mount_of(user, &image), &image, &status),
                expected,
                "{owner} {user} {mode:o}"
            );
            assert!(!may_hold(&mount_of(user, &elsewhere), &image, &status));
            for trusted in [0, me] {
                assert!(may_hold(&mount_of(trusted, &elsewhere), &image, &status));
            }
        }
    }

    #[test]
    fn only_files_and_block_devices_are_opened_for_their_length() {
        let scratch = Scratch::new("lengths");
        let (file, pipe) = (scratch.join("file"), scratch.join("pipe"));
        std::fs::write(&file, b"12345").unwrap();
        // Opening it would wait for a writer.
        rustix::fs::mknodat(rustix::fs::CWD, &pipe, FileType::Fifo, Mode::from_raw_mode(0o600), 0).unwrap();
        assert_eq!(device_length(&file), Some(5));
        assert_eq!((device_length(&pipe), device_length(Path::new("/dev/zero"))), (None, None));
        assert_eq!(device_length(scratch.path()), None);
    }
}
