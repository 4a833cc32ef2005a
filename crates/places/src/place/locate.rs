//! What a path names: on the host, and in an image.

use std::collections::VecDeque;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use rustix::fs::{CWD, Mode, OFlags};
use vlinder_base::sync::Arc;
use vlinder_format::inode::FileType;

use super::directory::{Directory, Location};
use super::host::{HostDirectory, failure_of_path};
use super::image::{ImageDirectory, OpenImage};
use super::shared_path::split;
use crate::failure::{Failure, Kind};
use crate::target::Follow;

/// Symbolic links on one path, as on Linux.
const MAX_LINKS: usize = 40;
/// Names on one path, those in symbolic links among them.
const MAX_NAMES: usize = 1 << 16;

/// Opens the directory that holds the last name of a path; the name itself need not be there. With
/// [`Follow::Yes`], a symbolic link at the end of the path is followed first.
///
/// # Errors
/// What the system said.
pub fn on_host(path: &Path, follow: Follow) -> Result<Location, Failure> {
    // lstat(2) of `link/` follows the link, so the slash goes.
    let plain = path.components().as_path();
    let is_link = plain.symlink_metadata().is_ok_and(|status| status.file_type().is_symlink());
    let resolved = if follow == Follow::Yes && is_link {
        std::fs::canonicalize(path).map_err(|error| Failure::host(&error, path.display()))?
    } else {
        path.to_owned()
    };
    let (parent, name) = match (resolved.parent(), resolved.file_name()) {
        (Some(parent), Some(name)) => (parent.to_owned(), name.as_bytes().to_vec()),
        _ => (resolved, b".".to_vec()),
    };
    let opened = if parent.as_os_str().is_empty() { Path::new(".") } else { &parent };
    let descriptor =
        open_directory(CWD, opened).map_err(|errno| failure_of_path(errno, path, path.display()))?;
    Ok(Location { directory: Directory::Host(HostDirectory::start_of_walk(descriptor, parent)), name })
}

/// A name in a directory that is held, and shown under a path.
///
/// # Errors
/// What the system said.
pub(crate) fn in_host_directory(
    directory: impl AsFd,
    shown: &Path,
    name: &[u8],
) -> Result<Location, Failure> {
    let descriptor = open_directory(directory, Path::new("."))
        .map_err(|errno| Failure::host(&errno.into(), shown.display()))?;
    let directory = Directory::Host(HostDirectory::start_of_walk(descriptor, shown.to_owned()));
    Ok(Location { directory, name: name.to_vec() })
}

fn open_directory(from: impl AsFd, path: &Path) -> rustix::io::Result<OwnedFd> {
    let flags = OFlags::DIRECTORY | OFlags::CLOEXEC;
    // A directory that may be searched but not read is enough to reach a name in it.
    rustix::fs::openat(&from, path, flags | OFlags::RDONLY, Mode::empty())
        .or_else(|_| rustix::fs::openat(&from, path, flags | OFlags::PATH, Mode::empty()))
}

/// The location that a path in an image names; where it is followed, that of what a symbolic link there leads
/// to.
pub(crate) fn in_image(image: &Arc<OpenImage>, path: &[u8], follow: Follow) -> Result<Location, Failure> {
    let root = ImageDirectory::root(image)?;
    let mut above: Vec<ImageDirectory> = Vec::new();
    let mut current = root.clone();
    let mut names: VecDeque<Vec<u8>> = split(path);
    let wants_directory = path.ends_with(b"/");
    let (mut links, mut steps) = (0, 0);
    while let Some(name) = names.pop_front() {
        steps += 1;
        if steps > MAX_NAMES {
            return Err(Failure::new(Kind::Invalid, "too many names").at(current.place(&name)));
        }
        if name == b"." {
            continue;
        }
        if name == b".." {
            // Above the root is the root.
            current = above.pop().unwrap_or(current);
            continue;
        }
        let is_last = names.is_empty();
        if is_last && follow == Follow::No && !wants_directory {
            return Ok(Location { directory: Directory::Image(current), name });
        }
        let found = match current.lookup(&name) {
            // The last name may be one that is to be made.
            Err(failure) if is_last && failure.kind == Kind::NotFound => {
                return Ok(Location { directory: Directory::Image(current), name });
            }
            other => other?,
        };
        match found.file_type() {
            FileType::SymbolicLink => {
                links += 1;
                if links > MAX_LINKS {
                    return Err(
                        Failure::new(Kind::Invalid, "too many symbolic links").at(current.place(&name))
                    );
                }
                let text = current.read_link(&name)?;
                if text.starts_with(b"/") {
                    above.clear();
                    current = root.clone();
                }
                for name in split(&text).into_iter().rev() {
                    names.push_front(name);
                }
            }
            FileType::Directory if !is_last => {
                let next = current.at(found.id(), &name);
                above.push(std::mem::replace(&mut current, next));
            }
            _ if is_last => return Ok(Location { directory: Directory::Image(current), name }),
            _ => return Err(Failure::new(Kind::Invalid, "not a directory").at(current.place(&name))),
        }
    }
    Ok(Location { directory: Directory::Image(current), name: b".".to_vec() })
}

/// The location that a symbolic link in an image leads to.
///
/// # Errors
/// As [`in_image`].
pub fn link_in_image(directory: &ImageDirectory, name: &[u8]) -> Result<Location, Failure> {
    in_image(directory.image(), &directory.path_to(name), Follow::Yes)
}
