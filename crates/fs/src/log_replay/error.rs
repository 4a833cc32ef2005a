//! Why a log cannot be replayed.

use vlinder_format::Damage;
use vlinder_transaction::EngineError;
use vlinder_tree::TreeError;
use vlinder_volume::VolumeError;

/// Why a log cannot be replayed. The opener of the file system is told through
/// [`ReadOnlyReason::LogReplay`](vlinder_transaction::ReadOnlyReason::LogReplay).
#[derive(Debug, thiserror::Error)]
pub(crate) enum ReplayError {
    /// Space, the commit, the trees that it changes.
    #[error(transparent)]
    Engine(#[from] EngineError),
    /// A tree could not be read or changed.
    #[error(transparent)]
    Tree(#[from] TreeError),
    /// The log contradicts the subvolume, or itself.
    #[error(transparent)]
    Damage(#[from] Damage),
    /// The volume could not be opened.
    #[error(transparent)]
    Volume(#[from] VolumeError),
    /// The log changes more than may be held in memory.
    #[error(
        "it changes more than {most_bytes} bytes of trees ({changed_bytes} so far); give more memory (cache=)"
    )]
    TooLarge {
        /// Bytes of changed blocks when it was given up.
        changed_bytes: u64,
        /// The bound.
        most_bytes: u64,
    },
}
