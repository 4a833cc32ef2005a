//! The exclusion of files and block devices: writers are alone, readers share.
//!
//! It is made with locks of the open file (`F_OFD_SETLK`, fcntl(2)), which meet no flock(2). That one is left
//! to udev, which holds it on a block device while it looks at it, and to those who keep udev away with it:
//! systemd-repart holds it on the device that it has mkfs fill
//! (<https://systemd.io/BLOCK_DEVICE_LOCKING>). Two programs of ours meet each other wherever they name the
//! same file, and so does qemu, whose locks are of this kind, too.

use std::os::fd::{AsFd, OwnedFd};

use nix::fcntl::{FcntlArg, fcntl};
use rustix::io::Errno;

use super::options::LockMode;
use super::transfer;

/// Locks an open file, all of it and what will be added, or fails with `EAGAIN` where another has a lock that
/// forbids it.
///
/// The system gives the lock of a writer only to those that have the file open for writing. One that has it
/// open for reading and asks to be alone learns whether it is, and keeps writers away from then on.
///
/// # Errors
/// The system's.
pub(super) fn lock(file: &OwnedFd, mode: LockMode, is_writable: bool) -> Result<(), Errno> {
    match mode {
        LockMode::None => Ok(()),
        LockMode::Shared => set(file, libc::F_RDLCK),
        LockMode::Exclusive if is_writable => set(file, libc::F_WRLCK),
        LockMode::Exclusive => {
            let mut asked = whole_file(libc::F_WRLCK);
            call(file, FcntlArg::F_OFD_GETLK(&mut asked))?;
            if asked.l_type == libc::c_short::try_from(libc::F_UNLCK).unwrap_or_default() {
                set(file, libc::F_RDLCK)
            } else {
                Err(Errno::AGAIN)
            }
        }
    }
}

/// Lets go of a lock, if there is one, for all descriptors of the open file.
pub(super) fn unlock(file: &OwnedFd) -> Result<(), Errno> {
    set(file, libc::F_UNLCK)
}

fn set(file: &OwnedFd, kind: libc::c_int) -> Result<(), Errno> {
    let wanted = whole_file(kind);
    transfer::retry(|| call(file, FcntlArg::F_OFD_SETLK(&wanted))).map_err(|errno| match errno {
        // Both are the system's words for it.
        Errno::ACCESS => Errno::AGAIN,
        other => other,
    })
}

fn whole_file(kind: libc::c_int) -> libc::flock {
    let short = |number: libc::c_int| libc::c_short::try_from(number).unwrap_or_default();
    libc::flock { l_type: short(kind), l_whence: short(libc::SEEK_SET), l_start: 0, l_len: 0, l_pid: 0 }
}

fn call(file: &OwnedFd, argument: FcntlArg) -> Result<(), Errno> {
    fcntl(file.as_fd(), argument).map(drop).map_err(|errno| Errno::from_raw_os_error(errno as i32))
}
