//! The last place for a control socket: a name of the network namespace (an abstract address, unix(7)) that
//! nobody can guess, which the mount itself tells by an ioctl(2) on its root
//! ([`vlinder_device::ask_mount_name`]). It needs no directory; but a process in another network namespace
//! can't connect.
//!
//! A system call on a mount waits for its server. A server of root's or of one's own user that is stopped
//! keeps nobody from ending; that of a stranger could, so a stranger's mount is not asked.

use std::io;
use std::os::fd::OwnedFd;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixListener, UnixStream};
use std::time::Duration;

use rustix::fs::{Mode, OFlags};
use vlinder_base::channel;
use vlinder_base::random::{OsRandom, Random};
use vlinder_base::thread;

use crate::limits;
use crate::mounts::MountEntry;
use crate::peer::credentials_of;

/// A name that nobody can know but who is told it.
pub(crate) fn random_name(device: (u32, u32)) -> Vec<u8> {
    let (first, second) = (OsRandom.next_u64(), OsRandom.next_u64());
    format!("vlinder-{}:{}-{first:016x}{second:016x}", device.0, device.1).into_bytes()
}

/// Listens under a name.
///
/// # Errors
/// What the system says.
pub(crate) fn listen(name: &[u8]) -> io::Result<UnixListener> {
    UnixListener::bind_addr(&SocketAddr::from_abstract_name(name)?)
}

/// Connects to the name that a mount tells; `limit` is for the mount's answer.
///
/// # Errors
/// [`io::ErrorKind::NotFound`] where the mount is not asked, or tells no name; [`io::ErrorKind::TimedOut`];
/// [`io::ErrorKind::PermissionDenied`] where somebody else listens under it; what asking and connecting met.
pub(crate) fn connect(mount: &MountEntry, limit: Duration) -> io::Result<UnixStream> {
    if !limits::is_trusted(mount) {
        return Err(io::ErrorKind::NotFound.into());
    }
    let name = ask_within(mount.clone(), limit)?;
    let stream =
        limits::connect_to_address_within(&rustix::net::SocketAddrUnix::new_abstract_name(&name)?, limit)?;
    let is_owners = credentials_of(&stream)?.uid() == mount.owner.unwrap_or(0);
    if is_owners { Ok(stream) } else { Err(io::ErrorKind::PermissionDenied.into()) }
}

/// Asks in a thread of its own, which may wait for the server longer than anybody waits for the thread.
fn ask_within(mount: MountEntry, limit: Duration) -> io::Result<Vec<u8>> {
    let (sender, answer) = channel::bounded(1);
    thread::try_spawn("mount name", move || {
        // Nobody may wait any more.
        let _ = sender.send(ask(&mount));
    })?;
    answer.recv_timeout(limit).unwrap_or_else(|_| Err(io::ErrorKind::TimedOut.into()))
}

fn ask(mount: &MountEntry) -> io::Result<Vec<u8>> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let root: OwnedFd = match rustix::fs::open(&mount.mountpoint, flags, Mode::empty()) {
        // The root that is shown may be that of a file.
        Err(rustix::io::Errno::NOTDIR) => {
            let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::NOFOLLOW | OFlags::CLOEXEC;
            rustix::fs::open(&mount.mountpoint, flags, Mode::empty())?
        }
        root => root?,
    };
    let number = rustix::fs::fstat(&root)?.st_dev;
    if (rustix::fs::major(number), rustix::fs::minor(number)) != mount.device {
        // Something else was mounted on top.
        return Err(io::ErrorKind::NotFound.into());
    }
    match vlinder_device::ask_mount_name(&root) {
        Err(error) if error.raw_os_error() == Some(rustix::io::Errno::NOTTY.raw_os_error()) => {
            Err(io::ErrorKind::NotFound.into())
        }
        told => told,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_is_listened_at_by_one_server_and_can_be_told() {
        let name = random_name((0, 47));
        assert!(name.len() < vlinder_device::MOUNT_NAME_BYTES && name.starts_with(b"vlinder-0:47-"));
        assert_ne!(name, random_name((0, 47)));
        let listener = listen(&name).unwrap();
        assert!(listen(&name).is_err());
        let address = SocketAddr::from_abstract_name(&name).unwrap();
        let stream = UnixStream::connect_addr(&address).unwrap();
        assert_eq!(credentials_of(&stream).unwrap().uid(), rustix::process::geteuid().as_raw());
        drop(listener);
        assert!(UnixStream::connect_addr(&address).is_err());
    }
}
