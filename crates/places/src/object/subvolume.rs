//! Subvolumes of an opened image, by their numbers.

use vlinder_format::RootId;
use vlinder_fs::{FsError, SubvolumeInformation};

use crate::failure::{Failure, Kind};
use crate::place::image::{OpenImage, from_fs};

/// What is known of a subvolume.
///
/// # Errors
/// [`Kind::NotFound`] where there is none of this number; what the file system said.
pub fn information(image: &OpenImage, root: RootId) -> Result<SubvolumeInformation, Failure> {
    image.filesystem.subvolumes().information(root).map_err(|error| of_subvolume(error, root, &image.label))
}

/// What went wrong with a subvolume that was given by its number.
pub fn of_subvolume(error: FsError, root: RootId, label: &str) -> Failure {
    let failure = from_fs(error, format!("{label}: subvolume {root}"));
    if failure.kind == Kind::NotFound { missing(&root.to_string()).at(label) } else { failure }
}

/// No subvolume answers to this.
pub fn missing(what: &str) -> Failure {
    Failure::new(Kind::NotFound, format!("there is no subvolume {what}"))
        .hint("list them with subvolume list")
}
