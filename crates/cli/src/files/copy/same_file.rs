//! Which locations stand for one file.

use vlinder_places::place::{Directory, FileStatus, Location};

/// Whether two locations, of which the status is known, stand for one file.
pub(super) fn is_same_file(
    (one, one_status): (&Location, &FileStatus),
    (other, other_status): (&Location, &FileStatus),
) -> bool {
    (one.directory.origin(), one_status.volume, one_status.inode)
        == (other.directory.origin(), other_status.volume, other_status.inode)
}

/// A directory that was entered, by what it was entered by: on the host another file may have its name by
/// now.
pub(super) fn itself(entered: &Directory, named: &Location) -> Location {
    match entered {
        Directory::Host(_) => Location { directory: entered.clone(), name: b".".to_vec() },
        Directory::Image(_) => named.clone(),
    }
}
