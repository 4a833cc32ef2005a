//! What keeps a file verb from what its user hardly means.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use vlinder_format::inode::FileType;
use vlinder_places::devices::Purpose;
use vlinder_places::failure::{Failure, Kind};
use vlinder_places::image::Images;
use vlinder_places::place::{Directory, Location, locate};
use vlinder_places::target::{Follow, Target, meant_in_image};

/// The location of a name that is to be removed or moved. With a slash behind it, it has to be a directory's:
/// what a symbolic link leads to has another name, by which it can be removed.
pub(super) fn locate_name(images: &Images<'_>, target: &OsStr) -> Result<Location, Failure> {
    let bytes = target.as_bytes();
    let name = &bytes[..bytes.len() - trailing_slashes(bytes)];
    // Without its slash the root would be no path in an image any more.
    if name.len() < bytes.len() && !name.is_empty() && !name.ends_with(b":") {
        let location = images.locate(OsStr::from_bytes(name), Purpose::Write, Follow::No)?;
        if location.look()?.is_some_and(|status| status.file_type != FileType::Directory) {
            return Err(Failure::new(Kind::Invalid, "not a directory")
                .at(location.place())
                .hint("leave out the slash behind it to name the file or symbolic link itself"));
        }
    }
    images.locate(target, Purpose::Write, Follow::No)
}

fn trailing_slashes(name: &[u8]) -> usize {
    name.iter().rev().take_while(|byte| **byte == b'/').count()
}

/// As [`spare_image`], for the target of a file. Refuses as well to make a file `disk.img:name` beside an
/// image `disk.img`, for that is how a path in it is often written.
pub(super) fn spare_target(location: &Location, forced: bool) -> Result<(), Failure> {
    spare_image(location, forced)?;
    if forced {
        return Ok(());
    }
    refuse_slip(location).map_err(|failure| {
        let hint = failure.hint.clone().unwrap_or_default();
        failure.hint(format!("{hint}; if the file is meant, give -f"))
    })
}

/// Refuses to make `disk.img:name` beside an image `disk.img`.
pub(super) fn refuse_slip(location: &Location) -> Result<(), Failure> {
    if location.directory.is_image() {
        return Ok(());
    }
    let place = location.place();
    let Some(target @ Target::Image { image, .. }) = &meant_in_image(Path::new(&place)) else {
        return Ok(());
    };
    let found = locate::on_host(image, Follow::Yes)?;
    let is_image = match &found.directory {
        Directory::Host(directory) => directory.is_image(&found.name)?,
        Directory::Image(_) => false,
    };
    if !is_image || location.look()?.is_some() {
        return Ok(());
    }
    let failure = Failure::new(Kind::Invalid, "it would be a file or directory of the host").at(place);
    Err(failure.hint(format!("a path in the image is written {target}")))
}

/// Refuses to replace or remove a file of the host that is an image by itself: who names it mostly forgot the
/// `:/` behind it, and would lose all that is in it.
pub(super) fn spare_image(location: &Location, forced: bool) -> Result<(), Failure> {
    let Directory::Host(directory) = &location.directory else { return Ok(()) };
    if forced || !directory.is_image(&location.name)? {
        return Ok(());
    }
    let place = location.place();
    let hint = format!("a path in it is written {place}:/PATH; if the image itself is meant, give -f");
    Err(Failure::new(Kind::Exists, "it holds a Btrfs file system, all of which would be lost")
        .at(place)
        .hint(hint))
}
