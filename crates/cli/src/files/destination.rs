//! Where copies, moved files and links go.

use std::collections::HashMap;
use std::ffi::OsString;

use vlinder_format::inode::FileType;
use vlinder_places::devices::Purpose;
use vlinder_places::failure::{Failure, Kind};
use vlinder_places::image::Images;
use vlinder_places::place::{FileStatus, Location, Origin};
use vlinder_places::target::Follow;

/// Where copies go.
pub struct Destination {
    /// The directory, or the name.
    pub location: Location,
    /// Whether they go into it under their own names.
    pub is_directory: bool,
    /// It was named with a slash at its end, and is none yet.
    must_be_directory: bool,
}

impl Destination {
    /// Refuses several sources where they can't go into a directory.
    pub fn takes_so_many(&self, sources: usize) -> Result<(), Failure> {
        if sources > 1 && !self.is_directory {
            let failure = Failure::new(Kind::Invalid, "no directory, but there are several sources");
            return Err(failure.at(self.location.place()).hint("make it with mkdir first"));
        }
        Ok(())
    }

    /// Refuses a name with a slash at its end to what is no directory.
    pub fn takes(&self, file_type: FileType) -> Result<(), Failure> {
        if self.must_be_directory && file_type != FileType::Directory {
            return Err(Failure::new(Kind::NotFound, "no such directory").at(self.location.place()));
        }
        Ok(())
    }
}

/// What the last argument of `cp`, `mv` and `ln` means for so many sources. A symbolic link to a directory
/// stands for that directory, unless the argument is a name (`is_name`). One to anything else is followed by
/// `cp` alone, which writes what the link leads to; `mv` and `ln` give or take names, and the name is the
/// link's.
pub fn destination(
    images: &Images<'_>,
    target: &OsString,
    sources: usize,
    is_name: bool,
    follow: Follow,
) -> Result<Destination, Failure> {
    let is = |location: &Location, file_type: FileType| -> Result<bool, Failure> {
        Ok(location.look()?.is_some_and(|status| status.file_type == file_type))
    };
    let mut location = images.locate(target, Purpose::Write, Follow::No)?;
    if is(&location, FileType::SymbolicLink)? {
        if follow == Follow::Yes {
            let link = location.place();
            location = images.locate(target, Purpose::Write, Follow::Yes)?;
            if location.look()?.is_none() {
                return Err(dangling(link));
            }
        } else if !is_name
            && let Ok(leads_to) = images.locate(target, Purpose::Write, Follow::Yes)
            && is(&leads_to, FileType::Directory)?
        {
            location = leads_to;
        }
    }
    let is_directory = !is_name && is(&location, FileType::Directory)?;
    let must_be_directory = !is_directory && !is_name && target.as_encoded_bytes().ends_with(b"/");
    let destination = Destination { location, is_directory, must_be_directory };
    destination.takes_so_many(sources)?;
    Ok(destination)
}

/// Refuses to write through a link to what does not exist.
pub fn dangling(link: String) -> Failure {
    let failure = Failure::new(Kind::NotFound, "a symbolic link that leads nowhere").at(link);
    failure.hint("remove it first, or name what it leads to")
}

/// The failure of content that was to go to what is no file.
pub fn no_regular_file(to: &Location) -> Failure {
    Failure::new(Kind::Exists, "no regular file").at(to.place()).hint("remove it, or name another target")
}

/// The files that went into one directory by their own names: a second one of a name would take the place of
/// the first.
#[derive(Default)]
pub struct TakenNames(HashMap<Vec<u8>, (Origin, u64, u64)>);

impl TakenNames {
    /// Notes that a source takes a name; false where it has it already, because it was given twice.
    /// Directories are merged.
    pub fn take(&mut self, name: &[u8], source: &Location, status: &FileStatus) -> Result<bool, Failure> {
        if status.file_type == FileType::Directory {
            return Ok(true);
        }
        let identity = (source.directory.origin(), status.volume, status.inode);
        match self.0.insert(name.to_vec(), identity) {
            None => Ok(true),
            Some(before) if before == identity => Ok(false),
            Some(_) => {
                let text = "another source of the same name is there already, just copied";
                Err(Failure::new(Kind::Exists, text)
                    .at(source.place())
                    .hint("give one of them a name of its own in a command of its own"))
            }
        }
    }
}
