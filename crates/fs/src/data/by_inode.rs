//! File data by file system and inode: what callers of this crate use.

use std::borrow::Cow;

use vlinder_base::sync::Arc;
use vlinder_data::{Allocate, MappedExtent, OpenCache, Seek, Stretch};
use vlinder_extent_state::ByteRange;

use crate::inode::Inode;
use crate::{Filesystem, Result, RootId};

/// Reads the bytes of a file from `offset` on into `target`, and gives how many: fewer than asked for only at
/// the end of the file. The caller holds [`Inode::operation`], shared or exclusive.
///
/// # Errors
/// What the trees met, or a [`BytesError`](super::BytesError) for the first part of the file that no copy
/// has.
pub fn read(
    filesystem: &Filesystem,
    inode: &Inode,
    cache: &OpenCache,
    offset: u64,
    target: &mut [u8],
) -> Result<usize> {
    Ok(vlinder_data::read(filesystem.store(), inode.node(), cache, offset, target)?)
}

/// Reads data, and no holes: a stretch of the file, of a mebibyte at most, that begins with the first data at
/// or after an offset; none where only a hole follows. Preallocated ranges are holes. The memory of `used` is
/// used again. The caller holds [`Inode::operation`], shared or exclusive.
///
/// # Errors
/// As [`read`], for the first run of data.
pub fn read_data(
    filesystem: &Filesystem,
    inode: &Inode,
    cache: &OpenCache,
    offset: u64,
    used: Option<Stretch>,
) -> Result<Option<Stretch>> {
    Ok(vlinder_data::read_data(filesystem.store(), inode.node(), cache, offset, used)?)
}

/// lseek(2) for data and holes: the first offset at or after `offset` that lies in what is sought.
/// Preallocated ranges are holes. The caller holds [`Inode::operation`], shared or exclusive.
///
/// # Errors
/// [`Refusal::NoSuchOffset`](crate::Refusal::NoSuchOffset) at or behind the end of the file, or where no data
/// follow.
pub fn seek(
    filesystem: &Filesystem,
    inode: &Inode,
    cache: &OpenCache,
    offset: u64,
    what: Seek,
) -> Result<u64> {
    Ok(vlinder_data::seek(filesystem.store(), inode.node(), cache, offset, what)?)
}

/// The runs of a file that overlap a range, in order, at most `limit`; neighbours that lie one behind the
/// other are one. The caller holds [`Inode::operation`], shared or exclusive.
///
/// # Errors
/// What the trees met.
pub fn extent_map(
    filesystem: &Filesystem,
    inode: &Inode,
    cache: &OpenCache,
    range: ByteRange,
    limit: usize,
) -> Result<Vec<MappedExtent>> {
    Ok(vlinder_data::extent_map(filesystem.store(), inode.node(), cache, range, limit)?)
}

/// Writes bytes at an offset. They are in memory when this returns, with the space for them promised; a flush
/// puts them on disk. Bytes of an owned vector that begins at a sector border are not copied again, if it
/// ends at one or has capacity for the rest of its last sector. The size grows with what is written past the
/// end; times and set-id bits are the caller's, who holds [`Inode::operation`] exclusively, or shared for
/// whole sectors inside a file with copy-on-write.
///
/// # Errors
/// [`Refusal::NoSpace`](crate::Refusal::NoSpace), [`Refusal::FileTooLarge`](crate::Refusal::FileTooLarge), or
/// what reading the sectors that are written in part met; nothing is written then. Or what flushing met, to
/// make room for what comes next: the bytes are in memory then, as without an error.
pub fn write(filesystem: &Filesystem, inode: &Arc<Inode>, offset: u64, data: Cow<'_, [u8]>) -> Result<()> {
    Ok(vlinder_data::write(filesystem.store(), inode.node(), offset, data)?)
}

/// Gives a file another size: what is cut off is gone, what is added reads as zeros. The caller holds
/// [`Inode::operation`] exclusively and has set the times in the inode's state already.
///
/// # Errors
/// [`Refusal::FileTooLarge`](crate::Refusal::FileTooLarge); [`Refusal::NoSpace`](crate::Refusal::NoSpace)
/// where the zeros behind the end of the last sector find none; what the trees and devices met.
pub fn truncate(filesystem: &Filesystem, inode: &Arc<Inode>, size: u64) -> Result<()> {
    Ok(vlinder_data::truncate(filesystem.store(), inode.node(), size)?)
}

