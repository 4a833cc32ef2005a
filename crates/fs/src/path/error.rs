//! Errors of calls by path: which path they are about, and what they are for `std::io`.

use std::path::Path;

use crate::{FsError, Result};

impl From<FsError> for std::io::Error {
    fn from(error: FsError) -> Self {
        let kind = Self::from_raw_os_error(error.errno().raw_os_error()).kind();
        Self::new(kind, error)
    }
}

/// Says which path an error is about.
pub(super) fn at<T>(path: impl AsRef<Path>, result: Result<T>) -> Result<T> {
    result.map_err(|source| FsError::Path {
        path: path.as_ref().to_string_lossy().into_owned(),
        source: Box::new(source),
    })
}
