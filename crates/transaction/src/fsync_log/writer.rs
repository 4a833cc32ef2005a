//! The log of the running transaction: its trees in memory, how far it is durable, and the blocks that it has
//! and had.

use std::collections::{BTreeMap, HashSet};

use vlinder_base::metrics::{Counter, Histogram, Registry, Timer, Unit};
use vlinder_base::sync::{Arc, Condvar, Mutex, MutexGuard};
use vlinder_format::block::BLOCK_FLAG_WRITTEN;
use vlinder_format::{Block, Damage, Generation, Logical, Place, RootId};
use vlinder_space::Pins;
use vlinder_tree::{BlockSource, Root, RootPointer, TreeMetrics, Trees};

use crate::EngineError;

/// So many times its largest size a log may take up of the devices: each fsync writes some of its blocks
/// anew, and none of the former places is free before the next commit.
const FORMER_BLOCKS: usize = 16;

/// The log of one subvolume.
pub(super) struct Log {
    pub(super) root: Arc<Root>,
    /// Where the log root tree says that it is.
    pub(super) recorded: Option<RootPointer>,
}

/// What is in the log, under the content lock.
#[derive(Default)]
pub(super) struct Content {
    pub(super) generation: Generation,
    /// The tree of the logs' roots.
    pub(super) roots: Option<Arc<Root>>,
    pub(super) logs: BTreeMap<RootId, Log>,
    /// Counts the changes.
    pub(super) sequence: u64,
    /// A change was begun and not finished.
    pub(super) is_broken: bool,
}

/// How far the log is durable.
#[derive(Default)]
struct Progress {
    generation: Generation,
    /// Of [`Content::sequence`].
    durable: u64,
    is_writing: bool,
    /// Threads on their way to a ticket: the writer waits for them, and writes theirs too.
    coming: usize,
}

/// The blocks of the running transaction's log.
#[derive(Default)]
struct LogBlocks {
    /// Every address that one has or had on a device.
    addresses: HashSet<Logical>,
    /// How many there are now.
    count: usize,
}

struct LogMetrics {
    log_writes: Arc<Counter>,
    blocks_written: Arc<Counter>,
    rides: Arc<Counter>,
    sync_time: Arc<Histogram>,
}

impl LogMetrics {
    fn new(registry: &Registry) -> Self {
        let count = |name, help| registry.counter(name, help, Unit::Count);
        Self {
            log_writes: count("fsync_log.writes", "times that the log was written, for one or more fsyncs"),
            blocks_written: count("fsync_log.blocks_written", "tree blocks of logs written"),
            rides: count("fsync_log.rides", "fsyncs whose log another one wrote"),
            sync_time: registry.histogram(
                "fsync_log.sync_time_ns",
                "time to write the log: blocks, flush, superblock",
                Unit::Nanoseconds,
            ),
        }
    }
}

/// The log of the running transaction.
///
/// Invariants:
/// 1. Content and progress are those of one transaction, the one that was running when the log was last
///    changed or ended.
/// 2. One thread writes at a time. It begins when every thread that is on its way to change the log
///    ([`edit`](Self::edit)) has got there.
/// 3. An address stays in the log's blocks until the log ends, unless its block was never written.
pub(crate) struct LogWriter {
    trees: Trees,
    content: Mutex<Content>,
    progress: Mutex<Progress>,
    progress_changed: Condvar,
    blocks: Mutex<LogBlocks>,
    /// Blocks that a log may have.
    most_blocks: usize,
    metrics: LogMetrics,
}

impl LogWriter {
    pub(crate) fn new(source: Arc<dyn BlockSource>, cache_bytes: u64, registry: &Registry) -> Self {
        let node_bytes = u64::from(source.node_size()).max(1);
        Self {
            // For clean blocks; the changed ones come on top, and `most_blocks` bounds them, since no commit
            // does.
            trees: Trees::new(source, cache_bytes / 32, TreeMetrics::new(registry)),
            content: Mutex::default(),
            progress: Mutex::default(),
            progress_changed: Condvar::new(),
            blocks: Mutex::default(),
            most_blocks: usize::try_from(cache_bytes / 16 / node_bytes).unwrap_or(usize::MAX),
            metrics: LogMetrics::new(registry),
        }
    }

    /// The trees of the log, for reading and changing.
    pub(super) fn trees(&self) -> &Trees {
        &self.trees
    }

