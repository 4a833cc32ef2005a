//! The writing side of the fsync log: its trees, the space that they grow in, and how they become durable.
//!
//! A log belongs to one transaction: the next commit makes it worthless and frees it. The thread that writes
//! one holds a [`Handle`], so that the transaction can't end meanwhile. What the items mean is `fs`'s
//! business.
//!
//! | step | under | what |
//! |---|---|---|
//! | [`Handle::edit_log`] | the content lock | waits until the commit before is published; then items are changed in memory |
//! | [`LogEdit::finish`] | – | gives a [`LogTicket`]: what is in the log up to now |
//! | [`Handle::sync_log`] | – | makes everything up to a ticket durable: one writes, others ride |
//!
//! Invariants:
//! 1. Blocks of a log carry the generation of the running transaction, which is the committed one's
//!    successor.
//! 2. A block that may be on a device is never changed: it is sealed before it is written, and a change
//!    copies it.
//! 3. No address that a block of the log ever had is taken again before the commit that ends the log is
//!    durable.
//! 4. No superblock names a log that was left half made, or that reaches into a chunk which the committed
//!    state has not.

mod space;
mod sync;

use std::collections::{BTreeMap, HashSet};

use vlinder_base::metrics::{Counter, Histogram, Registry, Unit};
use vlinder_base::sync::{Arc, Condvar, Mutex, MutexGuard};
use vlinder_format::{Generation, Key, Logical, RootId};
use vlinder_tree::{BlockSource, Edit, Readahead, Root, RootPointer, TreeMetrics, Trees};

use crate::checksums::ChecksumTree;
use crate::editor::Editor;
use crate::engine::Engine;
use crate::handle_space::HandleSpace;
use crate::{EngineError, Handle};
use vlinder_space::Charge;

/// So many times its largest size a log may take up of the devices: each fsync writes some of its blocks
/// anew, and none of the former places is free before the next commit.
const FORMER_BLOCKS: usize = 16;

/// Why there is no log, so that only a commit makes something durable. Linux commits for the same reasons.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum NoLog {
    /// A chunk was made in this transaction, and the committed state, by which a log is read, does not know
    /// it.
    NewChunk,
    /// There is no room for the log's blocks.
    NoSpace,
    /// The log would be larger than a replay may be.
    TooLarge,
    /// An earlier fsync of this transaction left the log half made.
    Broken,
}

/// What [`Handle::sync_log`] and [`Handle::edit_log`] can't do.
#[derive(Debug, thiserror::Error)]
pub enum LogError {
    /// A commit does it.
    #[error("the log can't hold it ({0:?})")]
    NoLog(NoLog),
    /// The devices, or the state of the file system.
    #[error(transparent)]
    Engine(#[from] EngineError),
}

impl From<vlinder_tree::TreeError> for LogError {
    fn from(error: vlinder_tree::TreeError) -> Self {
        match EngineError::from(error) {
            error if error.is_no_space() => Self::NoLog(NoLog::NoSpace),
            error => Self::Engine(error),
        }
    }
}

/// Everything that was put into the log before this was given.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use = "nothing is durable before the log was synced"]
pub struct LogTicket {
    sequence: u64,
}

/// The log of one subvolume.
struct Log {
    root: Arc<Root>,
    /// Where the log root tree says that it is.
    recorded: Option<RootPointer>,
}

/// What is in the log, under the content lock.
#[derive(Default)]
struct Content {
    generation: Generation,
    /// The tree of the logs' roots.
    roots: Option<Arc<Root>>,
    logs: BTreeMap<RootId, Log>,
    /// Counts the changes.
    sequence: u64,
    /// A change was begun and not finished.
    is_broken: bool,
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

impl LogBlocks {
    /// Whether the log is too large to be replayed within the same memory, or takes up too much space by what
    /// its blocks were before.
    fn are_too_many(&self, most_blocks: usize) -> bool {
        self.count > most_blocks || self.addresses.len() > most_blocks.saturating_mul(FORMER_BLOCKS)
    }
}

struct LogMetrics {
    log_writes: Arc<Counter>,
    blocks_written: Arc<Counter>,
    rides: Arc<Counter>,
    sync_time: Arc<Histogram>,
}

/// The log of the running transaction.
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
        let count = |name, help| registry.counter(name, help, Unit::Count);
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
            metrics: LogMetrics {
                log_writes: count(
                    "fsync_log.writes",
                    "times that the log was written, for one or more fsyncs",
                ),
                blocks_written: count("fsync_log.blocks_written", "tree blocks of logs written"),
                rides: count("fsync_log.rides", "fsyncs whose log another one wrote"),
                sync_time: registry.histogram(
                    "fsync_log.sync_time_ns",
                    "time to write the log: blocks, flush, superblock",
                    Unit::Nanoseconds,
                ),
            },
        }
    }
}

/// The log of the running transaction, being changed. Dropped without [`finish`](LogEdit::finish), it leaves
/// the log half made: until the next commit nothing more is logged then.
pub struct LogEdit<'a> {
    engine: &'a Engine,
    content: MutexGuard<'a, Content>,
    editor: Editor<'a>,
    is_finished: bool,
}

