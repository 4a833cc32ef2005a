//! What one file system knows of all unflushed data: how much there is, in which files, and when it has to
//! go.

use std::collections::BTreeMap;

use vlinder_base::metrics::{Counter, Gauge, Histogram, Registry, Unit};
use vlinder_base::sync::atomic::{AtomicU64, Ordering};
use vlinder_base::sync::{Arc, Mutex};

use crate::data_options::DataOptions;
use crate::file_data::StateMaps;
use crate::file_node::FileNode;
use crate::flush::DeferredBatch;
use crate::ids::InodeId;

/// Counters of write-back and seeking.
pub(crate) struct DataMetrics {
    /// Bytes in memory that no extent holds yet.
    pub(crate) dirty_bytes: Arc<Gauge>,
    /// Flushes of groups of files.
    pub(crate) flushes: Arc<Counter>,
    /// Extents written to new space.
    pub(crate) extents: Arc<Counter>,
    /// Extents among them that are compressed.
    pub(crate) compressed_extents: Arc<Counter>,
    /// Runs written in place.
    pub(crate) in_place: Arc<Counter>,
    /// Batches written in place whose space a snapshot came to share before they were entered.
    pub(crate) overtaken: Arc<Counter>,
    /// Files put into their tree.
    pub(crate) inline: Arc<Counter>,
    /// How long a flush takes.
    pub(crate) flush_time: Arc<Histogram>,
    /// State records visited by searches for unflushed data (`seek_cache`).
    pub(crate) states_visited: Arc<Counter>,
    /// Reads that brought what follows as well.
    pub(crate) read_ahead: Arc<Counter>,
    /// Reads that locked their range, because extents were being entered.
    pub(crate) locked_reads: Arc<Counter>,
}

impl DataMetrics {
    fn new(registry: &Registry) -> Self {
        let counter = |name, help| registry.counter(name, help, Unit::Count);
        Self {
            dirty_bytes: registry.gauge(
                "delalloc.bytes",
                "bytes written that no extent holds yet",
                Unit::Bytes,
            ),
            flushes: counter("write_back.flushes", "flushes of groups of files"),
            extents: counter("write_back.extents", "extents written to new space"),
            compressed_extents: counter("write_back.compressed_extents", "extents written compressed"),
            in_place: counter("write_back.in_place", "runs written in place"),
            overtaken: counter(
                "write_back.overtaken",
                "batches written in place whose space a snapshot came to share before they were entered",
            ),
            inline: counter("write_back.inline", "files put into their tree"),
            flush_time: registry.histogram(
                "write_back.flush_time_ns",
                "time to flush a group of files",
                Unit::Nanoseconds,
            ),
            states_visited: counter(
                "delalloc.states_visited",
                "state records visited by searches for unflushed data",
            ),
            read_ahead: counter("data.read_ahead", "reads of data that brought what follows as well"),
            locked_reads: counter(
                "data.locked_reads",
                "reads of data that locked their range, because extents were entered into the file",
            ),
        }
    }
}

/// All unflushed data of a file system.
///
/// Invariants, and the function that keeps each:
/// 1. The bytes are the sum of those in all layers of all files: each change of a file's layers is told under
///    that file's lock ([`account_change`](Self::account_change)).
/// 2. A file that has unflushed data is listed when the write that brought them ends
///    ([`add`](Self::add)). It leaves the list only if it is clean there and then, under the lock of the list
///    ([`remove_if_clean`](Self::remove_if_clean)); a clean file may be listed for a moment.
/// 3. The files come in the order of their ids, so two flushes lock several files in one order
///    ([`files`](Self::files)).
pub(crate) struct WriteBack {
    limit_bytes: u64,
    bytes: AtomicU64,
    /// The files that have some.
    files: Mutex<BTreeMap<InodeId, Arc<FileNode>>>,
    state_maps: StateMaps,
    caches_seeks: bool,
    pub(crate) under_way: DeferredBatch,
    pub(crate) metrics: DataMetrics,
}

impl WriteBack {
    pub(crate) fn new(options: &DataOptions, registry: &Registry) -> Self {
        Self {
            limit_bytes: options.dirty_bytes,
            bytes: AtomicU64::new(0),
            files: Mutex::default(),
            state_maps: StateMaps::new(
                vlinder_extent_state::Metrics::new(registry),
                !options.disabled.state_trim,
            ),
            caches_seeks: !options.disabled.seek_cache,
            under_way: DeferredBatch::default(),
            metrics: DataMetrics::new(registry),
        }
    }

    /// How the state maps of files are kept.
    pub(crate) fn state_maps(&self) -> &StateMaps {
        &self.state_maps
    }

    pub(crate) fn caches_seeks(&self) -> bool {
        self.caches_seeks
    }

    /// Bytes came (or, if negative, went).
    pub(crate) fn account(&self, change: i64) {
        self.bytes.fetch_add(change as u64, Ordering::Relaxed);
        self.metrics.dirty_bytes.add(change);
    }

    /// A file has so many bytes where it had others.
    pub(crate) fn account_change(&self, before: u64, after: u64) {
        self.account((after as i64).wrapping_sub(before as i64));
    }

    /// How many there are.
    pub(crate) fn bytes(&self) -> u64 {
        self.bytes.load(Ordering::Relaxed)
    }

    /// Whether there is more than memory should hold.
    pub(crate) fn is_over_limit(&self) -> bool {
        self.bytes.load(Ordering::Relaxed) > self.limit_bytes
    }

    /// Whether there is so much that it is better written out before writers have to wait.
    pub(crate) fn is_crowded(&self) -> bool {
        self.bytes.load(Ordering::Relaxed) > self.limit_bytes / 4 * 3
    }

    /// Whether there is less than half of that.
    pub(crate) fn is_under_half(&self) -> bool {
        self.bytes.load(Ordering::Relaxed) <= self.limit_bytes / 2
    }

    /// Whether nothing is unflushed.
    pub(crate) fn is_empty(&self) -> bool {
        self.bytes.load(Ordering::Relaxed) == 0
    }

    /// A file has unflushed data.
    pub(crate) fn add(&self, node: &Arc<FileNode>) {
        self.files.lock().entry(node.id()).or_insert_with(|| Arc::clone(node));
    }

    /// A file may have none any more.
    pub(crate) fn remove_if_clean(&self, node: &FileNode) {
        let mut files = self.files.lock();
        if node.data().may_be_forgotten() {
            files.remove(&node.id());
        }
    }

    /// The files that have unflushed data, in the order of their ids.
    pub(crate) fn files(&self) -> Vec<Arc<FileNode>> {
        self.files.lock().values().cloned().collect()
    }
}
