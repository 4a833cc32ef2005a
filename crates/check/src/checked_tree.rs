//! A tree that is checked.

use vlinder_format::{Generation, Key, Level, Logical, RootId};

/// A tree to be walked.
#[derive(Clone, Copy, Debug)]
pub(crate) struct CheckedTree {
    pub(crate) id: RootId,
    pub(crate) logical: Logical,
    pub(crate) generation: Generation,
    pub(crate) level: Level,
    /// Its blocks have extent items. (Those of the fsync log have none.)
    pub(crate) has_references: bool,
    /// Of a half-deleted subvolume: what lies before this key is gone, as far as nodes of this level or above
    /// lead there.
    pub(crate) dropped_to: Option<(Key, Level)>,
    /// When a writer last made a snapshot of the tree: it takes every block that is newer for the tree's own.
    /// None where no writer comes.
    pub(crate) last_snapshot: Option<Generation>,
}
