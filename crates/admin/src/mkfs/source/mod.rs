//! The tree that a new file system is filled from: listed by one thread, loaded by several, and handed on in
//! an order that depends on the names alone.
//!
//! [`read`] sends [events](messages::Event): a directory's entries in the order of the bytes of their names,
//! in parts of [`NAMES_IN_PART`](list::NAMES_IN_PART); then, for each directory among them in the same order,
//! the events of that directory. Small files come with their bytes; large ones are read piecewise
//! ([`Reading::contents`]) by the same threads that load entries. A [`Sink`] takes all that.

mod directory;
mod dropped;
mod entry;
mod error;
mod levels;
mod list;
mod messages;
mod reading;

pub(super) use directory::{SourceDirectory, join, open_source};
pub use dropped::{DroppedSource, read_source};
pub(super) use entry::{Content, Entry, Kind, root_entry};
pub use error::SourceError;
pub(super) use error::shown;
pub(super) use reading::{Reading, Sink, read};
