//! Sockets of servers that were killed: nobody removes them but the next server of the same directory.

use std::ffi::OsStr;
use std::os::unix::fs::FileTypeExt;
use std::path::Path;

use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType, connect, socket_with};

/// Removes what no server listens at any more. The caller holds the directory's lock, so that no socket is
/// bound and not yet listened at.
pub(crate) fn remove_from(directory: &Path) {
    let entries = std::fs::read_dir(directory).into_iter().flatten().flatten();
    for path in entries.map(|entry| entry.path()) {
        let is_socket = std::fs::symlink_metadata(&path).is_ok_and(|status| status.file_type().is_socket());
        if is_socket && path.extension() == Some(OsStr::new("sock")) && is_dead(&path) {
            match std::fs::remove_file(&path) {
                Ok(()) => {
                    tracing::debug!(path = %path.display(), "removed the socket of a server that is gone")
                }
                Err(error) => tracing::debug!(%error, path = %path.display(), "a dead socket stays"),
            }
        }
    }
}

/// Whether the kernel refuses connections. A server that is busy or stopped is not dead, and not waited for.
fn is_dead(path: &Path) -> bool {
    let flags = SocketFlags::NONBLOCK.union(SocketFlags::CLOEXEC);
    let Ok(address) = SocketAddrUnix::new(path) else { return false };
    let Ok(socket) = socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None) else { return false };
    connect(&socket, &address) == Err(Errno::CONNREFUSED)
}

#[cfg(test)]
mod tests {
    use std::os::unix::net::{UnixListener, UnixStream};

    use vlinder_testkit::Scratch;

    use super::*;

    #[test]
    fn dead_sockets_go_and_nothing_else() {
        let scratch = Scratch::new("dead-sockets");
        let at = |name: &str| scratch.join(name);
        let living = UnixListener::bind(at("0:1.sock")).unwrap();
        drop(UnixListener::bind(at("0:2.sock")).unwrap());
        drop(UnixListener::bind(at("other")).unwrap());
        std::fs::write(at("file.sock"), b"").unwrap();
        std::os::unix::fs::symlink(at("0:2.sock"), at("link.sock")).unwrap();
        remove_from(scratch.path());
        let mut left: Vec<_> =
            std::fs::read_dir(scratch.path()).unwrap().map(|entry| entry.unwrap().file_name()).collect();
        left.sort();
        assert_eq!(left, ["0:1.sock", "file.sock", "link.sock", "other"]);
        drop(living);
    }

    #[test]
    fn a_server_that_accepts_nobody_is_not_dead_and_not_waited_for() {
        let scratch = Scratch::new("busy-socket");
        let path = scratch.join("0:1.sock");
        let listener = UnixListener::bind(&path).unwrap();
        rustix::net::listen(&listener, 0).unwrap();
        let _waiting = UnixStream::connect(&path).unwrap();
        remove_from(scratch.path());
        assert!(path.exists());
    }
}
