//! What is told of files on the socket.

use serde::{Deserialize, Serialize};

/// A run of a file, with the facts of FS_IOC_FIEMAP.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct FileRun {
    /// Where it begins in the file.
    pub offset_bytes: u64,
    /// Its bytes in the file.
    pub length_bytes: u64,
    /// Where it begins in the file system's address space; none for unflushed and inline data.
    pub logical_bytes: Option<u64>,
    /// Not on disk yet.
    pub delalloc: bool,
    /// Space that was never written.
    pub preallocated: bool,
    /// In the tree.
    pub inline: bool,
    /// Compressed.
    pub encoded: bool,
    /// Others refer to its extent too.
    pub shared: bool,
    /// The file's last.
    pub last: bool,
}
