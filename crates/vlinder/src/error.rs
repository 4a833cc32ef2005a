//! The one error of this crate.

use std::fmt;
use std::io;
use std::path::{Path, PathBuf};

use vlinder_admin::mkfs::MkfsError;
use vlinder_check::CheckError;
use vlinder_device::DeviceError;
use vlinder_fs::{FsError, OptionError};
use vlinder_partitions::{OpenError, PartitionError};

use crate::advice::advice;
use crate::error_kind::ErrorKind;

/// The result of what this crate does.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// Why something was not done. Its text says what, where, and what to do about it.
///
/// A program looks at [`kind`](Self::kind), or at [`errno`](Self::errno) where it has to answer as Linux
/// would. As an error of [`std::io`] it has the kind that goes with that number, and is its inner error.
pub struct Error(Box<Inner>);

struct Inner {
    kind: ErrorKind,
    errno: i32,
    path: Option<PathBuf>,
    what: String,
    advice: Option<&'static str>,
}

impl Error {
    /// What kind of error it is.
    #[must_use]
    pub fn kind(&self) -> ErrorKind {
        self.0.kind
    }

    /// The number that a system call of Linux returns for it, as `ENOENT`: positive. It is `EIO` for damage.
    #[must_use]
    pub fn errno(&self) -> i32 {
        self.0.errno
    }

    /// The path that it is about: of a file in the image, or of the image itself where that can't be opened.
    #[must_use]
    pub fn path(&self) -> Option<&Path> {
        self.0.path.as_deref()
    }

    fn build(kind: ErrorKind, errno: i32, what: String) -> Self {
        Self(Box::new(Inner { kind, errno, path: None, what, advice: None }))
    }

    pub(crate) fn new(kind: ErrorKind, what: impl Into<String>) -> Self {
        Self::build(kind, kind.errno().raw_os_error(), what.into())
    }

    /// Says which path it is about, where that is not known yet.
    pub(crate) fn at(mut self, path: &Path) -> Self {
        self.0.path.get_or_insert_with(|| path.to_owned());
        self
    }

    pub(crate) fn of_filesystem(error: FsError) -> Self {
        if let FsError::Path { path, source } = error {
            return Self::of_filesystem(*source).at(path.as_ref());
        }
        let kind = ErrorKind::of_filesystem(&error);
        let mut built = Self::build(kind, error.errno().raw_os_error(), error.to_string());
        if let FsError::Refused(refusal) = error {
            built.0.advice = advice(refusal);
        }
        built
    }

    pub(crate) fn of_option(error: &OptionError) -> Self {
        Self::new(ErrorKind::InvalidInput, error.to_string())
    }

    pub(crate) fn of_device(error: &DeviceError) -> Self {
        Self::build(ErrorKind::of_device(error), error.errno(), error.to_string())
    }

    pub(crate) fn of_open(error: &OpenError) -> Self {
        match error {
            OpenError::Device(error) => Self::of_device(error),
            OpenError::Partition(error) => Self::of_partition(error),
        }
    }

    fn of_partition(error: &PartitionError) -> Self {
        let kind = ErrorKind::of_partition(error);
        Self::build(kind, error.errno(), format!("{}; {}", error.kind, error.kind.advice()))
    }

    pub(crate) fn of_mkfs(error: &MkfsError) -> Self {
        let errno = match error {
            MkfsError::Device(error) => Some(error.errno()),
            MkfsError::Target { source, .. } | MkfsError::SourceDirectory { source, .. } => {
                source.raw_os_error()
            }
            MkfsError::Filesystem(error) | MkfsError::Write { source: error, .. } => {
                Some(error.errno().raw_os_error())
            }
            _ => None,
        };
        let kind = ErrorKind::of_mkfs(error);
        Self::build(kind, errno.unwrap_or(kind.errno().raw_os_error()), error.to_string())
    }

    pub(crate) fn of_check(error: &CheckError) -> Self {
        Self::new(ErrorKind::of_check(error), error.to_string())
    }
}

/// Turns an inner result into one of this crate.
pub(crate) fn outer<T>(result: vlinder_fs::Result<T>) -> Result<T> {
    result.map_err(Error::of_filesystem)
}

impl fmt::Display for Error {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Inner { path, what, advice, .. } = &*self.0;
        if let Some(path) = path.as_ref().map(|path| path.display().to_string())
            && !what.starts_with(&path)
        {
            write!(formatter, "{path}: ")?;
        }
        formatter.write_str(what)?;
        match advice {
            Some(advice) => write!(formatter, "; {advice}"),
            None => Ok(()),
        }
    }
}

impl fmt::Debug for Error {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("Error").field("kind", &self.0.kind).field("text", &self.to_string()).finish()
    }
}

impl std::error::Error for Error {}

impl From<Error> for io::Error {
    fn from(error: Error) -> Self {
        let kind = Self::from_raw_os_error(error.errno()).kind();
        Self::new(kind, error)
    }
}
