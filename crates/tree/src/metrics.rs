//! What the mechanisms of this crate count.

use vlinder_base::metrics::{Counter, Histogram, Registry, Unit};
use vlinder_base::sync::Arc;

/// Counters and histograms of all trees of a file system.
#[derive(Clone)]
pub struct TreeMetrics {
    /// Descents from a root to a leaf, for reading.
    pub descents: Arc<Counter>,
    /// Blocks that were not in memory.
    pub blocks_read: Arc<Counter>,
    /// Batches that changed a tree (one for each leaf changed).
    pub leaf_batches: Arc<Counter>,
    /// Blocks copied to a new address.
    pub blocks_cowed: Arc<Counter>,
    /// Blocks split in two.
    pub splits: Arc<Counter>,
    /// Blocks merged into a sibling.
    pub merges: Arc<Counter>,
    /// Leaves that gave items to a neighbour instead of being split.
    pub pushes: Arc<Counter>,
    /// Plans that had to be made again: a block or an address was not at hand.
    pub replans: Arc<Counter>,
    /// How long a writer holds a root's lock.
    pub root_lock_hold_time: Arc<Histogram>,
}

impl TreeMetrics {
    /// The metrics under their names in a registry.
    pub fn new(registry: &Registry) -> Self {
        let counter = |name, help| registry.counter(name, help, Unit::Count);
        Self {
            descents: counter("tree.descents", "descents from a root to a leaf for reading"),
            blocks_read: counter(
                "tree.blocks_read",
                "tree blocks that were read because they were not in memory",
            ),
            leaf_batches: counter("tree.leaf_batches", "batches of changes, one for each leaf changed"),
            blocks_cowed: counter("tree.blocks_cowed", "tree blocks copied to a new address"),
            splits: counter("tree.splits", "tree blocks split in two"),
            merges: counter("tree.merges", "tree blocks merged into a sibling"),
            pushes: counter("tree.pushes", "leaves that gave items to a neighbour instead of being split"),
            replans: counter(
                "tree.replans",
                "plans made again because a block or an address was not at hand",
            ),
            root_lock_hold_time: registry.histogram(
                "tree.root_lock_hold_time_ns",
                "how long a writer holds the lock of a root",
                Unit::Nanoseconds,
            ),
        }
    }
}
