//! What a call returns: a number, or a negative `errno` and a sentence for the thread.

use std::cell::RefCell;
use std::ffi::{CStr, CString, OsStr, c_char, c_int};
use std::os::unix::ffi::OsStrExt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;

use rustix::io::Errno;

/// Why a call fails.
#[derive(Debug)]
pub(crate) struct Failure {
    errno: Errno,
    sentence: String,
}

impl Failure {
    pub(crate) fn new(errno: Errno, sentence: impl Into<String>) -> Self {
        Self { errno, sentence: sentence.into() }
    }
}

impl From<vlinder::Error> for Failure {
    fn from(error: vlinder::Error) -> Self {
        Self::new(Errno::from_raw_os_error(error.errno()), error.to_string())
    }
}

thread_local! {
    static LAST_ERROR: RefCell<CString> = RefCell::default();
}

/// The call's number, or a negative `errno`.
pub(crate) fn answer(work: impl FnOnce() -> Result<u64, Failure>) -> i64 {
    // What a panic breaks off half-way makes the file system read-only: nothing of it is committed.
    let result = catch_unwind(AssertUnwindSafe(work)).unwrap_or_else(|_| {
        Err(Failure::new(Errno::IO, "vlinder met a mistake of its own; please report it"))
    });
    match result {
        Ok(number) => i64::try_from(number).unwrap_or(i64::MAX),
        Err(Failure { errno, sentence }) => {
            let sentence = CString::new(sentence.replace('\0', "\u{fffd}")).unwrap_or_default();
            LAST_ERROR.with(|last| last.replace(sentence));
            -i64::from(errno.raw_os_error())
        }
    }
}

/// As [`answer`] for calls without a number.
pub(crate) fn status(work: impl FnOnce() -> Result<(), Failure>) -> c_int {
    // An errno is small.
    c_int::try_from(answer(|| work().map(|()| 0))).unwrap_or(c_int::MIN)
}

/// The sentence of the thread's last call that failed; empty if none did. Valid until the thread's next call.
#[unsafe(no_mangle)]
pub extern "C" fn vlinder_last_error() -> *const c_char {
    LAST_ERROR.with_borrow(|last| last.as_ptr())
}

/// A path.
///
/// # Safety
/// `text` is null or a zero-terminated string that lives as long as the result.
pub(crate) unsafe fn path<'a>(text: *const c_char) -> Result<&'a Path, Failure> {
    if text.is_null() {
        return Err(Failure::new(Errno::FAULT, "a path is missing: the pointer is null"));
    }
    // SAFETY: not null, and the rest is the caller's word.
    let text = unsafe { CStr::from_ptr(text) };
    Ok(Path::new(OsStr::from_bytes(text.to_bytes())))
}

/// What a handle stands for.
///
/// # Safety
/// `handle` is null or came from this library and was not given back.
pub(crate) unsafe fn known<'a, T>(handle: *const T) -> Result<&'a T, Failure> {
    // SAFETY: null is answered with an error, and the rest is the caller's word.
    unsafe { handle.as_ref() }
        .ok_or_else(|| Failure::new(Errno::FAULT, "a handle is missing: the pointer is null"))
}
