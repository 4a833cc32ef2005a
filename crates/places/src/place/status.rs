//! What is known of a file, wherever it lies.

use vlinder_format::inode::{FileType, GroupId, Timestamp, UserId};

/// What `stat` knows of a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FileStatus {
    /// Its type.
    pub file_type: FileType,
    /// The twelve permission bits.
    pub permissions: u32,
    /// The owner.
    pub user: u32,
    /// The owning group.
    pub group: u32,
    /// Names.
    pub links: u64,
    /// Bytes.
    pub size_bytes: u64,
    /// Bytes that it takes.
    pub allocated_bytes: u64,
    /// The device of a device node: major, minor.
    pub device: (u32, u32),
    /// Which file system or subvolume it lies in.
    pub volume: u64,
    /// Its number there.
    pub inode: u64,
    /// When what happened to it last.
    pub times: FileTimes,
}

/// The times of a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FileTimes {
    /// Last access.
    pub access: Timestamp,
    /// Last change of the content.
    pub modification: Timestamp,
    /// Last change of the inode.
    pub change: Timestamp,
    /// Creation, where it is known.
    pub birth: Option<Timestamp>,
}

/// An owner and a group that a file can be given. Neither is 2^32-1, which an image may hold: chown(2) takes
/// that number as "leave it as it is", and would report success while the file stays the caller's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Owner {
    user: UserId,
    group: GroupId,
}

impl Owner {
    /// The owner of these numbers; none where a number is no id.
    pub fn new(user: u32, group: u32) -> Option<Self> {
        let (user, group) = (UserId(user), GroupId(group));
        (user.is_id() && group.is_id()).then_some(Self { user, group })
    }

    /// The user.
    pub(crate) const fn user(self) -> UserId {
        self.user
    }

    /// The group.
    pub(crate) const fn group(self) -> GroupId {
        self.group
    }
}
