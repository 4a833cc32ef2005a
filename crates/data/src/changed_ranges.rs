//! What is told which parts of files changed.

use vlinder_extent_state::ByteRange;
use vlinder_format::{Generation, ObjectId};

/// What is told which ranges of the files of a subvolume got other items: the record from which an fsync
/// writes its log. It is told with the handle open that changes the items, and of one transaction after the
/// other.
pub trait ChangedRanges: Send + Sync {
    /// Items of these ranges of a file changed.
    fn note_ranges(&self, generation: Generation, inode: ObjectId, ranges: &[ByteRange]);
}
