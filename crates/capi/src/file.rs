//! An open file.

use std::ffi::{c_char, c_int, c_void};
use std::slice;

use rustix::fs::OFlags;
use rustix::io::Errno;
use vlinder::File;
use vlinder_base::sync::Arc;

use crate::answer::{Failure, answer, known, path, status};
use crate::filesystem::VlinderFilesystem;

/// An open file, to C a pointer.
#[derive(Debug)]
pub struct VlinderFile {
    file: File,
    /// Counts it as open as long as it is there.
    _held: Arc<()>,
}

/// No slice is longer.
const MAX_BYTES: usize = isize::MAX.unsigned_abs();

/// Bytes and where in the file they go.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct VlinderPart {
    /// From the file's beginning, in bytes.
    pub offset: u64,
    /// The bytes.
    pub data: *const c_void,
    /// How many.
    pub length: usize,
}

/// Opens a file with the flags of open(2): `O_RDONLY`, `O_WRONLY` or `O_RDWR`, `O_CREAT`, `O_EXCL`,
/// `O_TRUNC`, `O_APPEND`.
///
/// # Safety
/// See the crate; `out` may be written to.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn vlinder_file_open(
    filesystem: *const VlinderFilesystem,
    name: *const c_char,
    flags: c_int,
    permissions: u32,
    out: *mut *mut VlinderFile,
) -> c_int {
    status(|| {
        // SAFETY: the caller's word, three times.
        let (filesystem, name, out) = unsafe { (known(filesystem)?, path(name)?, out.as_mut()) };
        let out = out.ok_or_else(|| Failure::new(Errno::FAULT, "there is no place for the handle"))?;
        let flags = OFlags::from_bits_retain(flags.cast_unsigned());
        let access = flags & OFlags::RWMODE;
        let writes = access != OFlags::RDONLY;
        let file = filesystem
            .image
            .options()
            .read(access != OFlags::WRONLY)
            .write(writes)
            .append(writes && flags.contains(OFlags::APPEND))
            .truncate(writes && flags.contains(OFlags::TRUNC))
            .create(flags.contains(OFlags::CREATE))
            .create_new(flags.contains(OFlags::CREATE | OFlags::EXCL))
            .permissions(permissions)
            .open(name)?;
        let held = Arc::clone(&filesystem.files_open);
        *out = Box::into_raw(Box::new(VlinderFile { file, _held: held }));
        Ok(())
    })
}

/// Gives a file back.
///
/// # Safety
/// See the crate; the handle is not used again.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn vlinder_file_close(file: *mut VlinderFile) {
    if !file.is_null() {
        // SAFETY: it came from `Box::into_raw` in `vlinder_file_open`, and is given back once.
        let file = unsafe { Box::from_raw(file) };
        status(|| {
            drop(file);
            Ok(())
        });
    }
}

/// The file's size, in bytes.
///
/// # Safety
/// See the crate.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn vlinder_file_size(file: *const VlinderFile) -> i64 {
    // SAFETY: the caller's word.
    answer(|| Ok(unsafe { known(file) }?.file.metadata().len()))
}

/// Reads from an offset; gives how many bytes, fewer only at the end of the file.
///
/// # Safety
/// See the crate; `length` bytes at `buffer` may be written to.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn vlinder_file_read(
    file: *const VlinderFile,
    buffer: *mut c_void,
    length: usize,
    offset: u64,
) -> i64 {
    answer(|| {
        // SAFETY: the caller's word.
        let file = unsafe { known(file) }?;
        if length == 0 {
            return Ok(0);
        }
        if buffer.is_null() {
            return Err(Failure::new(Errno::FAULT, "there is no buffer to read into"));
        }
        // No more than the file has: the bytes behind its end stay as they are.
        let left = file.file.metadata().len().saturating_sub(offset);
        let length = length.min(usize::try_from(left).unwrap_or(usize::MAX)).min(MAX_BYTES);
        let buffer = buffer.cast::<u8>();
        // SAFETY: not null; the length is the caller's word, who lets nobody else use the buffer meanwhile.
        // Its bytes may never have been written to, which no slice of Rust may hold: they are made zeros
        // first.
        let buffer = unsafe {
            buffer.write_bytes(0, length);
            slice::from_raw_parts_mut(buffer, length)
        };
        Ok(file.file.read_at(buffer, offset)? as u64)
    })
}

/// Writes at an offset, into memory.
///
/// # Safety
/// See the crate.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn vlinder_file_write(
    file: *const VlinderFile,
    data: *const c_void,
    length: usize,
    offset: u64,
) -> i64 {
    answer(|| {
        // SAFETY: the caller's word.
        let file = unsafe { known(file) }?;
        // SAFETY: the caller's word.
        let data = unsafe { bytes(data, length) }?;
        file.file.write_at(data, offset)?;
        Ok(length as u64)
    })
}

/// Writes parts, which are on the device when this returns; not durable without `vlinder_file_sync`.
///
/// # Safety
/// See the crate; `parts` points at `count` parts.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn vlinder_file_write_direct(
    file: *const VlinderFile,
    parts: *const VlinderPart,
    count: usize,
) -> c_int {
    status(|| {
        // SAFETY: the caller's word.
        let file = unsafe { known(file) }?;
        if count == 0 {
            return Ok(());
        }
        if parts.is_null() {
            return Err(Failure::new(Errno::FAULT, "there are no parts to write"));
        }
        if count > MAX_BYTES / size_of::<VlinderPart>() {
            return Err(Failure::new(Errno::INVAL, "more parts to write than memory can hold"));
        }
        // SAFETY: not null; the count is the caller's word.
        let parts = unsafe { slice::from_raw_parts(parts, count) };
        // SAFETY: the caller's word for each.
        let parts: Vec<(u64, &[u8])> = parts
            .iter()
            .map(|part| Ok((part.offset, unsafe { bytes(part.data, part.length) }?)))
            .collect::<Result<_, Failure>>()?;
        Ok(file.file.write_direct(&parts)?)
    })
}

/// Makes the file durable.
///
/// # Safety
/// See the crate.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn vlinder_file_sync(file: *const VlinderFile) -> c_int {
    // SAFETY: the caller's word.
    status(|| Ok(unsafe { known(file) }?.file.sync_all()?))
}

/// Cuts the file, or extends it by a hole.
///
/// # Safety
/// See the crate.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn vlinder_file_truncate(file: *const VlinderFile, size: u64) -> c_int {
    // SAFETY: the caller's word.
    status(|| Ok(unsafe { known(file) }?.file.set_len(size)?))
}

/// The caller's bytes.
///
/// # Safety
/// `data` points at `length` bytes that nobody changes as long as the result lives; null is taken where there
/// are none.
unsafe fn bytes<'a>(data: *const c_void, length: usize) -> Result<&'a [u8], Failure> {
    if length == 0 {
        return Ok(&[]);
    }
    if data.is_null() {
        return Err(Failure::new(Errno::FAULT, "there are no bytes to write: the pointer is null"));
    }
    if length > MAX_BYTES {
        return Err(Failure::new(Errno::INVAL, "more bytes to write than memory can hold"));
    }
    // SAFETY: not null; the rest is the caller's word.
    Ok(unsafe { slice::from_raw_parts(data.cast::<u8>(), length) })
}
