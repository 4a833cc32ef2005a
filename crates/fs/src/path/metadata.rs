//! What is known of a file.

use std::time::{Duration, SystemTime};

use vlinder_format::inode::{FileType, Timestamp};

use crate::Attributes;

/// What is known of a file, as `std::fs::Metadata`; dereferences to all its [`Attributes`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Metadata(pub(super) Attributes);

impl std::ops::Deref for Metadata {
    type Target = Attributes;

    fn deref(&self) -> &Attributes {
        &self.0
    }
}

impl Metadata {
    /// Bytes.
    #[must_use]
    pub fn len(&self) -> u64 {
        self.0.size_bytes
    }

    /// Whether there are no bytes.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Whether it is a directory (a subvolume is one).
    #[must_use]
    pub fn is_dir(&self) -> bool {
        self.0.file_type == FileType::Directory
    }

    /// Whether it is a regular file.
    #[must_use]
    pub fn is_file(&self) -> bool {
        self.0.file_type == FileType::Regular
    }

    /// Whether it is a symbolic link; only [`symlink_metadata`](super::Files::symlink_metadata) shows one.
    #[must_use]
    pub fn is_symlink(&self) -> bool {
        self.0.file_type == FileType::SymbolicLink
    }

    /// Whether it is the root directory of a subvolume.
    #[must_use]
    pub fn is_subvolume(&self) -> bool {
        self.0.id.is_subvolume_root()
    }

    /// When the data last changed.
    #[must_use]
    pub fn modified(&self) -> SystemTime {
        system_time(self.0.modification_time)
    }

    /// When the file was last read.
    #[must_use]
    pub fn accessed(&self) -> SystemTime {
        system_time(self.0.access_time)
    }

    /// When the file was made.
    #[must_use]
    pub fn created(&self) -> SystemTime {
        system_time(self.0.birth_time)
    }
}

/// A time that the system's type can't hold is shown as the nearest that it can.
fn system_time(time: Timestamp) -> SystemTime {
    let seconds = Duration::from_secs(time.seconds.unsigned_abs());
    let whole = if time.seconds < 0 {
        SystemTime::UNIX_EPOCH.checked_sub(seconds)
    } else {
        SystemTime::UNIX_EPOCH.checked_add(seconds)
    };
    let whole = whole.unwrap_or(SystemTime::UNIX_EPOCH);
    whole.checked_add(Duration::from_nanos(time.nanoseconds.into())).unwrap_or(whole)
}
