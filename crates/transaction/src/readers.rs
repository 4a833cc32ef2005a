//! Readers of the running transaction's state: look-ups that the forest has, with what is in memory beside
//! the trees.

use vlinder_forest::{ChecksumLookup, ExtentUsers, ForestError, PendingReferences, Referrer};
use vlinder_format::{Generation, Logical};

use crate::Handle;
use crate::engine::Engine;

impl Engine {
    /// The users of extents in the running transaction's state; read-only file systems need no handle.
    ///
    /// # Errors
    /// What opening the extent tree met.
    pub fn extent_users<'a>(&'a self, _handle: Option<&Handle<'a>>) -> Result<ExtentUsers<'a>, ForestError> {
        ExtentUsers::new(self.trees.forest(), Some(self))
    }

    /// The checksums of data, for look-ups.
    ///
    /// # Errors
    /// What opening the checksum tree met.
    pub fn checksum_lookup(&self) -> Result<ChecksumLookup<'_>, ForestError> {
        ChecksumLookup::new(self.trees.forest(), self.checksum_geometry(), self.checksum_kind())
    }
}

impl PendingReferences for Engine {
    fn changes(&self, start: Logical) -> Option<Vec<(Referrer, i64)>> {
        let delayed = self.queues.delayed();
        delayed.head(start).map(|head| head.changes.iter().collect())
    }

    fn generation(&self) -> Generation {
        self.generation()
    }
}