/// Removes all of a deleted file's data, in as many transactions as it takes. The inode has no names any
/// more; its orphan item stays until the caller removes it with the inode.
///
/// # Errors
/// What the trees met.
pub fn remove_all(filesystem: &Filesystem, inode: &Arc<Inode>) -> Result<()> {
    Ok(vlinder_data::remove_all(filesystem.store(), inode.node())?)
}

/// fallocate(2). The caller holds [`Inode::operation`] exclusively and has set the times in the inode's state
/// already.
///
/// # Errors
/// [`Refusal::InvalidArgument`](crate::Refusal::InvalidArgument),
/// [`Refusal::FileTooLarge`](crate::Refusal::FileTooLarge), [`Refusal::NoSpace`](crate::Refusal::NoSpace);
/// what the trees and devices met.
pub fn allocate(
    filesystem: &Filesystem,
    inode: &Arc<Inode>,
    what: Allocate,
    offset: u64,
    length: u64,
) -> Result<()> {
    Ok(vlinder_data::allocate(filesystem.store(), inode.node(), what, offset, length)?)
}

/// Makes `length` bytes of `target` at `target_offset` show the same extents as `source` at `source_offset`.
/// Offsets are at sector borders, and so is the end, unless it is the end of the source and not inside of the
/// target. The caller holds [`Inode::operation`] of both exclusively and has set the times of the target.
///
/// # Errors
/// [`Refusal::InvalidArgument`](crate::Refusal::InvalidArgument) where the range is not as above, overlaps
/// itself, or only one of the files has checksums; what the trees met.
pub fn clone_range(
    filesystem: &Filesystem,
    source: &Arc<Inode>,
    source_offset: u64,
    target: &Arc<Inode>,
    target_offset: u64,
    length: u64,
) -> Result<()> {
    let (from, to) = (source.node(), target.node());
    Ok(vlinder_data::clone_range(filesystem.store(), from, source_offset, to, target_offset, length)?)
}

/// Copies bytes as copy_file_range(2) does: what lies at sector borders of both files is shared, the rest
/// read and written. Gives how many bytes: fewer than asked for only at the end of the source, or where an
/// error came after a part. Locks and times as for [`clone_range`].
///
/// # Errors
/// As [`clone_range`], [`read`] and [`write()`]; nothing is copied then.
pub fn copy_range(
    filesystem: &Filesystem,
    source: &Arc<Inode>,
    source_offset: u64,
    target: &Arc<Inode>,
    target_offset: u64,
    length: u64,
) -> Result<u64> {
    let (from, to) = (source.node(), target.node());
    Ok(vlinder_data::copy_range(filesystem.store(), from, source_offset, to, target_offset, length)?)
}

/// Writes out a file's data, so that a commit makes them durable.
///
/// # Errors
/// What writing met; the data stay in memory then.
pub fn flush(filesystem: &Filesystem, inode: &Arc<Inode>) -> Result<()> {
    Ok(vlinder_data::flush(filesystem.store(), inode.node())?)
}

/// Writes out the data of every file that has some, so that a commit makes them durable.
///
/// # Errors
/// The gravest that writing met; every file is tried.
pub fn flush_all(filesystem: &Filesystem) -> Result<()> {
    Ok(vlinder_data::flush_all(filesystem.store())?)
}

/// Flushes what is dirty of files, and leaves the last of it under way, after what was under way before is
/// finished.
///
/// # Errors
/// What either met.
pub fn flush_ahead(filesystem: &Filesystem) -> Result<()> {
    Ok(vlinder_data::flush_ahead(filesystem.store())?)
}

/// Writes out the data of every file of a subvolume: before a snapshot of it.
///
/// # Errors
/// As [`flush_all`].
pub fn flush_subvolume(filesystem: &Filesystem, root: RootId) -> Result<()> {
    Ok(vlinder_data::flush_subvolume(filesystem.store(), root)?)
}

/// Writes out a file that is closed after its content was dropped: a program that replaces a file so expects
/// the new content to be there after a crash. (Linux: `BTRFS_INODE_FLUSH_ON_CLOSE`.)
///
/// # Errors
/// As [`flush`].
pub fn flush_replaced(filesystem: &Filesystem, inode: &Arc<Inode>) -> Result<()> {
    Ok(vlinder_data::flush_replaced(filesystem.store(), inode.node())?)
}
