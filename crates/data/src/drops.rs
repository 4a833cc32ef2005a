//! A count of what changes drop, which tells whether a commit would free more than the last attempt to make
//! room did.

use vlinder_base::sync::Arc;
use vlinder_base::sync::atomic::{AtomicU64, Ordering};

/// Counts what the running transaction drops: space that comes free with its commit, and shows nowhere
/// before.
#[derive(Clone, Debug, Default)]
pub struct Drops(Arc<AtomicU64>);

impl Drops {
    /// A reference of an extent or an inode was dropped.
    pub fn note(&self) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }

    /// How many there were.
    pub(crate) fn count(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}
