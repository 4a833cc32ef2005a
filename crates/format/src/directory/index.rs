//! The order of the names in a directory.

use core::fmt;

use crate::record::wrapped;

/// A name's place in the order of its directory's names: the offset of its DIR_INDEX key, also kept in its
/// references.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct DirectoryIndex(pub u64);

impl DirectoryIndex {
    /// The first index that Linux gives to a name; 0 and 1 stand for `.` and `..` in `readdir`.
    pub const FIRST: Self = Self(2);
}

impl fmt::Display for DirectoryIndex {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(&self.0, formatter)
    }
}

wrapped! { DirectoryIndex => u64; }
