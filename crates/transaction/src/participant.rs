//! What a commit needs from above.

use crate::EngineError;

/// Someone who has things to put into a transaction before it ends: `fs` with its delayed data and inodes.
pub trait Participant: Send + Sync {
    /// The transaction is about to end; handles may still begin. Called by the committing thread, with no
    /// handle open.
    ///
    /// # Errors
    /// What went wrong; the commit goes on without it, and the caller that asked for the commit is told.
    fn before_commit(&self) -> Result<(), EngineError>;
}
