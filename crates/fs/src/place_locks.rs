//! The locks of a file system that come before those of inodes.

use vlinder_base::sync::{Mutex, MutexGuard};

/// The locks of what moves directories and subvolumes; the first comes before the second.
#[derive(Default)]
pub(crate) struct PlaceLocks {
    subvolumes: Mutex<()>,
    rename: Mutex<()>,
}

impl PlaceLocks {
    /// Held while subvolumes get, change or lose their places, so that none is put into one that is being
    /// deleted.
    pub(crate) fn lock_subvolumes(&self) -> MutexGuard<'_, ()> {
        self.subvolumes.lock()
    }

    /// Held by renames that move a directory, and by whatever asks for a directory's ancestors meanwhile.
    pub(crate) fn lock_rename(&self) -> MutexGuard<'_, ()> {
        self.rename.lock()
    }
}
