//! One request against one file descriptor, to its end.

use std::io::{IoSlice, IoSliceMut};
use std::os::fd::{AsRawFd, OwnedFd};

use rustix::io::{Errno, ReadWriteFlags};

use crate::{DeviceErrorKind, Durability, Request};

/// Repeats a call that a signal interrupted.
pub(super) fn retry<T>(mut call: impl FnMut() -> Result<T, Errno>) -> Result<T, Errno> {
    loop {
        match call() {
            Err(Errno::INTR) => {}
            other => return other,
        }
    }
}

/// Runs the request. A file that ends early (somebody truncated it) is out of range.
pub(super) fn run(descriptor: &OwnedFd, request: &mut Request) -> Result<(), DeviceErrorKind> {
    match request {
        Request::Read { offset, buffer } => read_exact(descriptor, offset.0, buffer),
        Request::Write { offset, data, durability } => {
            write_all(descriptor, offset.0, data.as_slice(), *durability)
        }
    }
}

/// Reads from `offset` until the buffer is full.
pub(super) fn read_exact(
    descriptor: &OwnedFd,
    offset: u64,
    buffer: &mut [u8],
) -> Result<(), DeviceErrorKind> {
    let mut done = 0;
    while done < buffer.len() {
        let position = offset + done as u64;
        let count = retry(|| rustix::io::pread(descriptor, &mut buffer[done..], position))?;
        if count == 0 {
            return Err(DeviceErrorKind::OutOfRange { device_length: position });
        }
        done += count;
    }
    Ok(())
}

/// Writes all of `data` at `offset`.
pub(super) fn write_all(
    descriptor: &OwnedFd,
    offset: u64,
    data: &[u8],
    durability: Durability,
) -> Result<(), DeviceErrorKind> {
    let mut flags = match durability {
        Durability::Cached => ReadWriteFlags::empty(),
        Durability::Durable => ReadWriteFlags::DSYNC,
    };
    let mut flush_after = false;
    let mut done = 0;
    while done < data.len() {
        let position = offset + done as u64;
        let rest = [IoSlice::new(&data[done..])];
        let written = retry(|| match flags.is_empty() {
            true => rustix::io::pwrite(descriptor, &data[done..], position),
            false => rustix::io::pwritev2(descriptor, &rest, position, flags),
        });
        match written {
            Ok(0) => return Err(DeviceErrorKind::Io { errno: Errno::IO.raw_os_error() }),
            Ok(count) => done += count,
            // Hosts that know no per-write flags: an ordinary write and a flush are as good.
            Err(Errno::OPNOTSUPP | Errno::NOSYS | Errno::INVAL) if !flags.is_empty() => {
                flags = ReadWriteFlags::empty();
                flush_after = true;
            }
            Err(errno) => return Err(errno.into()),
        }
    }
    if flush_after {
        retry(|| rustix::fs::fdatasync(descriptor))?;
    }
    Ok(())
}

/// Reads from `offset` until all buffers are full.
pub(super) fn read_vectored(
    descriptor: &OwnedFd,
    offset: u64,
    mut buffers: &mut [IoSliceMut<'_>],
) -> Result<(), DeviceErrorKind> {
    let mut position = offset;
    while !buffers.is_empty() {
        let count = retry(|| rustix::io::preadv(descriptor, buffers, position))?;
        if count == 0 {
            return Err(DeviceErrorKind::OutOfRange { device_length: position });
        }
        position += count as u64;
        IoSliceMut::advance_slices(&mut buffers, count);
    }
    Ok(())
}

/// Fills all buffers from `offset` on, if the host's page cache has the bytes. False if it lacks some, or
/// can't tell.
pub(super) fn read_cached(descriptor: &OwnedFd, offset: u64, mut buffers: &mut [IoSliceMut<'_>]) -> bool {
    let mut position = offset;
    while !buffers.is_empty() {
        let read = || rustix::io::preadv2(descriptor, buffers, position, ReadWriteFlags::NOWAIT);
        let Ok(count @ 1..) = retry(read) else { return false };
        position += count as u64;
        IoSliceMut::advance_slices(&mut buffers, count);
    }
    true
}

/// Writes all parts, one behind the other, from `offset` on.
pub(super) fn write_vectored(
    descriptor: &OwnedFd,
    offset: u64,
    mut parts: &mut [IoSlice<'_>],
) -> Result<(), DeviceErrorKind> {
    let mut position = offset;
    while !parts.is_empty() {
        let count = retry(|| rustix::io::pwritev(descriptor, parts, position))?;
        if count == 0 {
            return Err(DeviceErrorKind::Io { errno: Errno::IO.raw_os_error() });
        }
        position += count as u64;
        IoSlice::advance_slices(&mut parts, count);
    }
    Ok(())
}

/// Writes of at least so many bytes are taken for bulk.
const BULK_BYTES: u64 = 128 << 10;

/// After a bulk write: has the host begin to bring it to the device. Else it would lie in the host's cache
/// until the next flush, which would have to bring all of it there before a small file beside it is durable.
/// A hint: that it fails changes nothing, and it takes no error of an earlier write-back away from the flush
/// (it waits for none).
pub(super) fn begin_write_back(descriptor: &OwnedFd, offset: u64, length_bytes: u64) {
    if length_bytes < BULK_BYTES {
        return;
    }
    let (Ok(offset), Ok(length)) = (i64::try_from(offset), i64::try_from(length_bytes)) else { return };
    // SAFETY: sync_file_range(2) takes numbers alone, and the descriptor is open as long as it is borrowed.
    unsafe {
        libc::sync_file_range(descriptor.as_raw_fd(), offset, length, libc::SYNC_FILE_RANGE_WRITE);
    }
}

/// Gives a range of a block device back (BLKDISCARD).
pub(super) fn discard_block_device(
    descriptor: &OwnedFd,
    offset: u64,
    length_bytes: u64,
) -> Result<(), Errno> {
    /// `_IO(0x12, 119)` of linux/fs.h; its argument points to two u64: start and length in bytes.
    const BLKDISCARD: rustix::ioctl::Opcode = rustix::ioctl::opcode::none(0x12, 119);
    let mut range = [offset, length_bytes];
    // SAFETY: BLKDISCARD reads two u64 through its pointer and writes nothing; `range` is that and outlives
    // the call.
    unsafe {
        let discard = rustix::ioctl::Updater::<BLKDISCARD, [u64; 2]>::new(&mut range);
        rustix::ioctl::ioctl(descriptor, discard)
    }
}
