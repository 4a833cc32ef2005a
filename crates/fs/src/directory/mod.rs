//! Names in directories: what a name stands for, and listing them.

pub(crate) mod index;
mod read;
mod record;
pub(crate) mod target;

pub use read::OpenDirectory;
pub(crate) use read::open_directory;
pub use record::DirectoryRecord;

use vlinder_format::directory::LONGEST_NAME;

use crate::{Refusal, Result};

/// Bytes of the longest name.
pub(crate) const LONGEST: u32 = 255;
const _: () = assert!(LONGEST as usize == LONGEST_NAME);
/// Refuses names that no file can have. `.` and `..` are never in a directory.
pub(crate) fn check_name(name: &[u8]) -> Result<()> {
    if name.len() > LONGEST_NAME {
        return Err(Refusal::NameTooLong.into());
    }
    if name.is_empty() {
        return Err(Refusal::NotFound.into());
    }
    if name.contains(&b'/') || name.contains(&0) {
        return Err(Refusal::InvalidArgument.into());
    }
    Ok(())
}

/// As [`check_name`], for a name that is to be made or removed.
pub(crate) fn check_new_name(name: &[u8]) -> Result<()> {
    check_name(name)?;
    match name {
        b"." => Err(Refusal::InvalidArgument.into()),
        b".." => Err(Refusal::NotEmpty.into()),
        _ => Ok(()),
    }
}
