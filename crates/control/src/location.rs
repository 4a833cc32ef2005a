//! Where a mount's socket lies: `MAJ:MIN.sock`, by the device number that stat(2) shows in the mount, in
//!
//! | directory | for mounts of |
//! |---|---|
//! | `/run/vlinder` | root |
//! | `$XDG_RUNTIME_DIR/vlinder` | others, unless everybody may use the mount (`allow_other`) |
//! | `/tmp/vlinder-UID` (0711) | others where that is not set or everybody may use the mount |
//!
//! A client looks at all three, and trusts a directory and a socket only if they belong to the one who mounted.

use std::fs::DirBuilder;
use std::io;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};

use crate::mounts::MountEntry;

/// A place for a socket that can't be used.
#[derive(Debug, thiserror::Error)]
pub enum LocationError {
    /// Something that is no directory, of somebody else, or that others may write to.
    #[error("{} is not safe for a control socket: {reason}; remove it", .path.display())]
    Unsafe {
        /// What.
        path: PathBuf,
        /// Why.
        reason: &'static str,
    },
    /// It can't be made or looked at.
    #[error("{} can't be used for a control socket: {source}; see that it is there, and that you may use it", .path.display())]
    Host {
        /// What.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
}

/// Where a server puts its socket.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SocketLocation {
    /// The directory.
    pub directory: PathBuf,
    /// Others than the owner may connect.
    pub for_everybody: bool,
    name: String,
}

impl SocketLocation {
    /// The place for the mount of this device number, made by this user.
    #[must_use]
    pub fn for_server(device: (u32, u32), user: u32, allow_other: bool) -> Self {
        let runtime = std::env::var_os("XDG_RUNTIME_DIR").filter(|_| !allow_other).map(PathBuf::from);
        let directory = match runtime {
            _ if user == 0 => PathBuf::from("/run/vlinder"),
            Some(runtime) if runtime.is_absolute() => runtime.join("vlinder"),
            _ => shared_directory(user),
        };
        Self { directory, for_everybody: allow_other, name: socket_name(device) }
    }

    /// A place of one's own choice, for tests.
    #[must_use]
    pub fn in_directory(directory: PathBuf, device: (u32, u32), allow_other: bool) -> Self {
        Self { directory, for_everybody: allow_other, name: socket_name(device) }
    }

    /// The socket.
    #[must_use]
    pub fn path(&self) -> PathBuf {
        self.directory.join(&self.name)
    }

    /// Makes the directory, or sees that the one that is there is safe.
    ///
    /// # Errors
    /// It can't be made, or is not safe.
    pub(crate) fn prepare(&self, user: u32) -> Result<(), LocationError> {
        let path = &self.directory;
        match DirBuilder::new().mode(0o711).create(path) {
            Ok(()) => {
                // The umask may have taken the right to search away, which others need.
                let permissions = std::fs::Permissions::from_mode(0o711);
                std::fs::set_permissions(path, permissions)
                    .map_err(|source| LocationError::Host { path: path.clone(), source })?;
            }
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
            Err(source) => return Err(LocationError::Host { path: path.clone(), source }),
        }
        check_directory(path, user)
    }
}

/// The sockets that a client may try for a mount, with the one whom each must belong to.
#[must_use]
pub fn candidates(entry: &MountEntry) -> Vec<(PathBuf, u32)> {
    let owner = entry.owner.unwrap_or(0);
    let mut directories = Vec::new();
    if owner == 0 {
        directories.push(PathBuf::from("/run/vlinder"));
    }
    if let Some(runtime) =
        std::env::var_os("XDG_RUNTIME_DIR").map(PathBuf::from).filter(|path| path.is_absolute())
    {
        directories.push(runtime.join("vlinder"));
    }
    // Root looks into the owner's runtime directory, too.
    directories.push(PathBuf::from(format!("/run/user/{owner}/vlinder")));
    directories.push(shared_directory(owner));
    directories.into_iter().map(|directory| (directory.join(socket_name(entry.device)), owner)).collect()
}

/// Sees that a directory and a socket in it belong to this user and nobody else could have put them there.
///
/// # Errors
/// What is wrong; with [`io::ErrorKind::NotFound`] inside where there is none.
pub fn check_socket(path: &Path, owner: u32) -> Result<(), LocationError> {
    check_directory(path.parent().unwrap_or(Path::new("/")), owner)?;
    let status = std::fs::symlink_metadata(path)
        .map_err(|source| LocationError::Host { path: path.to_owned(), source })?;
    let reason = match () {
        () if status.uid() != owner => "it belongs to somebody else than the mount",
        () if status.mode() & 0o170_000 != 0o140_000 => "it is no socket",
        () => return Ok(()),
    };
    Err(LocationError::Unsafe { path: path.to_owned(), reason })
}

fn check_directory(path: &Path, owner: u32) -> Result<(), LocationError> {
    let status = std::fs::symlink_metadata(path)
        .map_err(|source| LocationError::Host { path: path.to_owned(), source })?;
    let reason = match () {
        () if !status.is_dir() => "it is no directory",
        () if status.uid() != owner => "it belongs to somebody else",
        () if status.mode() & 0o022 != 0 => "others may write to it",
        () => return Ok(()),
    };
    Err(LocationError::Unsafe { path: path.to_owned(), reason })
}

fn shared_directory(user: u32) -> PathBuf {
    PathBuf::from(format!("/tmp/vlinder-{user}"))
}

fn socket_name(device: (u32, u32)) -> String {
    format!("{}:{}.sock", device.0, device.1)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn user() -> u32 {
        rustix::process::geteuid().as_raw()
    }

    #[test]
    fn the_place_follows_the_user_and_allow_other() {
        let of_root = SocketLocation::for_server((0, 41), 0, true);
        assert_eq!(of_root.path(), Path::new("/run/vlinder/0:41.sock"));
        let shared = SocketLocation::for_server((0, 41), 1000, true);
        assert_eq!(shared.path(), Path::new("/tmp/vlinder-1000/0:41.sock"));
    }

    #[test]
    fn directories_of_others_or_open_to_others_are_refused() {
        let scratch = vlinder_testkit::Scratch::new("location");
        let location = SocketLocation::in_directory(scratch.join("own"), (1, 2), false);
        location.prepare(user()).unwrap();
        location.prepare(user()).unwrap();
        assert!(matches!(location.prepare(user() + 1), Err(LocationError::Unsafe { .. })));
        std::fs::set_permissions(&location.directory, std::fs::Permissions::from_mode(0o777)).unwrap();
        assert!(matches!(location.prepare(user()), Err(LocationError::Unsafe { .. })));
        std::os::unix::fs::symlink("/", scratch.join("link")).unwrap();
        let linked = SocketLocation::in_directory(scratch.join("link"), (1, 2), false);
        assert!(matches!(linked.prepare(user()), Err(LocationError::Unsafe { .. })));
    }

    #[test]
    fn a_file_in_place_of_the_socket_is_refused() {
        let scratch = vlinder_testkit::Scratch::new("location");
        let location = SocketLocation::in_directory(scratch.join("own"), (1, 2), false);
        location.prepare(user()).unwrap();
        assert!(matches!(check_socket(&location.path(), user()), Err(LocationError::Host { .. })));
        std::fs::write(location.path(), b"").unwrap();
        assert!(matches!(check_socket(&location.path(), user()), Err(LocationError::Unsafe { .. })));
    }
}
