//! Where a mount's socket lies: `MAJ:MIN.sock`, by the device number that stat(2) shows in the mount, in the
//! first of these directories that can be used:
//!
//! | | directory | for mounts of |
//! |---|---|---|
//! | 1 | `/run/vlinder` | root |
//! | 2 | `$XDG_RUNTIME_DIR/vlinder` | all |
//! | 3 | `/run/user/UID/vlinder` | all: the usual value of that, for a process that does not have it |
//! | 4 | `/tmp/vlinder-UID` | all |
//! | 5 | `/tmp/vlinder-UID-RANDOM` | all: anybody may have made the one before |
//! | 6 | none: a name that the mount tells (`last_resort`) | all, where no directory can be used |
//!
//! Where everybody may use the mount (`allow_other`), 2 and 3 come last, since others than the owner can't
//! reach them. A directory that can't be made, is not safe, or whose socket's path is too long for the
//! kernel, is skipped. A client looks at all of them in this order, and trusts a directory and a socket only
//! if they belong to the one who mounted. It asks the mount at last, if it trusts that user.

use std::fs::DirBuilder;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};

use vlinder_base::random::{OsRandom, Random};

use crate::mounts::MountEntry;

const ROOTS_DIRECTORY: &str = "/run/vlinder";
/// Where everybody may make directories, and nobody may touch another's.
const SHARED_PARENT: &str = "/tmp";

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
    /// The process that listens there was killed, and can't end before the kernel lets go of it.
    #[error("{}: process {process}, which serves it, was killed while the kernel waits for an answer of it", .path.display())]
    Dying {
        /// The socket.
        path: PathBuf,
        /// The process.
        process: i32,
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

/// A place where a server may put its socket.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SocketLocation {
    /// The directory.
    pub directory: PathBuf,
    /// Others than the owner may connect.
    pub for_everybody: bool,
    device: (u32, u32),
}

impl SocketLocation {
    /// The places for the mount of this device number, made by this user, in the order in which they are to
    /// be tried.
    #[must_use]
    pub fn for_server(device: (u32, u32), user: u32, allow_other: bool) -> Vec<Self> {
        let mut directories = directories(user, runtime_directory());
        // One that is there, so that a user's mounts do not each leave one behind.
        let random = own_directories(user).into_iter().next();
        directories.push(random.unwrap_or_else(|| random_directory(user)));
        if allow_other {
            // The sort keeps the order among equals.
            directories.sort_by_key(|directory| !is_reached_by_others(directory, user));
        }
        let at = |directory| Self { directory, for_everybody: allow_other, device };
        directories.into_iter().map(at).collect()
    }

    /// A place of one's own choice, for tests.
    #[must_use]
    pub fn in_directory(directory: PathBuf, device: (u32, u32), allow_other: bool) -> Self {
        Self { directory, for_everybody: allow_other, device }
    }

    /// The socket.
    #[must_use]
    pub fn path(&self) -> PathBuf {
        self.directory.join(socket_name(self.device))
    }

    /// The device number of the mount.
    pub(crate) fn device(&self) -> (u32, u32) {
        self.device
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

/// The sockets that a client may try for a mount, with the one whom each must belong to. The directories with
/// random names are looked for only where the others did not do.
pub fn candidates(entry: &MountEntry) -> impl Iterator<Item = (PathBuf, u32)> + use<> {
    let (owner, name) = (entry.owner.unwrap_or(0), socket_name(entry.device));
    let random = std::iter::once_with(move || own_directories(owner)).flatten();
    let directories = directories(owner, runtime_directory()).into_iter().chain(random);
    directories.map(move |directory| (directory.join(&name), owner))
}

/// The directories with fixed names for mounts of a user, in order.
fn directories(user: u32, runtime: Option<PathBuf>) -> Vec<PathBuf> {
    let mut directories = Vec::new();
    directories.extend((user == 0).then(|| PathBuf::from(ROOTS_DIRECTORY)));
    let usual = PathBuf::from(format!("/run/user/{user}"));
    let runtime = runtime.filter(|runtime| *runtime != usual);
    directories.extend(runtime.into_iter().chain([usual]).map(|runtime| runtime.join("vlinder")));
    directories.push(shared_directory(user));
    directories
}

fn runtime_directory() -> Option<PathBuf> {
    std::env::var_os("XDG_RUNTIME_DIR").map(PathBuf::from).filter(|path| path.is_absolute())
}

fn is_reached_by_others(directory: &Path, user: u32) -> bool {
    let name = directory.file_name().unwrap_or_default().as_bytes();
    let is_shared = || {
        directory.parent() == Some(Path::new(SHARED_PARENT)) && name.starts_with(shared_name(user).as_bytes())
    };
    directory == Path::new(ROOTS_DIRECTORY) || is_shared()
}

/// The directories with random names that a user has: those that are safe.
fn own_directories(user: u32) -> Vec<PathBuf> {
    let prefix = shared_name(user) + "-";
    let entries = std::fs::read_dir(SHARED_PARENT).into_iter().flatten().flatten();
    let named = entries.filter(|entry| entry.file_name().as_bytes().starts_with(prefix.as_bytes()));
    let mut own: Vec<PathBuf> =
        named.map(|entry| entry.path()).filter(|path| check_directory(path, user).is_ok()).collect();
    own.sort();
    own
}

/// One that nobody can have made before.
fn random_directory(user: u32) -> PathBuf {
    Path::new(SHARED_PARENT).join(format!("{}-{:016x}", shared_name(user), OsRandom.next_u64()))
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
    Path::new(SHARED_PARENT).join(shared_name(user))
}

fn shared_name(user: u32) -> String {
    format!("vlinder-{user}")
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

    fn shown(locations: &[SocketLocation]) -> Vec<String> {
        locations.iter().map(|location| location.directory.display().to_string()).collect()
    }

    #[test]
    fn a_server_tries_the_places_in_the_order_of_the_table() {
        let of_root = directories(0, Some("/there".into()));
        let expected = ["/run/vlinder", "/there/vlinder", "/run/user/0/vlinder", "/tmp/vlinder-0"];
        assert_eq!(of_root, expected.map(PathBuf::from));
        let of_user = directories(1000, Some("/run/user/1000".into()));
        assert_eq!(of_user, ["/run/user/1000/vlinder", "/tmp/vlinder-1000"].map(PathBuf::from));
        // A user that no system has.
        let user = u32::MAX - 7;
        let private = shown(&SocketLocation::for_server((0, 41), user, false));
        let last = private.last().unwrap();
        assert!(last.starts_with(&format!("/tmp/vlinder-{user}-")) && last.len() > 30, "{last}");
        let shared = SocketLocation::for_server((0, 41), user, true);
        assert_eq!(shared[0].path(), Path::new(&format!("/tmp/vlinder-{user}/0:41.sock")));
        assert!(shared[1].directory.starts_with("/tmp"));
        assert!(!shared[2].directory.starts_with("/tmp") && shared.len() == private.len());
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
