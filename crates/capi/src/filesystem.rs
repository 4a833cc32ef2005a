//! An open image.

use std::ffi::{CStr, c_char, c_int};

use rustix::io::Errno;
use vlinder::{Image, OpenOptions};
use vlinder_base::sync::Arc;

use crate::answer::{Failure, answer, known, path, status};

/// An open image, to C a pointer.
#[derive(Debug)]
pub struct VlinderFilesystem {
    pub(crate) image: Image,
    /// Every open file holds it, too.
    pub(crate) files_open: Arc<()>,
}

/// Opens an image or block device with the options of `vlinder mount -o`, as the superuser.
///
/// # Safety
/// See the crate; `out` may be written to.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn vlinder_open(
    image: *const c_char,
    options: *const c_char,
    out: *mut *mut VlinderFilesystem,
) -> c_int {
    status(|| {
        // SAFETY: the caller's word.
        let image = unsafe { path(image) }?;
        let options = if options.is_null() {
            OpenOptions::new()
        } else {
            // SAFETY: not null, and zero-terminated by the caller's word.
            let text = unsafe { CStr::from_ptr(options) };
            let text = text.to_str().map_err(|_| Failure::new(Errno::INVAL, "the options are not UTF-8"))?;
            OpenOptions::new().mount_options(text)?
        };
        // SAFETY: the caller's word.
        let out = unsafe { out.as_mut() };
        let out = out.ok_or_else(|| Failure::new(Errno::FAULT, "there is no place for the handle"))?;
        let image = options.open(image)?;
        *out = Box::into_raw(Box::new(VlinderFilesystem { image, files_open: Arc::default() }));
        Ok(())
    })
}

/// Makes everything durable and gives the handle back, whatever comes of that. While files of it are open
/// this is refused with `-EBUSY`, and the handle stays good.
///
/// # Safety
/// See the crate; the handle is not used again, unless the call was refused.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn vlinder_close(filesystem: *mut VlinderFilesystem) -> c_int {
    status(|| {
        if filesystem.is_null() {
            return Ok(());
        }
        // SAFETY: the caller's word.
        let open = Arc::strong_count(&unsafe { known(filesystem) }?.files_open) - 1;
        if open > 0 {
            let text = format!("{open} of its files are open: close them with vlinder_file_close first");
            return Err(Failure::new(Errno::BUSY, text));
        }
        // SAFETY: it came from `Box::into_raw` in `vlinder_open`, and is given back once.
        let filesystem = unsafe { Box::from_raw(filesystem) };
        Ok(filesystem.image.close()?)
    })
}

/// Makes durable what was done so far.
///
/// # Safety
/// See the crate.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn vlinder_sync(filesystem: *const VlinderFilesystem) -> c_int {
    // SAFETY: the caller's word.
    status(|| Ok(unsafe { known(filesystem) }?.image.sync()?))
}

/// A number that the file system counts, by the name that `vlinder stats` shows: of a counter or gauge its
/// value; of a histogram its `.count`, `.mean`, `.p50` or `.p99`, behind the name.
///
/// # Safety
/// See the crate.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn vlinder_statistic(filesystem: *const VlinderFilesystem, name: *const c_char) -> i64 {
    answer(|| {
        // SAFETY: the caller's word, twice.
        let (filesystem, name) = (unsafe { known(filesystem) }?, unsafe { path(name) }?);
        let name = name.to_string_lossy();
        filesystem
            .image
            .statistic(&name)
            .ok_or_else(|| Failure::new(Errno::NOENT, format!("nothing is counted as {name}")))
    })
}

/// The size of the file at a path, in bytes.
///
/// # Safety
/// See the crate.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn vlinder_file_size_by_path(
    filesystem: *const VlinderFilesystem,
    name: *const c_char,
) -> i64 {
    // SAFETY: the caller's word, twice.
    answer(|| Ok(unsafe { known(filesystem) }?.image.metadata(unsafe { path(name) }?)?.len()))
}

/// Removes the file at a path.
///
/// # Safety
/// See the crate.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn vlinder_remove(filesystem: *const VlinderFilesystem, name: *const c_char) -> c_int {
    // SAFETY: the caller's word, twice.
    status(|| Ok(unsafe { known(filesystem) }?.image.remove_file(unsafe { path(name) }?)?))
}