    /// What is in the log, for the thread that writes it.
    pub(super) fn content(&self) -> MutexGuard<'_, Content> {
        self.content.lock()
    }

    /// What is in the log, for a thread that changes it: a writer waits for that thread.
    pub(super) fn edit(&self) -> MutexGuard<'_, Content> {
        self.progress.lock().coming += 1;
        let content = self.content.lock();
        self.progress.lock().coming -= 1;
        self.progress_changed.notify_all();
        content
    }

    /// The log is left half made: nothing is logged any more until it ends.
    pub(super) fn note_broken(&self) {
        self.content.lock().is_broken = true;
    }

    /// Whether the log is too large to be replayed within the same memory, or takes up too much space by what
    /// its blocks were before.
    pub(super) fn is_too_large(&self) -> bool {
        let blocks = self.blocks.lock();
        blocks.count > self.most_blocks
            || blocks.addresses.len() > self.most_blocks.saturating_mul(FORMER_BLOCKS)
    }

    /// Waits until everything up to `sequence` is durable, or until this thread is the one to write it; gives
    /// whether it is. A thread that writes calls [`end_writing`](Self::end_writing).
    ///
    /// # Errors
    /// What `check` says: that nothing can be changed.
    pub(super) fn begin_writing(
        &self,
        generation: Generation,
        sequence: u64,
        check: impl Fn() -> Result<(), EngineError>,
    ) -> Result<bool, EngineError> {
        let mut progress = self.progress.lock();
        loop {
            check()?;
            if progress.generation == generation && progress.durable >= sequence {
                self.metrics.rides.increment();
                return Ok(false);
            }
            if !progress.is_writing {
                break;
            }
            self.progress_changed.wait(&mut progress);
        }
        progress.is_writing = true;
        while progress.coming > 0 {
            self.progress_changed.wait(&mut progress);
        }
        Ok(true)
    }

    /// The thread that wrote has ended, with everything up to `durable`, or with nothing.
    pub(super) fn end_writing(&self, generation: Generation, durable: Option<u64>) {
        let mut progress = self.progress.lock();
        progress.is_writing = false;
        if let Some(durable) = durable {
            (progress.generation, progress.durable) = (generation, durable);
        }
        self.progress_changed.notify_all();
    }

    /// Measures the time that a writing takes.
    pub(super) fn sync_timer(&self) -> Timer<'_> {
        self.metrics.sync_time.time()
    }

    /// So many blocks are on the devices, with a superblock that names them.
    pub(super) fn note_written(&self, blocks: usize) {
        self.metrics.log_writes.increment();
        self.metrics.blocks_written.add(u64::try_from(blocks).unwrap_or(u64::MAX));
    }

    /// The transaction of `generation` ends: its log is worth nothing once its superblock is durable, and so
    /// long its blocks stay pinned. No handle is open.
    pub(crate) fn end_transaction(
        &self,
        generation: Generation,
        node_size: u32,
        pins: Pins<'_>,
    ) -> Result<(), EngineError> {
        let length = u64::from(node_size);
        for logical in self.end(generation) {
            pins.pin_reserved(logical, length).map_err(|fault| Damage::new(fault, Place::default()))?;
        }
        Ok(())
    }

    /// The transaction of `generation` ends, and its log with it. Gives the addresses that the log had on
    /// devices.
    fn end(&self, generation: Generation) -> HashSet<Logical> {
        let mut content = self.content.lock();
        // What was not written yet never will be.
        self.trees.freeze(generation);
        self.trees.forget_frozen();
        *content = Content { generation: generation.next(), ..Content::default() };
        *self.progress.lock() = Progress { generation: generation.next(), ..Progress::default() };
        std::mem::take(&mut *self.blocks.lock()).addresses
    }

    /// How many addresses the log holds until it ends, by what its blocks are and were.
    pub(super) fn held_blocks(&self) -> u64 {
        u64::try_from(self.blocks.lock().addresses.len()).unwrap_or(u64::MAX)
    }

    /// A block came to be in a log.
    pub(crate) fn block_created(&self, block: &Block) {
        let mut blocks = self.blocks.lock();
        blocks.addresses.insert(block.logical());
        blocks.count += 1;
    }

    /// A log needs a block no more; gives whether its address is free. What may be on a device stays where it
    /// is: the superblock there may reach it.
    pub(crate) fn block_dropped(&self, block: &Block) -> bool {
        let mut blocks = self.blocks.lock();
        blocks.count -= 1;
        !block.has_flag(BLOCK_FLAG_WRITTEN) && blocks.addresses.remove(&block.logical())
    }
}
