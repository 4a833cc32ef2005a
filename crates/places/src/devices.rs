//! Opening the files and block devices that hold images.

use std::path::{Path, PathBuf};

use rustix::io::Errno;
use vlinder_base::sync::Arc;
use vlinder_control::MountEntry;
use vlinder_device::Device;
use vlinder_partitions::{ImageIdentity, ImageName};

use crate::failure::{Failure, Kind};
use crate::mounted;
use crate::target::Target;

/// What a verb will do with an image.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Purpose {
    /// Read, beside other readers.
    Read,
    /// Write, alone.
    Write,
    /// Look at a few bytes without asking who else has it open.
    Peek,
    /// Read a state that is leased from who holds it.
    Leased,
}

/// Opens one device, or a partition of one.
///
/// # Errors
/// Where it does not exist, is in use, or is no file.
pub fn open_device(path: &Path, purpose: Purpose) -> Result<Arc<dyn Device>, Failure> {
    if path.is_dir() {
        let failure = Failure::new(Kind::Invalid, "a directory, where an image or block device is needed");
        let hint = match MountEntry::at(path) {
            Ok(Some(mount)) if mount.is_ours() => {
                format!("{} is mounted there: name that", mount.source.display())
            }
            _ => "for a path of a mounted file system use the verbs that take one".to_owned(),
        };
        return Err(failure.at(path.display()).hint(hint));
    }
    let options = match purpose {
        Purpose::Read => vlinder_device::OpenOptions::reader(),
        Purpose::Write => vlinder_device::OpenOptions::writer(),
        Purpose::Peek => {
            vlinder_device::OpenOptions { read_only: true, allow_mounted: true, ..Default::default() }
        }
        Purpose::Leased => vlinder_device::OpenOptions { read_only: true, ..Default::default() },
    };
    vlinder_partitions::open(path, &options).map_err(|error| advise(error.into(), path, purpose))
}

/// What tells the bytes that a path names from all others.
///
/// # Errors
/// What the system says where the path leads nowhere.
pub(crate) fn identity(path: &Path) -> Result<ImageIdentity, Failure> {
    vlinder_partitions::identity(path).ok_or_else(|| {
        let errno = rustix::fs::stat(ImageName::of(path).file()).err().unwrap_or(Errno::NOENT);
        Failure::host(&errno.into(), path.display()).hint("check the path")
    })
}

/// A failure to open an image, with what helps there.
pub fn advise(failure: Failure, path: &Path, purpose: Purpose) -> Failure {
    match (failure.kind, purpose) {
        (Kind::NotFound, _) => match Target::parse(path.as_os_str()) {
            Ok(Target::Image { image, .. }) if image.is_file() => {
                failure.hint(format!("this verb takes the whole image: {}", image.display()))
            }
            _ => failure.hint("check the path"),
        },
        (Kind::Busy, _) => mounted::advise(failure, path),
        (Kind::Permission | Kind::ReadOnly, Purpose::Write) => failure
            .hint("this verb writes: make the file writable for you (and the file system that it lies on), or give -o ro if it should only read"),
        (Kind::Permission, _) => failure.hint("you may not read it: ask its owner, or become root"),
        _ => failure,
    }
}

/// Opens the devices of one file system.
///
/// # Errors
/// As [`open_device`].
pub fn open_devices(paths: &[PathBuf], purpose: Purpose) -> Result<Vec<Arc<dyn Device>>, Failure> {
    paths.iter().map(|path| open_device(path, purpose)).collect()
}
