//! What can go wrong while a state is read.

use vlinder_format::{Damage, RootId};
use vlinder_tree::TreeError;

/// An error of reading.
#[derive(Debug, thiserror::Error)]
pub enum ForestError {
    /// A search in a tree failed.
    #[error(transparent)]
    Tree(#[from] TreeError),
    /// Bytes on disk break a rule.
    #[error(transparent)]
    Damage(#[from] Damage),
    /// The state has no tree of this number.
    #[error("there is no tree {root}; check the file system, or the number given")]
    NoSuchTree {
        /// The number.
        root: RootId,
    },
}
