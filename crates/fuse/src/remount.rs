//! A mount that is there becomes read-only or writable, or gets other flags: the kernel does that by itself, without a word
//! to the server, which is told here what it must know.

use std::path::Path;

use rustix::fs::StatVfsMountFlags;
use rustix::io::Errno;
use rustix::mount::MountFlags;
use vlinder_control::{Answer, Client, ClientError, MountEntry, Request};

use crate::MountError;
use crate::options::MountOptions;

/// Changes the flags of the mount at a place; the options of the file system stay as they were mounted. A mount that
/// becomes read-only is durable as it is then. Returns the given options of the file system that it was not mounted with,
/// which have no effect: mount(8) gives those of /etc/fstab along whoever remounts.
///
/// # Errors
/// [`MountError::Remount`]: there is no mount of this program, its server does not answer, the system refuses, or the image
/// was opened read-only and can't become writable.
pub fn remount(options: &MountOptions, mountpoint: &Path) -> Result<Vec<String>, MountError> {
    let failed = |reason: String| MountError::Remount {
        mountpoint: mountpoint.to_owned(),
        reason,
        goes_on: "it goes on as it was mounted",
    };
    let entry = MountEntry::at(mountpoint).map_err(|error| failed(error.to_string()))?;
    let entry =
        entry.filter(MountEntry::is_ours).ok_or_else(|| failed("no vlinder is mounted there".into()))?;
    let refused = |error: ClientError| failed(error.to_string());
    let mut server = Client::connect(&entry.mountpoint).map_err(refused)?;
    let read_only = options.flags.contains(MountFlags::RDONLY);
    let Answer::Mount(information) = server.request(&Request::Mount).map_err(refused)? else {
        return Err(refused(server.unexpected()));
    };
    if let (false, Some(reason)) = (read_only, information.read_only) {
        return Err(failed(format!("it takes no changes ({reason}); unmount it, and mount it for writing")));
    }
    let change = |flags| rustix::mount::mount_remount(&entry.mountpoint, flags, "");
    let system = |errno: Errno| failed(std::io::Error::from(errno).to_string());
    let before = flags_of(&entry.mountpoint).map_err(system)?;
    // The kernel hands its dirty pages over before it is read-only.
    change(options.flags).map_err(system)?;
    if let Err(error) = server.request(&Request::Remounted { read_only }) {
        let goes_on = match change(before) {
            Ok(()) => {
                // It fails as the one before did; what it tells the server arrives.
                let _ =
                    server.request(&Request::Remounted { read_only: before.contains(MountFlags::RDONLY) });
                "it goes on as it was mounted"
            }
            Err(_) => "the kernel keeps the flags that were asked for; mount it anew",
        };
        return Err(MountError::Remount {
            mountpoint: mountpoint.to_owned(),
            reason: error.to_string(),
            goes_on,
        });
    }
    let is_new = |option: &&String| !information.options.contains(option);
    Ok(options.of_filesystem.iter().filter(is_new).cloned().collect())
}

/// The flags that a mount has now.
fn flags_of(mountpoint: &Path) -> Result<MountFlags, Errno> {
    let found = rustix::fs::statvfs(mountpoint)?.f_flag;
    let known = [
        (StatVfsMountFlags::RDONLY, MountFlags::RDONLY),
        (StatVfsMountFlags::NOSUID, MountFlags::NOSUID),
        (StatVfsMountFlags::NODEV, MountFlags::NODEV),
        (StatVfsMountFlags::NOEXEC, MountFlags::NOEXEC),
        (StatVfsMountFlags::SYNCHRONOUS, MountFlags::SYNCHRONOUS),
        (StatVfsMountFlags::NOATIME, MountFlags::NOATIME),
        (StatVfsMountFlags::NODIRATIME, MountFlags::NODIRATIME),
        (StatVfsMountFlags::RELATIME, MountFlags::RELATIME),
    ];
    let is_set = known.into_iter().filter(|(shown, _)| found.contains(*shown));
    Ok(is_set.fold(MountFlags::empty(), |flags, (_, flag)| flags | flag))
}
