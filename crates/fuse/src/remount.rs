//! A mount that is there becomes read-only or writable, or gets other flags: the kernel does that by itself,
//! without a word to the server, which is told here what it must know.

use std::path::Path;

use rustix::mount::MountFlags;
use vlinder_control::unmount::{HeldMount, Refused};
use vlinder_control::{Answer, Client, ClientError, MountEntry, Request};

use crate::MountError;
use crate::options::MountOptions;

/// Changes the flags of the mount at a place; the options of the file system stay as they were mounted. A
/// mount that becomes read-only is durable as it is then. Returns the given options of the file system that
/// it was not mounted with, which have no effect: mount(8) adds those of /etc/fstab to every remount.
///
/// # Errors
/// [`MountError::Remount`]: there is no mount of this program, its server does not answer, the system
/// refuses, or the image was opened read-only and can't become writable.
pub fn remount(options: &MountOptions, mountpoint: &Path) -> Result<Vec<String>, MountError> {
    let failed_with = |reason: String, advice| MountError::Remount {
        mountpoint: mountpoint.to_owned(),
        reason,
        goes_on: "it goes on as it was mounted",
        advice,
    };
    let failed = |reason: String| failed_with(reason, None);
    let entry = MountEntry::at(mountpoint).map_err(|error| failed(error.to_string()))?;
    let entry =
        entry.filter(MountEntry::is_ours).ok_or_else(|| failed("no vlinder is mounted there".into()))?;
    let refused = |error: ClientError| {
        let advice = match &error {
            ClientError::NoServer { reason, owner, .. } => Some(reason.advice(*owner)),
            _ => None,
        };
        failed_with(error.to_string(), advice)
    };
    let system = |refused: Refused| {
        let advice = "only root may change the flags of a mount: unmount it, and mount it with these options";
        let is_root = rustix::process::geteuid().is_root();
        failed_with(refused.message, (!is_root).then(|| advice.to_owned()))
    };
    // Before the server is talked to, which may be another user's.
    let (held, before) = (HeldMount::of(&entry).map_err(system)?, entry.flags);
    let mut server = Client::connect_to(entry).map_err(refused)?;
    let Answer::Mount(information) = server.request(&Request::Mount).map_err(refused)? else {
        return Err(refused(server.unexpected()));
    };
    // What the mount was made with stays, whatever the options of this call say.
    let acts_as_root = information.options.iter().any(|option| option == "owners=root");
    let forced = if acts_as_root { MountFlags::NOSUID | MountFlags::NODEV } else { MountFlags::empty() };
    let after = flags_after(before, options) | forced;
    let read_only = after.contains(MountFlags::RDONLY);
    if let (false, Some(reason)) = (read_only, information.read_only) {
        return Err(failed(format!("it takes no changes ({reason}); unmount it, and mount it for writing")));
    }
    // The kernel hands its dirty pages over before it is read-only.
    held.remount(after).map_err(system)?;
    if let Err(error) = server.request(&Request::Remounted { read_only }) {
        let goes_on = match held.remount(before) {
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
            advice: None,
        });
    }
    let is_new = |option: &&String| !information.options.contains(option);
    Ok(options.of_filesystem.iter().filter(is_new).cloned().collect())
}

/// What the mount's flags become: those that it has, changed as was asked. So `nosuid` and `nodev` stay
/// unless the options name `suid` and `dev`, as with mount(8).
fn flags_after(before: MountFlags, options: &MountOptions) -> MountFlags {
    let access_times = MountFlags::NOATIME | MountFlags::RELATIME | MountFlags::STRICTATIME;
    let kept = if options.flags.intersects(access_times) { before.difference(access_times) } else { before };
    kept.difference(options.cleared_flags) | options.flags
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_remount_changes_the_flags_asked_for_and_keeps_the_others() {
        let before = MountFlags::NOSUID | MountFlags::NODEV | MountFlags::RELATIME;
        let after = |list: &str| flags_after(before, &MountOptions::parse(list).unwrap());
        assert_eq!(after("remount,ro"), before | MountFlags::RDONLY);
        assert_eq!(after("remount"), before);
        assert_eq!(after("remount,rw,noexec"), before | MountFlags::NOEXEC);
        assert_eq!(after("remount,suid"), MountFlags::NODEV | MountFlags::RELATIME);
        assert_eq!(after("remount,dev,noatime"), MountFlags::NOSUID | MountFlags::NOATIME);
        assert_eq!(after("remount,suid,nosuid"), before);
        let read_only = flags_after(before | MountFlags::RDONLY, &MountOptions::parse("remount,rw").unwrap());
        assert_eq!(read_only, before);
    }
}
