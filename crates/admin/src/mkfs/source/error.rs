//! Why a source can't be read.

use rustix::io::Errno;

/// A source that can't be read.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum SourceError {
    /// A system call failed.
    #[error("{path}: {call} failed: {errno}; leave it out or make it readable")]
    Call {
        /// Path below the source directory.
        path: String,
        /// The system call.
        call: &'static str,
        /// What the system said.
        errno: Errno,
    },
    /// It changed while it was read.
    #[error("{path} changed while it was read; stop what writes there, or copy a snapshot of it")]
    Changed {
        /// Path below the source directory.
        path: String,
    },
    /// A line of the table of owners that the source does not go with.
    #[error("{path} (line {line} of the table of owners): {what}; change the line or the source")]
    Table {
        /// Path below the source directory.
        path: String,
        /// The line, from 1.
        line: usize,
        /// Why not.
        what: &'static str,
    },
    /// Something that can't be stored.
    #[error("{path}: {what}")]
    Unsupported {
        /// Path below the source directory.
        path: String,
        /// What.
        what: &'static str,
    },
}

impl SourceError {
    pub(in super::super) fn call(path: &[u8], call: &'static str, errno: Errno) -> Self {
        Self::Call { path: shown(path), call, errno }
    }

    pub(in super::super) fn changed(path: &[u8]) -> Self {
        Self::Changed { path: shown(path) }
    }
}

/// A path as errors show it.
pub(in super::super) fn shown(path: &[u8]) -> String {
    if path.is_empty() {
        "the source directory".to_owned()
    } else {
        String::from_utf8_lossy(path).into_owned()
    }
}
