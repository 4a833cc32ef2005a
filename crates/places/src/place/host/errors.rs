//! What the system said about a path of the host.

use std::fmt::Display;
use std::path::Path;

use rustix::io::Errno;

use crate::failure::Failure;
use crate::target::meant_in_image;

/// The failure for what a system call said of `place`.
pub(super) fn failure_at(errno: Errno, place: impl Display) -> Failure {
    Failure::host(&errno.into(), place)
}

/// As [`failure_at`], for a path that a user may have written; with how it is written, where it seems to lead
/// into an image.
pub(in crate::place) fn failure_of_path(errno: Errno, path: &Path, place: impl Display) -> Failure {
    let failure = failure_at(errno, place);
    match meant_in_image(path).filter(|_| matches!(errno, Errno::NOENT | Errno::NOTDIR)) {
        Some(target) => failure.hint(format!("a path in an image is written {target}")),
        None => failure,
    }
}
