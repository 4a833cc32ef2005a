//! How the kernel is told to mount: by mount(2) where that is allowed, else through the set-user-id program
//! `fusermount3`.

use std::ffi::CString;
use std::io::{ErrorKind, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use rustix::fs::{Mode, OFlags};
use rustix::io::{Errno, FdFlags};
use rustix::mount::MountFlags;
use rustix::net::{RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags};
use vlinder_control::MountEntry;
use vlinder_control::unmount::{HeldMount, Refused};

use crate::options::MountOptions;
use crate::{HelperCause, MountError};

const HELPER: &str = "fusermount3";

/// Mounts: `/dev/fuse`, connected, not yet served. `source` is what the table of mounts shows.
pub(crate) fn mount(options: &MountOptions, source: &str, mountpoint: &Path) -> Result<OwnedFd, MountError> {
    if rustix::process::geteuid().is_root() {
        match mount_directly(options, source, mountpoint) {
            Err(MountError::Refused { errno: Errno::PERM, .. }) => {}
            other => return other,
        }
    }
    mount_with_helper(options, source, mountpoint)
}

fn mount_directly(options: &MountOptions, source: &str, mountpoint: &Path) -> Result<OwnedFd, MountError> {
    let refused = |errno| MountError::Refused { mountpoint: mountpoint.to_owned(), errno };
    let flags = OFlags::RDWR | OFlags::CLOEXEC;
    let device =
        rustix::fs::open("/dev/fuse", flags, Mode::empty()).map_err(|errno| MountError::Device { errno })?;
    let (user, group) = (rustix::process::geteuid(), rustix::process::getegid());
    let mut data = format!(
        "fd={},rootmode=40000,user_id={},group_id={}",
        device.as_raw_fd(),
        user.as_raw(),
        group.as_raw()
    );
    if !options.acts_as_root() {
        data.push_str(",default_permissions");
    }
    if options.allow_other {
        data.push_str(",allow_other");
    }
    let data = CString::new(data).map_err(|_| refused(Errno::INVAL))?;
    let filesystem_type = format!("fuse.{}", options.subtype);
    rustix::mount::mount(source, mountpoint, filesystem_type.as_str(), options.flags, Some(data.as_c_str()))
        .map_err(refused)?;
    Ok(device)
}

/// The options for `fusermount3`, which splits them at commas.
fn helper_options(options: &MountOptions, source: &str) -> String {
    let escaped = |text: &str| text.replace('\\', "\\\\").replace(',', "\\,");
    let mut list =
        vec![format!("fsname={}", escaped(source)), format!("subtype={}", escaped(&options.subtype))];
    list.extend((!options.acts_as_root()).then(|| "default_permissions".to_owned()));
    let names = [
        (MountFlags::RDONLY, "ro"),
        (MountFlags::NOEXEC, "noexec"),
        (MountFlags::SYNCHRONOUS, "sync"),
        (MountFlags::DIRSYNC, "dirsync"),
        (MountFlags::NOATIME, "noatime"),
    ];
    list.extend(
        names.iter().filter(|(flag, _)| options.flags.contains(*flag)).map(|(_, name)| (*name).to_owned()),
    );
    if options.allow_other {
        list.push("allow_other".to_owned());
    }
    list.join(",")
}

fn mount_with_helper(options: &MountOptions, source: &str, mountpoint: &Path) -> Result<OwnedFd, MountError> {
    let helper = |message, cause| MountError::Helper { mountpoint: mountpoint.to_owned(), message, cause };
    let failed = |message: String| {
        let cause = HelperCause::of(&message);
        helper(message, cause)
    };
    let (ours, theirs) = UnixStream::pair().map_err(|error| failed(error.to_string()))?;
    rustix::io::fcntl_setfd(&theirs, FdFlags::empty()).map_err(|errno| failed(errno.to_string()))?;
    let mut command = Command::new(HELPER);
    command.arg("-o").arg(helper_options(options, source)).arg("--").arg(mountpoint);
    command.env("_FUSE_COMMFD", theirs.as_raw_fd().to_string());
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped());
    let mut child = command.spawn().map_err(|error| match error.kind() {
        ErrorKind::NotFound => helper("there is no such program".to_owned(), HelperCause::Missing),
        _ => failed(format!("it can't be run: {error}")),
    })?;
    drop(theirs);
    let device = receive_device(&ours);
    let mut said = String::new();
    if let Some(mut stderr) = child.stderr.take() {
        // What it says is only shown.
        let _ = std::io::Read::read_to_string(&mut stderr, &mut said);
    }
    // The caller says already which program speaks.
    let said = said.trim().trim_start_matches(HELPER).trim_start_matches(": ");
    let status = child.wait().map_err(|error| failed(error.to_string()))?;
    match device {
        Ok(device) if status.success() => Ok(device),
        Ok(_) => Err(failed(format!("{status}: {said}"))),
        Err(_) if !said.is_empty() => Err(failed(said.to_owned())),
        Err(errno) => Err(failed(format!("{status}, and no connection came: {errno}"))),
    }
}

