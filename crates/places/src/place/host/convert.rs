//! The system's types and those of a place.

use rustix::fs::{FileType as HostType, Gid, Timespec, Timestamps, Uid};
use vlinder_format::inode::{FileType, Timestamp};

use crate::place::status::{FileStatus, FileTimes, Owner};

/// The type of a file.
pub(super) fn file_type(host: HostType) -> FileType {
    match host {
        HostType::Directory => FileType::Directory,
        HostType::Symlink => FileType::SymbolicLink,
        HostType::CharacterDevice => FileType::CharacterDevice,
        HostType::BlockDevice => FileType::BlockDevice,
        HostType::Fifo => FileType::Fifo,
        HostType::Socket => FileType::Socket,
        _ => FileType::Regular,
    }
}

/// Owner and group, as the system takes them.
pub(super) fn host_owner(owner: Owner) -> (Uid, Gid) {
    (Uid::from_raw(owner.user().0), Gid::from_raw(owner.group().0))
}

/// Times of access and modification, as the system takes them.
pub(super) fn host_times((access, modification): (Timestamp, Timestamp)) -> Timestamps {
    let time = |time: Timestamp| Timespec { tv_sec: time.seconds, tv_nsec: time.nanoseconds.into() };
    Timestamps { last_access: time(access), last_modification: time(modification) }
}

/// What statx(2) says of a file.
pub(super) fn status_of(found: &rustix::fs::Statx) -> FileStatus {
    use rustix::fs::StatxFlags;
    let has_birth = StatxFlags::from_bits_retain(found.stx_mask).contains(StatxFlags::BTIME);
    let time =
        |time: rustix::fs::StatxTimestamp| Timestamp { seconds: time.tv_sec, nanoseconds: time.tv_nsec };
    FileStatus {
        file_type: file_type(HostType::from_raw_mode(found.stx_mode.into())),
        permissions: u32::from(found.stx_mode) & 0o7777,
        user: found.stx_uid,
        group: found.stx_gid,
        links: found.stx_nlink.into(),
        size_bytes: found.stx_size,
        allocated_bytes: found.stx_blocks.saturating_mul(512),
        device: (found.stx_rdev_major, found.stx_rdev_minor),
        volume: rustix::fs::makedev(found.stx_dev_major, found.stx_dev_minor),
        inode: found.stx_ino,
        times: FileTimes {
            access: time(found.stx_atime),
            modification: time(found.stx_mtime),
            change: time(found.stx_ctime),
            birth: has_birth.then(|| time(found.stx_btime)),
        },
    }
}