impl Handle<'_> {
    /// Waits until the commit before this transaction is published: what it has is durable then, and a log
    /// goes on from there.
    ///
    /// # Errors
    /// That the file system has become read-only; [`EngineError::HostFull`] where that commit waits for space
    /// on the host.
    pub fn wait_until_published(&self) -> Result<(), EngineError> {
        let mut phase = self.engine.phase.lock();
        while phase.published.next() < self.generation() {
            self.engine.check_writable()?;
            if phase.is_held_up {
                return Err(self.engine.full_host());
            }
            self.engine.phase_changed.wait(&mut phase);
        }
        assert_eq!(phase.published.next(), self.generation(), "a handle outlived its transaction");
        drop(phase);
        self.engine.check_writable()
    }

    /// Begins to change the log of this handle's transaction. Only one thread does at a time; the others
    /// wait.
    ///
    /// # Errors
    /// [`NoLog`], or that the file system has become read-only.
    pub fn edit_log(&self) -> Result<LogEdit<'_>, LogError> {
        let engine = self.engine;
        self.wait_until_published()?;
        engine.log.progress.lock().coming += 1;
        let content = engine.log.content.lock();
        {
            let mut progress = engine.log.progress.lock();
            progress.coming -= 1;
            engine.log.progress_changed.notify_all();
        }
        let generation = self.generation();
        assert!(
            content.generation == generation || content.roots.is_none(),
            "a log outlived its transaction"
        );
        if engine.chunks.has_new() {
            return Err(LogError::NoLog(NoLog::NewChunk));
        }
        if content.is_broken && content.generation == generation {
            return Err(LogError::NoLog(NoLog::Broken));
        }
        if engine.log.blocks.lock().are_too_many(engine.log.most_blocks) {
            return Err(LogError::NoLog(NoLog::TooLarge));
        }
        let editor = Editor::new(
            &engine.log.trees,
            HandleSpace::new(engine, None, Charge::default()),
            generation,
            engine.identity(),
        );
        let mut edit = LogEdit { engine, content, editor, is_finished: false };
        edit.content.generation = generation;
        edit.content.sequence += 1;
        Ok(edit)
    }
}

impl LogEdit<'_> {
    /// The log of a subvolume, made if there is none.
    fn log(&mut self, subvolume: RootId) -> Result<Arc<Root>, LogError> {
        if let Some(log) = self.content.logs.get(&subvolume) {
            return Ok(Arc::clone(&log.root));
        }
        let root = Root::new(RootId::TREE_LOG, self.editor.create_tree(RootId::TREE_LOG)?, Generation(0));
        self.content.logs.insert(subvolume, Log { root: Arc::clone(&root), recorded: None });
        Ok(root)
    }

    /// Changes items of a subvolume's log: all edits or none; sorted by key.
    ///
    /// # Errors
    /// No space, or what reading blocks met.
    pub fn edit(&mut self, subvolume: RootId, edits: &[Edit<'_>]) -> Result<(), LogError> {
        let root = self.log(subvolume)?;
        Ok(self.editor.edit(&root, edits)?)
    }

    /// The items of a subvolume's log from `from` up to and with `to`.
    ///
    /// # Errors
    /// What reading blocks met.
    pub fn items(&self, subvolume: RootId, from: Key, to: Key) -> Result<Vec<(Key, Vec<u8>)>, LogError> {
        let Some(log) = self.content.logs.get(&subvolume) else { return Ok(Vec::new()) };
        let mut cursor = self.editor.trees.cursor(&log.root, &from, Readahead::None)?;
        let mut items = Vec::new();
        while let Some((key, data)) = cursor.item().filter(|(key, _)| *key <= to) {
            items.push((key, data.to_vec()));
            cursor.advance()?;
        }
        Ok(items)
    }

    /// The last item of a subvolume's log at or before a key.
    ///
    /// # Errors
    /// What reading blocks met.
    pub fn floor(&self, subvolume: RootId, key: &Key) -> Result<Option<(Key, Vec<u8>)>, LogError> {
        let Some(log) = self.content.logs.get(&subvolume) else { return Ok(None) };
        let found = self.editor.trees.floor(&log.root, key)?;
        Ok(found.map(|found| (found.key(), found.data().to_vec())))
    }

    /// Puts the checksums of data into a subvolume's log, one for each sector from `start` on, in place of
    /// those that it has.
    ///
    /// # Errors
    /// No space, or what reading blocks met.
    pub fn put_checksums(
        &mut self,
        subvolume: RootId,
        start: Logical,
        checksums: &[u8],
    ) -> Result<(), LogError> {
        let root = self.log(subvolume)?;
        let geometry = self.engine.checksum_geometry();
        let tree = ChecksumTree { root: &root, geometry };
        tree.remove(&mut self.editor, start, geometry.covered(checksums.len()))?;
        Ok(tree.insert(&mut self.editor, start, checksums)?)
    }

    /// The log is whole again.
    pub fn finish(mut self) -> LogTicket {
        self.is_finished = true;
        LogTicket { sequence: self.content.sequence }
    }
}

impl Drop for LogEdit<'_> {
    fn drop(&mut self) {
        self.content.is_broken |= !self.is_finished;
    }
}

impl Engine {
    /// The transaction of `generation` ends: its log is worth nothing once its superblock is durable, and so
    /// long its blocks stay pinned. No handle is open.
    pub(crate) fn end_log(&self, generation: Generation) -> Result<(), EngineError> {
        let mut content = self.log.content.lock();
        // What was not written yet never will be.
        self.log.trees.freeze(generation);
        self.log.trees.forget_frozen();
        *content = Content { generation: generation.next(), ..Content::default() };
        *self.log.progress.lock() = Progress { generation: generation.next(), ..Progress::default() };
        let length = u64::from(self.node_size());
        for logical in std::mem::take(&mut *self.log.blocks.lock()).addresses {
            self.space
                .pins()
                .pin_reserved(logical, length)
                .map_err(|fault| vlinder_format::Damage::new(fault, vlinder_format::Place::default()))?;
        }
        Ok(())
    }
}
