//! Files wherever they lie: in a directory of the host, or in one of an image. The file verbs see only this.
//!
//! Names are single names, looked up in an open directory and never through a symbolic link, so that nothing
//! an image says can lead a verb out of the place that the user named. `.` is the directory itself.

mod attributes;
mod content;
mod directory;
pub mod host;
pub mod image;
pub mod locate;
mod names;
mod shared_path;
mod status;

pub use attributes::{ACCESS_LISTS, Attributed, CAPABILITIES, Change, WITHOUT_SET_ID_BITS, give_owner};
pub use content::{Renamed, Shared, Sink, Source, Take};
pub use directory::{Directory, Location, Origin};
pub use names::{DirectoryNames, Entry, Names, check_entry};
pub use status::{FileStatus, FileTimes, Owner};
