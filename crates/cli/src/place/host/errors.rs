//! What the system said about a path of the host.

use std::fmt::Display;
use std::path::Path;

use rustix::io::Errno;

use crate::failure::Failure;
use crate::target::meant_in_image;

/// A failure of a system call at a place.
pub(super) fn failure(errno: Errno, place: impl Display) -> Failure {
    Failure::host(&errno.into(), place)
}

/// As [`failure`], for a path that a user may have written; with how it is written, where it seems to lead
/// into an image.
pub(in crate::place) fn failure_of_path(errno: Errno, path: &Path, place: impl Display) -> Failure {
    let failure = failure(errno, place);
    match meant_in_image(path).filter(|_| matches!(errno, Errno::NOENT | Errno::NOTDIR)) {
        Some(target) => failure.hint(format!("a path in an image is written {target}")),
        None => failure,
    }
}
