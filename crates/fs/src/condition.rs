//! How a file system fares, beside how full it is: what keeps it from storing what it is given.

use vlinder_data::FileStore;
use vlinder_transaction::{FailedCommit, ReadOnlyReason};

/// What an operator has to know.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Condition {
    /// Why it takes no changes; none where it takes them.
    pub read_only: Option<ReadOnlyReason>,
    /// The host has no space for the image.
    pub is_host_full: bool,
    /// Bytes that were accepted and could not be stored when that was tried last. They are in memory.
    pub held_bytes: u64,
    /// The last commit that failed since it was opened.
    pub failed_commit: Option<FailedCommit>,
}

impl Condition {
    /// How a file system fares now.
    pub(crate) fn of(store: &FileStore) -> Self {
        let engine = store.engine();
        Self {
            read_only: engine.read_only_reason(),
            is_host_full: engine.is_host_full(),
            held_bytes: store.held_bytes(),
            failed_commit: engine.troubles().failed_commit(),
        }
    }
}
