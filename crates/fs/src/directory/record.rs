//! A name of a listing.

use vlinder_data::InodeId;
use vlinder_format::inode::FileType;

/// One name of a listing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DirectoryRecord {
    /// The name.
    pub name: Vec<u8>,
    /// What it stands for. Of a nested subvolume its root directory, there or not:
    /// [`Names::lookup`](crate::Names::lookup) tells.
    pub id: InodeId,
    /// The file's type.
    pub file_type: FileType,
    /// Where it lies in the listing: 0 is `.`, 1 is `..`, then the names' indexes. The listing goes on at one
    /// more, and ends behind the last index, 2^64-1.
    pub offset: u64,
}
