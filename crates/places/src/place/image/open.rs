//! An opened image, and what its file system tells of a file.

use vlinder_fs::{Caller, Filesystem, Inode};

use crate::place::status::{FileStatus, FileTimes};

/// An opened image, shared by all its directories.
pub struct OpenImage {
    /// The file system.
    pub filesystem: Filesystem,
    /// As whom the verb acts.
    pub caller: Caller,
    /// What the image is called in messages.
    pub label: String,
}

/// What `lstat` says of a file.
pub fn status_of(filesystem: &Filesystem, inode: &Inode) -> FileStatus {
    let found = filesystem.attributes().of(inode);
    let number = |part: u64| u32::try_from(part).unwrap_or(u32::MAX);
    FileStatus {
        file_type: found.file_type,
        permissions: found.mode.permissions(),
        user: found.user.0,
        group: found.group.0,
        links: found.link_count.into(),
        size_bytes: found.size_bytes,
        allocated_bytes: found.allocated_bytes,
        device: (number(found.device_number.major()), number(found.device_number.minor())),
        volume: found.id.root.0,
        inode: found.id.number.0,
        times: FileTimes {
            access: found.access_time,
            modification: found.modification_time,
            change: found.change_time,
            birth: Some(found.birth_time),
        },
    }
}
