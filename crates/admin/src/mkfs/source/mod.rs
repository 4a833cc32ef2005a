//! The tree that a new file system is filled from, handed on in an order that depends on the names alone. A
//! directory of the host is listed by one thread and loaded by several; an archive is read in one pass.
//!
//! [`Source::read`] gives a [`Sink`] a directory's entries in the order of the bytes of their names, in parts
//! of [`NAMES_IN_PART`](list::NAMES_IN_PART); then, for each directory among them in the same order,
//! what that directory holds. Small files come with their bytes; large ones are read piecewise
//! ([`Reading::contents`]) by the same threads that load entries.

mod archive;
mod choice;
mod directory;
mod dropped;
mod entry;
mod error;
mod host;
mod levels;
mod list;
mod load;
mod messages;
mod private_attributes;
mod reading;
mod rules;

pub use archive::ArchiveFault;
pub(super) use choice::{Source, SourceChoice};
pub(super) use directory::{SourceDirectory, join};
pub use dropped::{DroppedSource, read_source};
pub(super) use entry::{Content, Entry, Kind};
pub use error::SourceError;
pub(super) use error::shown;
pub(super) use reading::{Reading, Sink};