/// The connection that `fusermount3` sends with one byte.
fn receive_device(stream: &UnixStream) -> Result<OwnedFd, Errno> {
    let mut byte = [0];
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut ancillary = RecvAncillaryBuffer::new(&mut space);
    let mut parts = [IoSliceMut::new(&mut byte)];
    loop {
        match rustix::net::recvmsg(stream, &mut parts, &mut ancillary, RecvFlags::CMSG_CLOEXEC) {
            Ok(_) => break,
            Err(Errno::INTR) => {}
            Err(errno) => return Err(errno),
        }
    }
    let mut descriptors = ancillary.drain().filter_map(|message| match message {
        RecvAncillaryMessage::ScmRights(descriptors) => Some(descriptors),
        _ => None,
    });
    descriptors.next().and_then(|mut found| found.next()).ok_or(Errno::NOTCONN)
}

/// A mount of this process's: the directories above it may get other names.
#[derive(Clone, Debug)]
pub(crate) struct OwnMount {
    /// Where it was mounted, in messages.
    pub(crate) mountpoint: PathBuf,
    /// In the kernel's table.
    pub(crate) id: u64,
    /// The number of the file system.
    pub(crate) device: (u32, u32),
}

impl OwnMount {
    /// The mount that was just made at a place.
    pub(crate) fn at(mountpoint: &Path) -> std::io::Result<Self> {
        let MountEntry { id, device, .. } = at(mountpoint)?.ok_or(ErrorKind::NotFound)?;
        Ok(Self { mountpoint: mountpoint.to_owned(), id, device })
    }

    /// Where it is now; none if it is nowhere any more.
    pub(crate) fn entry(&self) -> std::io::Result<Option<MountEntry>> {
        let is_it = |entry: &MountEntry| (entry.id, entry.device) == (self.id, self.device);
        Ok(MountEntry::all()?.into_iter().find(is_it))
    }

    /// Unmounts it, and nothing else, as [`vlinder_control::unmount`] says.
    pub(crate) fn unmount(&self, lazily: bool) -> Result<(), MountError> {
        unmount_entry(&self.mountpoint, self.entry(), lazily)
    }
}

/// Unmounts what is seen at a place.
pub(crate) fn unmount(mountpoint: &Path, lazily: bool) -> Result<(), MountError> {
    unmount_entry(mountpoint, at(mountpoint), lazily)
}

fn unmount_entry(
    mountpoint: &Path,
    entry: std::io::Result<Option<MountEntry>>,
    lazily: bool,
) -> Result<(), MountError> {
    let refused = |Refused { message, is_busy }| MountError::Unmount {
        mountpoint: mountpoint.to_owned(),
        message,
        is_busy,
    };
    let no_mount = |message: String| refused(Refused { message, is_busy: false });
    let entry = entry.map_err(|error| no_mount(error.to_string()))?;
    let entry = entry.ok_or_else(|| no_mount("nothing is mounted there".to_owned()))?;
    HeldMount::of(&entry).and_then(|held| held.unmount(lazily)).map_err(refused)
}

/// The mount at a place, as the table has it. The mount itself is not asked. Where several lie over one
/// another the last is seen.
pub(crate) fn at(mountpoint: &Path) -> std::io::Result<Option<MountEntry>> {
    Ok(MountEntry::all()?.into_iter().rfind(|entry| entry.mountpoint == mountpoint))
}

/// The place as an absolute path without symbolic links; a directory.
pub(crate) fn check(mountpoint: &Path) -> Result<PathBuf, MountError> {
    let fails = |source| MountError::Mountpoint { path: mountpoint.to_owned(), source };
    let absolute = mountpoint.canonicalize().map_err(fails)?;
    // The root of a mount whose server is gone can't be looked at.
    if !absolute.metadata().map_err(fails)?.is_dir() {
        return Err(fails(std::io::Error::from(std::io::ErrorKind::NotADirectory)));
    }
    Ok(absolute)
}

/// A path as the table of mounts shows it.
pub(crate) fn shown(path: &Path) -> String {
    String::from_utf8_lossy(path.as_os_str().as_bytes()).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_the_helper_splits_is_escaped() {
        let options = MountOptions::parse("ro,noexec,allow_other").unwrap();
        let list = helper_options(&options, r"/a,b\c");
        assert_eq!(list, r"fsname=/a\,b\\c,subtype=vlinder,default_permissions,ro,noexec,allow_other");
    }

    #[test]
    fn a_mount_point_is_a_directory() {
        assert!(matches!(check(Path::new("/no/such")), Err(MountError::Mountpoint { .. })));
        assert!(matches!(check(Path::new("/proc/self/status")), Err(MountError::Mountpoint { .. })));
        assert_eq!(check(Path::new("/proc/../proc/")).unwrap(), Path::new("/proc"));
    }
}
