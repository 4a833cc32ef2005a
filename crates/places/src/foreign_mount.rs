//! Mounts of other users, as far as they explain why the system refuses a path.

use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use vlinder_control::MountEntry;

use crate::text::escaped;

/// Says which user may use the mount that a path lies on, where that is another user's mount that the kernel
/// shows to its owner alone.
pub fn owner_hint(path: &Path) -> Option<String> {
    let entry = MountEntry::by_name(path).ok()??;
    let owner = entry.owner.filter(|_| entry.is_ours() && entry.is_for_its_owner_alone())?;
    let mountpoint = escaped(entry.mountpoint.as_os_str().as_bytes());
    Some(format!(
        "{mountpoint} is a mount of user {owner} without allow_other, which nobody else may use, not even root: ask that user"
    ))
}
