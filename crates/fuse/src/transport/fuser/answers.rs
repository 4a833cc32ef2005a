//! Values as the crate `fuser` has them.

use std::cell::RefCell;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use ::fuser::{
    Errno, FileAttr, FileHandle, FileType, FopenFlags, INodeNo, LockOwner, OpenFlags, ReplyAttr, ReplyEmpty,
    ReplyXattr, TimeOrNow, WriteFlags,
};
use rustix::fs::OFlags;

use crate::transport::{
    HandleNumber, ListedName, NodeAttributes, NodeNumber, Reply, SeekFor, SetTime, Time, WriteOrigin,
};

/// More than any answer to a listing takes; the answer's own bound ends it.
pub(super) const DIRECTORY_ROOM: usize = 128 * 1024;

const TYPE_MASK: u32 = 0o170_000;

pub(super) fn node(number: INodeNo) -> NodeNumber {
    NodeNumber(number.0)
}

pub(super) fn handle(number: FileHandle) -> HandleNumber {
    HandleNumber(number.0)
}

pub(super) fn open_flags(direct: bool) -> FopenFlags {
    if !direct {
        return FopenFlags::FOPEN_KEEP_CACHE;
    }
    // Writes inside the file need not go one at a time: they lock what they change.
    FopenFlags::FOPEN_DIRECT_IO | FopenFlags::FOPEN_PARALLEL_DIRECT_WRITES
}

/// Whether a read or write of a file passes the page cache by: then it has an owner (`fuse_direct_io`,
/// fs/fuse/file.c).
pub(super) fn is_past_cache(lock_owner: Option<LockOwner>) -> bool {
    lock_owner.is_some()
}

pub(super) fn write_origin(
    write_flags: WriteFlags,
    flags: OpenFlags,
    lock_owner: Option<LockOwner>,
) -> WriteOrigin {
    let flags = OFlags::from_bits_retain(flags.0.cast_unsigned());
    WriteOrigin {
        cache: write_flags.contains(WriteFlags::FUSE_WRITE_CACHE),
        past_cache: is_past_cache(lock_owner),
        direct: flags.contains(OFlags::DIRECT),
        // O_DSYNC is a part of it.
        synchronous: flags.intersects(OFlags::SYNC),
        kills_privileges: write_flags.contains(WriteFlags::FUSE_WRITE_KILL_SUIDGID),
    }
}

pub(super) fn seek_for(whence: i32) -> Option<SeekFor> {
    const SEEK_DATA: i32 = 3;
    const SEEK_HOLE: i32 = 4;
    match whence {
        SEEK_DATA => Some(SeekFor::Data),
        SEEK_HOLE => Some(SeekFor::Hole),
        _ => None,
    }
}

pub(super) fn answer_attributes(validity: Duration, reply: ReplyAttr, result: Reply<NodeAttributes>) {
    match result {
        Ok(attributes) => {
            reply.attr(&validity_of(validity, &attributes), &attributes_of(&attributes, attributes.number))
        }
        Err(errno) => reply.error(to_errno(errno)),
    }
}

/// How long the kernel may keep attributes, and the name behind which it found them.
pub(super) fn validity_of(validity: Duration, attributes: &NodeAttributes) -> Duration {
    if attributes.is_volatile { Duration::ZERO } else { validity }
}

pub(super) fn answer_empty(reply: ReplyEmpty, result: Reply<()>) {
    match result {
        Ok(()) => reply.ok(),
        Err(errno) => reply.error(to_errno(errno)),
    }
}

pub(super) fn answer_attribute_value(reply: ReplyXattr, room: u32, result: Reply<Vec<u8>>) {
    match result {
        Ok(value) if room == 0 => reply.size(u32::try_from(value.len()).unwrap_or(u32::MAX)),
        Ok(value) if value.len() > room as usize => reply.error(Errno::ERANGE),
        Ok(value) => reply.data(&value),
        Err(errno) => reply.error(to_errno(errno)),
    }
}

pub(super) fn set_time(time: TimeOrNow) -> SetTime {
    match time {
        TimeOrNow::Now => SetTime::Now,
        TimeOrNow::SpecificTime(time) => SetTime::At(from_system_time(time)),
    }
}

pub(super) fn to_errno(errno: rustix::io::Errno) -> Errno {
    Errno::from_i32(errno.raw_os_error())
}

/// Answers EIO where a mistake of ours would end the thread, and with it, thread by thread, the mount.
pub(super) fn guarded<T>(answer: impl FnOnce() -> Reply<T>) -> Reply<T> {
    catch_unwind(AssertUnwindSafe(answer)).unwrap_or_else(|_| {
        tracing::error!("a request met a mistake in the program; it is answered with an I/O error");
        Err(rustix::io::Errno::IO)
    })
}

/// A buffer of the thread, used again for each read.
pub(super) fn with_buffer(length: usize, work: impl FnOnce(&mut [u8])) {
    thread_local! {
        static BUFFER: RefCell<Vec<u8>> = const { RefCell::new(Vec::new()) };
    }
    BUFFER.with_borrow_mut(|buffer| {
        if buffer.len() < length {
            buffer.resize(length, 0);
        }
        work(&mut buffer[..length]);
    });
}

