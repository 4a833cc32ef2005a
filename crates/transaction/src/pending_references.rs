//! What the running transaction knows of references beyond the extent tree, for readers of its state.

use vlinder_forest::{ExtentUsers, ForestError, PendingReferences, Referrer};
use vlinder_format::{Generation, Logical};

use crate::Handle;
use crate::engine::Engine;

impl Engine {
    /// The users of extents in the running transaction's state; read-only file systems need no handle.
    ///
    /// # Errors
    /// What opening the extent tree met.
    pub fn extent_users<'a>(&'a self, _handle: Option<&Handle<'a>>) -> Result<ExtentUsers<'a>, ForestError> {
        ExtentUsers::new(&self.forest, Some(self))
    }
}

impl PendingReferences for Engine {
    fn changes(&self, start: Logical) -> Option<Vec<(Referrer, i64)>> {
        let delayed = self.delayed.lock();
        delayed.head(start).map(|head| head.changes.iter().collect())
    }

    fn generation(&self) -> Generation {
        self.generation()
    }
}
