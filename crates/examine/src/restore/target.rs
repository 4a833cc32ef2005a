//! The directories that files are restored to.

use std::collections::{HashMap, VecDeque};

use vlinder_format::ObjectId;
use vlinder_format::inode::FileType;
use vlinder_fs::InodeId;
use vlinder_fs::salvage::{Name, Next};
use vlinder_places::failure::{Failure, Kind};
use vlinder_places::place::{Directory, FileStatus, Location};

/// Where files go that no directory has.
pub(super) const LOST_AND_FOUND: &[u8] = b"lost+found";
/// Of a directory as long as it is being filled, and of those in lost+found: what it hides in the image is
/// not shown to others before it has the mode that it had there.
pub(super) const WHILE_FILLED: u32 = 0o700;

/// A directory that is being restored.
pub(super) struct RestoreFrame {
    pub(super) id: InodeId,
    /// None in a dry run.
    pub(super) to: Option<Directory>,
    /// It was made here, so that its mode is not settled yet.
    pub(super) is_new: bool,
    /// Length of the path of the directory above.
    pub(super) above: usize,
    pub(super) names: VecDeque<Name>,
    /// Where the next names are; none at the end.
    pub(super) next: Option<Next>,
    /// Some indexes are lost: names are looked for by their hashes too, and then come a second time.
    pub(super) is_doubtful: bool,
    /// Which inode each name that came stands for. A hash of the name takes the same memory for long names
    /// and short ones.
    pub(super) came: HashMap<u64, ObjectId>,
}

impl RestoreFrame {
    /// A directory of which no name came yet.
    pub(super) fn new(id: InodeId, to: Option<Directory>, is_new: bool, above: usize) -> Self {
        Self {
            id,
            to,
            is_new,
            above,
            names: VecDeque::new(),
            next: Some(None),
            is_doubtful: false,
            came: HashMap::new(),
        }
    }
}

/// In a dry run nothing is made, so that what was seen is as good as there.
pub(super) fn is_there(to: Option<&Location>) -> Result<bool, Failure> {
    to.map_or(Ok(true), |to| to.look().map(|found| found.is_some()))
}

/// Makes a directory, where it is not there, and enters it.
pub(super) fn make_directory(to: &Location, existing: Option<&FileStatus>) -> Result<Directory, Failure> {
    match existing {
        Some(existing) if existing.file_type == FileType::Directory => {}
        Some(_) => return Err(Failure::new(Kind::Exists, "it is there, and is no directory")),
        None => to.directory.make_directory(&to.name, WHILE_FILLED)?,
    }
    to.directory.enter(&to.name)
}

/// The directory `lost+found/NAME`.
pub(super) fn lost_and_found(target: &Directory, name: &[u8]) -> Result<Directory, Failure> {
    let mut directory = target.clone();
    for name in [LOST_AND_FOUND, name] {
        let to = Location { directory: directory.clone(), name: name.to_vec() };
        directory = make_directory(&to, to.look()?.as_ref())?;
    }
    Ok(directory)
}
