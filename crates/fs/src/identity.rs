//! What a caller has to know of a file that it found by number and not by a name.

use crate::{Inode, Subvolume, Uuid};

impl Inode {
    /// Whether the file was deleted, by itself or with its subvolume. Programs that have it open may use it
    /// still.
    #[must_use]
    pub fn is_deleted(&self) -> bool {
        self.subvolume().is_deleted() || self.state().item.link_count == 0
    }
}

impl Subvolume {
    /// The UUID of the subvolume; nil where it was made by a program that knew none.
    #[must_use]
    pub fn uuid(&self) -> Uuid {
        self.tree().item().uuid()
    }
}
