//! Taking a mount away: as root by the system call, else with `fusermount3`.

use std::io;
use std::path::Path;
use std::process::Command;

use rustix::io::Errno;
use rustix::mount::UnmountFlags;

/// Why a mount is still there.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refused {
    /// What the system said.
    pub message: String,
    /// It is in use.
    pub is_busy: bool,
}

/// Unmounts; lazily, where that is wanted: it vanishes from the tree now and ends when its last user is gone.
///
/// # Errors
/// What the system, or the program, said.
pub fn unmount(mountpoint: &Path, lazily: bool) -> Result<(), Refused> {
    let flags = if lazily { UnmountFlags::DETACH } else { UnmountFlags::empty() };
    match rustix::mount::unmount(mountpoint, flags | UnmountFlags::NOFOLLOW) {
        Ok(()) => return Ok(()),
        Err(Errno::PERM) => {}
        Err(errno) => {
            let text = io::Error::from(errno).to_string();
            // Without Rust's number behind the system's words.
            let message = text.split(" (os error").next().unwrap_or_default().to_owned();
            return Err(Refused { message, is_busy: errno == Errno::BUSY });
        }
    }
    let mut program = Command::new("fusermount3");
    program.arg("-u").args(lazily.then_some("-z")).arg("--").arg(mountpoint);
    let output = program
        .output()
        .map_err(|error| Refused { message: format!("fusermount3 can't be run: {error}"), is_busy: false })?;
    if output.status.success() {
        return Ok(());
    }
    let message = String::from_utf8_lossy(&output.stderr).trim().to_owned();
    Err(Refused { is_busy: message.contains("busy"), message })
}