pub(super) fn kind_of(mode: u32) -> FileType {
    match mode & TYPE_MASK {
        0o040_000 => FileType::Directory,
        0o120_000 => FileType::Symlink,
        0o060_000 => FileType::BlockDevice,
        0o020_000 => FileType::CharDevice,
        0o010_000 => FileType::NamedPipe,
        0o140_000 => FileType::Socket,
        _ => FileType::RegularFile,
    }
}

/// Attributes; `number` is what the kernel calls the file, which this crate takes for the inode number, too.
pub(super) fn attributes_of(attributes: &NodeAttributes, number: u64) -> FileAttr {
    FileAttr {
        ino: INodeNo(number),
        size: attributes.size_bytes,
        blocks: attributes.blocks,
        atime: to_system_time(attributes.access_time),
        mtime: to_system_time(attributes.modification_time),
        ctime: to_system_time(attributes.change_time),
        crtime: UNIX_EPOCH,
        kind: kind_of(attributes.mode),
        perm: (attributes.mode & 0o7777) as u16,
        nlink: attributes.links,
        uid: attributes.user,
        gid: attributes.group,
        rdev: attributes.device,
        blksize: attributes.block_size,
        flags: 0,
    }
}

fn empty(number: u64, mode: u32, size_bytes: u64) -> FileAttr {
    attributes_of(&NodeAttributes { mode, size_bytes, ..NodeAttributes::of_deleted(number) }, number)
}

/// The entry of a name that is not there: number 0, which the kernel remembers.
pub(super) fn absent() -> FileAttr {
    empty(0, 0, 0)
}

/// The entry of a file whose inode can't be read: a size that the kernel refuses, so that it lists the name
/// and asks again when the file is used.
pub(super) fn unreadable(name: &ListedName<'_>) -> FileAttr {
    empty(name.number, name.mode, u64::MAX)
}

fn to_system_time(time: Time) -> SystemTime {
    let nanoseconds = Duration::from_nanos(time.nanoseconds.into());
    // The kernel hands times back, and the thread that reads them ends at the least number of seconds, where
    // fuser 0.18 turns the sign and takes the nanoseconds away.
    let seconds = time.seconds.max(-i64::MAX);
    let whole = Duration::from_secs(seconds.unsigned_abs());
    let start = if seconds >= 0 { UNIX_EPOCH.checked_add(whole) } else { UNIX_EPOCH.checked_sub(whole) };
    start.and_then(|start| start.checked_add(nanoseconds)).unwrap_or(UNIX_EPOCH)
}

/// Undoes what `fuser` makes of the kernel's time: before 1970 it takes the nanoseconds away instead of
/// adding them.
pub(super) fn from_system_time(time: SystemTime) -> Time {
    match time.duration_since(UNIX_EPOCH) {
        Ok(since) => Time {
            seconds: i64::try_from(since.as_secs()).unwrap_or(i64::MAX),
            nanoseconds: since.subsec_nanos(),
        },
        Err(before) => {
            let before = before.duration();
            let seconds = i64::try_from(before.as_secs()).map_or(i64::MIN, |seconds| -seconds);
            Time { seconds, nanoseconds: before.subsec_nanos() }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What the kernel is told of the earliest time is a time that `fuser` can take from it.
    #[test]
    fn the_earliest_time_comes_back() {
        let earliest = Time { seconds: i64::MIN, nanoseconds: 999_999_999 };
        let told = to_system_time(earliest).duration_since(UNIX_EPOCH).unwrap_err().duration();
        // Its nanoseconds were added; fuser takes them away from these seconds.
        assert_eq!(told, Duration::new(i64::MAX.unsigned_abs() - 1, 1));
        let seconds = -i64::MAX;
        let taken = UNIX_EPOCH - Duration::new((-seconds).unsigned_abs(), 999_999_999);
        assert_eq!(from_system_time(taken), Time { seconds, nanoseconds: 999_999_999 });
    }

    #[test]
    fn times_before_1970_keep_their_nanoseconds() {
        // What fuser 0.18 makes of (-2 s, 800,000,000 ns).
        let odd = UNIX_EPOCH - Duration::new(2, 800_000_000);
        assert_eq!(from_system_time(odd), Time { seconds: -2, nanoseconds: 800_000_000 });
        let shown = to_system_time(Time { seconds: -2, nanoseconds: 800_000_000 });
        assert_eq!(shown, UNIX_EPOCH - Duration::new(1, 200_000_000));
        let later = Time { seconds: 7, nanoseconds: 9 };
        assert_eq!(from_system_time(to_system_time(later)), later);
        let early = Time { seconds: 1 - i64::MAX, nanoseconds: 5 };
        assert_eq!(
            to_system_time(early),
            UNIX_EPOCH - Duration::from_secs((1 << 63) - 2) + Duration::from_nanos(5)
        );
    }

    #[test]
    fn a_mistake_is_an_io_error() {
        let result = guarded(|| if true { panic!("on purpose") } else { Ok(()) });
        assert_eq!(result, Err(rustix::io::Errno::IO));
    }
}
