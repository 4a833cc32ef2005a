//! What the mechanisms of this crate count.

use vlinder_base::metrics::{Counter, Histogram, Registry, Unit};
use vlinder_base::sync::Arc;

use crate::change_kind::MostUsed;

/// How often the records of a group in the free-space tree changed their form.
pub(crate) struct Conversions {
    pub(crate) to_bitmaps: Arc<Counter>,
    pub(crate) to_extents: Arc<Counter>,
}

impl Conversions {
    pub(crate) fn new(registry: &Registry) -> Self {
        let count = |name, help| registry.counter(name, help, Unit::Count);
        Self {
            to_bitmaps: count(
                "free_space_tree.to_bitmaps",
                "block groups whose free space came to be kept as bitmaps",
            ),
            to_extents: count(
                "free_space_tree.to_extents",
                "block groups whose free space came to be kept as extents again",
            ),
        }
    }
}

/// Counters and histograms of the commit.
pub(crate) struct EngineMetrics {
    pub(crate) commits: Arc<Counter>,
    pub(crate) commit_time: Arc<Histogram>,
    pub(crate) critical_time: Arc<Histogram>,
    pub(crate) group_phase_time: Arc<Histogram>,
    pub(crate) begin_wait_time: Arc<Histogram>,
    pub(crate) groups_updated: Arc<Counter>,
    pub(crate) group_writes: Arc<Counter>,
    pub(crate) heads_run: Arc<Counter>,
    pub(crate) blocks_written: Arc<Counter>,
    pub(crate) most_used: MostUsed,
    pub(crate) broken_promises: Arc<Counter>,
}

impl EngineMetrics {
    pub(crate) fn new(registry: &Registry) -> Self {
        let count = |name, help| registry.counter(name, help, Unit::Count);
        let time = |name, help| registry.histogram(name, help, Unit::Nanoseconds);
        Self {
            commits: count("transaction.commits", "transactions committed"),
            commit_time: time("transaction.commit_time_ns", "duration of a commit"),
            critical_time: time("transaction.critical_time_ns", "time in a commit in which no handle begins"),
            group_phase_time: time(
                "block_groups.phase_time_ns",
                "time in a commit spent on block group items",
            ),
            begin_wait_time: time("transaction.begin_wait_time_ns", "how long a new handle waits"),
            groups_updated: count(
                "block_groups.items_updated",
                "block group items that a commit left different from how it found them",
            ),
            group_writes: count("block_groups.item_writes", "times that a block group item was written"),
            heads_run: count("delayed_references.heads_run", "extents whose pending references were written"),
            blocks_written: count("transaction.blocks_written", "tree blocks written by commits"),
            most_used: MostUsed::new(registry),
            broken_promises: count(
                "space.broken_promises",
                "times that there was less room than what waits for the commit may take: a mistake of this program",
            ),
        }
    }
}
