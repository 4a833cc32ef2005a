//! One entry of a source: what the image is told of a file.

use rustix::fs::Stat;
use vlinder_base::clock::Timestamp;

/// The bytes of a regular file.
pub(in super::super) enum Content {
    /// All of them.
    Loaded(Vec<u8>),
    /// To be read when it is written: it is large, has holes, or has other names under which it was perhaps
    /// written already.
    Unread,
}

/// What an entry is.
pub(in super::super) enum Kind {
    Regular(Content),
    Directory,
    SymbolicLink(Vec<u8>),
    /// Major and minor number.
    CharacterDevice(u32, u32),
    BlockDevice(u32, u32),
    Fifo,
    Socket,
}

/// What a file showed before its bytes were read. A writer changes one of these.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in super::super) struct FileState {
    /// Device and number: equal for all names of an inode.
    pub(in super::super) identity: (u64, u64),
    size_bytes: u64,
    /// Seconds and nanoseconds: of the bytes, and of anything.
    last_changes: [(i64, i64); 2],
}

impl FileState {
    /// Of a file that nobody else writes, an archive's.
    pub(super) fn still(identity: (u64, u64)) -> Self {
        Self { identity, size_bytes: 0, last_changes: [(0, 0); 2] }
    }

    pub(super) fn of(status: &Stat) -> Self {
        let time = |seconds, nanoseconds| (seconds, nanoseconds);
        Self {
            identity: (status.st_dev, status.st_ino),
            size_bytes: status.st_size.unsigned_abs(),
            last_changes: [
                time(status.st_mtime, status.st_mtime_nsec),
                time(status.st_ctime, status.st_ctime_nsec),
            ],
        }
    }
}

/// Name and value of an extended attribute.
pub(in super::super) type Attribute = (Vec<u8>, Vec<u8>);

/// An entry of a directory.
pub(in super::super) struct Entry {
    pub(in super::super) name: Vec<u8>,
    pub(in super::super) kind: Kind,
    pub(in super::super) seen: FileState,
    pub(in super::super) links: u64,
    /// Set-id, sticky and permission bits.
    pub(in super::super) permissions: u32,
    pub(in super::super) user: u32,
    pub(in super::super) group: u32,
    pub(in super::super) size_bytes: u64,
    /// It takes less space than its size, so it may have holes.
    pub(in super::super) may_have_holes: bool,
    pub(in super::super) access_time: Timestamp,
    pub(in super::super) modification_time: Timestamp,
    /// The table of owners names it.
    pub(in super::super) is_in_table: bool,
    /// In the order of their names.
    pub(in super::super) attributes: Vec<Attribute>,
}
