//! An image by itself, without a path in it.

use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::os::unix::fs::FileTypeExt as _;
use std::path::Path;

use vlinder_places::place::host::has_filesystem;
use vlinder_places::target::{Target, escape_image};

/// The root of what is in an image, where a target names the image alone, or a part of a disk: a verb that
/// lists it means that.
pub(super) fn root_of_image(target: &OsStr) -> Option<OsString> {
    match Target::parse(target) {
        Ok(Target::Host(path)) if is_image(&path) => Some(escape_image(&path, b"/")),
        _ => None,
    }
}

/// Whether a path of the host is an image by itself, or names a part of a disk.
fn is_image(path: &Path) -> bool {
    let is_whole = path.metadata().is_ok_and(|found| found.is_file() || found.file_type().is_block_device())
        && File::open(path).is_ok_and(|file| has_filesystem(&file).unwrap_or(false));
    is_whole || vlinder_partitions::part_bytes(path).is_some()
}
