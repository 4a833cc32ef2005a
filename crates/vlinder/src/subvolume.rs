//! What is known of a subvolume.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use vlinder_fs::SubvolumeInformation;

use crate::time::system_time;
use crate::uuid::Uuid;

/// What is known of a subvolume or snapshot.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SubvolumeInfo(SubvolumeInformation);

impl SubvolumeInfo {
    pub(crate) fn of(inner: SubvolumeInformation) -> Self {
        Self(inner)
    }

    /// Its number; 5 is the top level.
    #[must_use]
    pub fn id(&self) -> u64 {
        self.0.id.0
    }

    /// The number of the subvolume that holds its name; none of the top level and of deleted ones.
    #[must_use]
    pub fn parent_id(&self) -> Option<u64> {
        self.0.parent.map(|parent| parent.root.0)
    }

    /// The path of its name from the top level; empty for the top level and for deleted ones.
    #[must_use]
    pub fn path(&self) -> PathBuf {
        Path::new(OsStr::from_bytes(&self.0.path)).to_owned()
    }

    /// Its UUID; none where it was made by a program that knew none.
    #[must_use]
    pub fn uuid(&self) -> Option<Uuid> {
        Uuid::known(self.0.uuid)
    }

    /// The UUID of the subvolume that it is a snapshot of, if it is one.
    #[must_use]
    pub fn snapshot_of(&self) -> Option<Uuid> {
        Uuid::known(self.0.parent_uuid)
    }

    /// The UUID of the subvolume that it was received from, if it was.
    #[must_use]
    pub fn received_from(&self) -> Option<Uuid> {
        Uuid::known(self.0.received_uuid)
    }

    /// The transaction that last changed its tree: it rises with changes.
    #[must_use]
    pub fn generation(&self) -> u64 {
        self.0.generation.0
    }

    /// When it was made.
    #[must_use]
    pub fn created(&self) -> SystemTime {
        system_time(self.0.creation_time)
    }

    /// Whether it takes no changes.
    #[must_use]
    pub fn is_read_only(&self) -> bool {
        self.0.is_read_only
    }

    /// Whether it was deleted, and what it held is still being freed.
    #[must_use]
    pub fn is_deleted(&self) -> bool {
        self.0.is_deleted
    }
}
