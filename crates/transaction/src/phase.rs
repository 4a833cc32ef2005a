//! The running transaction as handles see it: open, or for a moment closed.

use vlinder_format::Generation;

/// What the transaction's lock guards.
#[derive(Debug)]
pub(crate) struct Phase {
    /// The running transaction.
    pub(crate) generation: Generation,
    /// The last transaction whose superblock is durable.
    pub(crate) published: Generation,
    /// Handles open in it.
    pub(crate) handles: usize,
    /// The committer is in its critical phase, or waits for the last handle: no new handle begins.
    pub(crate) critical: bool,
    /// Something changed that no dirty block shows yet.
    pub(crate) changed: bool,
    /// The commit before the running transaction is frozen, and waits for space on the host.
    pub(crate) is_held_up: bool,
}

impl Phase {
    /// The first transaction after this commit.
    pub(crate) fn after(published: Generation) -> Self {
        Self {
            generation: published.next(),
            published,
            handles: 0,
            critical: false,
            changed: false,
            is_held_up: false,
        }
    }
}
