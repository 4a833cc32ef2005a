//! As whom verbs act.

use vlinder_format::inode::{GroupId, UserId};
use vlinder_fs::Caller;

/// As whom verbs act in an image. Who may write the image's bytes may do anything in it; what is made belongs
/// to the user.
pub(crate) fn caller() -> Caller {
    let (user, group) = (rustix::process::geteuid().as_raw(), rustix::process::getegid().as_raw());
    Caller { user: UserId(user), group: GroupId(group), umask: umask(), ..Caller::superuser() }
}

/// The permissions that what this process makes does not get.
pub fn umask() -> u32 {
    let umask = rustix::process::umask(rustix::fs::Mode::empty());
    rustix::process::umask(umask);
    umask.bits()
}
