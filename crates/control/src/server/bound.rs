//! The socket that a server listens at, and its place.

use std::io;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};

use rustix::fs::FlockOperation;

use super::error::ServerError;
use crate::location::{LocationError, SocketLocation};
use crate::{dead_sockets, last_resort};

/// A socket that is listened at.
pub(super) struct Bound {
    pub(super) listener: UnixListener,
    address: BoundAddress,
}

enum BoundAddress {
    File {
        path: PathBuf,
        /// The socket's file system and inode: a mount that got the device number after this one may have put
        /// its own in its place. The listener keeps the number from being used again.
        identity: (u64, u64),
    },
    /// A name that the mount tells. It has no mode, so who may connect is asked of each who does.
    Name { name: Vec<u8>, for_everybody: bool },
}

impl Bound {
    /// Makes the socket in the first place that can be used; where there is none, under a name that the mount
    /// has to tell.
    ///
    /// # Errors
    /// [`ServerError::NoPlace`].
    pub(super) fn to_first(locations: &[SocketLocation], owner: u32) -> Result<Self, ServerError> {
        let mut refused = Vec::new();
        for location in locations {
            match Self::to_file(location, owner) {
                Ok(bound) => {
                    for error in refused {
                        tracing::info!(%error, "a place for the control socket was passed over");
                    }
                    return Ok(bound);
                }
                Err(error) => refused.push(error),
            }
        }
        let Some(last) = locations.last() else { return Err(ServerError::NoPlace { refused }) };
        let name = last_resort::random_name(last.device());
        match last_resort::listen(&name) {
            Ok(listener) => {
                let reasons = refused.iter().map(ToString::to_string).collect::<Vec<_>>().join("; ");
                tracing::warn!(
                    reasons,
                    "no directory can hold the control socket, so the mount itself tells its name; verbs of other network namespaces can't ask the server"
                );
                let address = BoundAddress::Name { name, for_everybody: last.for_everybody };
                Ok(Self { listener, address })
            }
            Err(source) => {
                let path = PathBuf::from(format!("the name {}", String::from_utf8_lossy(&name)));
                refused.push(LocationError::Host { path, source });
                Err(ServerError::NoPlace { refused })
            }
        }
    }

    fn to_file(location: &SocketLocation, owner: u32) -> Result<Self, LocationError> {
        let path = location.path();
        location.prepare(owner)?;
        match bind(&path, location.for_everybody) {
            Ok((listener, identity)) => Ok(Self { listener, address: BoundAddress::File { path, identity } }),
            Err(source) => Err(LocationError::Host { path, source }),
        }
    }

    /// Where it lies, if in a directory.
    pub(super) fn path(&self) -> Option<&Path> {
        match &self.address {
            BoundAddress::File { path, .. } => Some(path),
            BoundAddress::Name { .. } => None,
        }
    }

    /// The name that the mount has to tell, if it has one.
    pub(super) fn told_name(&self) -> Option<&[u8]> {
        match &self.address {
            BoundAddress::File { .. } => None,
            BoundAddress::Name { name, .. } => Some(name),
        }
    }

    /// Whether others than root and the owner can connect and are to be refused.
    pub(super) fn is_for_privileged_alone(&self) -> bool {
        matches!(self.address, BoundAddress::Name { for_everybody: false, .. })
    }

    /// Removes the socket from its directory, unless another server's has taken its place.
    pub(super) fn remove(&self) -> io::Result<()> {
        let BoundAddress::File { path, identity } = &self.address else { return Ok(()) };
        let _lock = lock_directory_of(path)?;
        if identity_of(path)? == *identity {
            std::fs::remove_file(path)?;
        }
        Ok(())
    }
}

/// Puts a socket in place of what is there; and which it is.
fn bind(path: &Path, for_everybody: bool) -> io::Result<(UnixListener, (u64, u64))> {
    let _lock = lock_directory_of(path)?;
    dead_sockets::remove_from(path.parent().unwrap_or(Path::new("/")));
    match std::fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    let listener = UnixListener::bind(path)?;
    let mode = if for_everybody { 0o666 } else { 0o600 };
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode))?;
    Ok((listener, identity_of(path)?))
}

fn identity_of(path: &Path) -> io::Result<(u64, u64)> {
    let status = std::fs::symlink_metadata(path)?;
    Ok((status.dev(), status.ino()))
}

/// Held while sockets in the directory come and go, so that what was looked at is what is removed.
fn lock_directory_of(path: &Path) -> io::Result<std::fs::File> {
    let directory = std::fs::File::open(path.parent().unwrap_or(Path::new("/")))?;
    rustix::fs::flock(&directory, FlockOperation::LockExclusive)?;
    Ok(directory)
}
