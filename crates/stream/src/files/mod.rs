//! Streams as trees of files, without a file system.
//!
//! [`StreamIndex::add`] reads streams once, in order: full ones, and incremental ones that continue what was
//! read before. It carries each command out on names and attributes in memory; of data and of the values of
//! extended attributes it keeps where they lie. [`SubvolumeView`] lists the files of a subvolume and reads
//! them, by a second look at the streams ([`StreamBytes`]).
//!
//! What a stream says is judged as a receiver would judge it: paths lead through directories that are there
//! and never up or out, names are free before they are given, clones lie within their source. So an index is
//! also how a stream is verified.
//!
//! Reading path: [`StreamIndex`], `tree` (names), `apply` (commands), `content` (what a file holds),
//! [`SubvolumeView`], `sequence` (what both are made of).

mod apply;
mod content;
mod error;
mod index;
mod inode;
mod sequence;
mod subvolume;
#[cfg(test)]
mod tests;
mod tree;
mod view;

pub use error::{CommandFault, ContentError, IndexError, IndexFault, NeededSubvolume};
pub use index::StreamIndex;
pub use inode::FileId;
pub use view::{ContentPart, StreamBytes, StreamFileStatus, SubvolumeView};
