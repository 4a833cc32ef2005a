//! An error as it travels.

use rustix::io::Errno;
use serde::{Deserialize, Serialize};
use vlinder_fs::FsError;

use crate::limits::as_printable;

/// The kinds of failure: what a server answers with, and `error.kind` in the JSON of the command.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum ErrorKind {
    /// The request, or the command line, can't be understood.
    Usage,
    /// A device or the host's file system failed.
    Device,
    /// Bytes on disk break a rule of the format.
    Corruption,
    /// A feature, profile or operation that this version lacks.
    Unsupported,
    /// Somebody else uses it.
    Busy,
    /// It can only be read.
    ReadOnly,
    /// No space is left, in the image or on the host.
    NoSpace,
    /// No such file, subvolume or attribute.
    NotFound,
    /// It is there already.
    Exists,
    /// The user may not do that.
    Permission,
    /// The request makes no sense for what it is about.
    Invalid,
}

impl ErrorKind {
    /// As JSON and the documentation name it.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Usage => "usage",
            Self::Device => "device",
            Self::Corruption => "corruption",
            Self::Unsupported => "unsupported",
            Self::Busy => "busy",
            Self::ReadOnly => "read-only",
            Self::NoSpace => "no-space",
            Self::NotFound => "not-found",
            Self::Exists => "exists",
            Self::Permission => "permission",
            Self::Invalid => "invalid",
        }
    }

    /// What an errno means.
    #[must_use]
    pub fn of_errno(errno: Errno) -> Self {
        match errno {
            Errno::NOENT | Errno::NODATA => Self::NotFound,
            Errno::EXIST | Errno::NOTEMPTY => Self::Exists,
            Errno::PERM | Errno::ACCESS => Self::Permission,
            Errno::ROFS => Self::ReadOnly,
            Errno::NOSPC | Errno::DQUOT => Self::NoSpace,
            Errno::BUSY | Errno::TXTBSY => Self::Busy,
            Errno::OPNOTSUPP | Errno::NOSYS => Self::Unsupported,
            Errno::IO | Errno::UCLEAN => Self::Device,
            _ => Self::Invalid,
        }
    }
}

/// Why a request failed: which kind, where, what happened, what to do about it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, thiserror::Error)]
#[error("{}{message}{}", .place.as_ref().map(|place| format!("{place}: ")).unwrap_or_default(), .hint.as_ref().map(|hint| format!("; {hint}")).unwrap_or_default())]
pub struct ErrorBody {
    /// Which kind.
    pub kind: ErrorKind,
    /// What a system call would return, by Linux's number.
    pub errno: i32,
    /// What it is about.
    #[serde(deserialize_with = "as_printable::option", default)]
    pub place: Option<String>,
    /// What happened.
    #[serde(deserialize_with = "as_printable::text")]
    pub message: String,
    /// What to do about it.
    #[serde(deserialize_with = "as_printable::option", default)]
    pub hint: Option<String>,
}

impl ErrorBody {
    /// An error of this errno.
    #[must_use]
    pub fn new(errno: Errno, message: impl Into<String>) -> Self {
        Self {
            kind: ErrorKind::of_errno(errno),
            errno: errno.raw_os_error(),
            place: None,
            message: message.into(),
            hint: None,
        }
    }

    /// The same with a place.
    #[must_use]
    pub fn at(mut self, place: impl Into<String>) -> Self {
        self.place = Some(place.into());
        self
    }

    /// The same with advice.
    #[must_use]
    pub fn hint(mut self, hint: impl Into<String>) -> Self {
        self.hint = Some(hint.into());
        self
    }

    /// What an operation of the file system met.
    #[must_use]
    pub fn from_fs(error: &FsError) -> Self {
        let mut body = Self::new(error.errno(), error.to_string());
        if matches!(error, FsError::Damage(_)) {
            body.kind = ErrorKind::Corruption;
        }
        body
    }
}

impl From<FsError> for ErrorBody {
    fn from(error: FsError) -> Self {
        Self::from_fs(&error)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kinds_travel_under_their_names() {
        use ErrorKind::*;
        let kinds = [Usage, Device, Corruption, Unsupported, Busy, ReadOnly, NoSpace, NotFound, Exists];
        for kind in kinds.into_iter().chain([Permission, Invalid]) {
            assert_eq!(serde_json::to_value(kind).unwrap(), kind.name());
        }
    }
}
