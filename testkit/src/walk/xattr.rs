//! The extended attributes of one entry.

use std::ffi::OsStr;
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use rustix::io::Errno;

use super::short_hash::short_hash;

type Failed = (&'static str, Errno);

/// Names and hashes of values of all attributes that the user can list, in the order of names.
pub(super) fn hashes(
    directory: &OwnedFd,
    name: &[u8],
    ignored: &[String],
) -> Result<Vec<(Vec<u8>, String)>, Failed> {
    // There is no lgetxattrat(2) before Linux 6.13; the directory's entry in /proc serves as a short path to
    // it.
    let path = Path::new(&format!("/proc/self/fd/{}", directory.as_raw_fd())).join(OsStr::from_bytes(name));
    let listed = match read_all(|buffer| rustix::fs::llistxattr(&path, buffer)) {
        Ok(listed) => listed,
        Err(Errno::OPNOTSUPP) => return Ok(Vec::new()),
        Err(errno) => return Err(("llistxattr", errno)),
    };
    let mut names: Vec<&[u8]> = listed
        .split(|byte| *byte == 0)
        .filter(|name| !name.is_empty() && !ignored.iter().any(|prefix| name.starts_with(prefix.as_bytes())))
        .collect();
    names.sort_unstable();
    names.into_iter().map(|name| value_hash(&path, name)).collect()
}

fn value_hash(path: &Path, name: &[u8]) -> Result<(Vec<u8>, String), Failed> {
    let value = read_all(|buffer| rustix::fs::lgetxattr(path, OsStr::from_bytes(name), buffer));
    let value = value.map_err(|errno| ("lgetxattr", errno))?;
    Ok((name.to_vec(), short_hash(&value)))
}

/// Linux bounds both a value and the list of names at 64 KiB.
fn read_all(read: impl FnOnce(&mut [u8]) -> Result<usize, Errno>) -> Result<Vec<u8>, Errno> {
    let mut buffer = vec![0; 1 << 16];
    let length = read(&mut buffer)?;
    buffer.truncate(length);
    Ok(buffer)
}
