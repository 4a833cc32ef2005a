//! The parts of an open file system, for all that works in a transaction: handles, the committer, the writer
//! of the log.

use vlinder_base::sync::{Arc, Mutex, MutexGuard};
use vlinder_forest::OpenTree;
use vlinder_format::device::DeviceItem;
use vlinder_format::superblock::Superblock;
use vlinder_format::{Generation, RootId};
use vlinder_space::{Charge, ReserveAccess, SpaceManager};
use vlinder_tree::VolumeBlocks;
use vlinder_volume::Volume;

use crate::block_balance::BlockBalance;
use crate::block_space::BlockSpace;
use crate::chunk_work::ChunkWork;
use crate::chunks::ChunkMaker;
use crate::commit_queues::CommitQueues;
use crate::committer::Committer;
use crate::dead_trees::DeadTrees;
use crate::editor::Editor;
use crate::freed_space::FreedSpace;
use crate::fsync_log::LogWriter;
use crate::global_reserve::ReserveSizing;
use crate::group_loader::GroupLoader;
use crate::handle_space::HandleSpace;
use crate::latch::Latch;
use crate::metrics::EngineMetrics;
use crate::options::EngineOptions;
use crate::phase::RunningTransaction;
use crate::promises::Reserver;
use crate::shutdown::Shutdown;
use crate::subvolume_numbers::SubvolumeNumbers;
use crate::system_trees::SystemTrees;
use crate::troubles::Troubles;
use crate::{EngineError, ReadOnlyReason};

/// What opening has read.
pub(crate) struct OpenedState {
    pub(crate) volume: Arc<Volume>,
    pub(crate) blocks: Arc<VolumeBlocks>,
    pub(crate) superblock: Superblock,
    pub(crate) trees: SystemTrees,
    pub(crate) device_items: Vec<DeviceItem>,
    /// Why nothing can be changed, if so.
    pub(crate) reason: Option<ReadOnlyReason>,
    /// The highest number of a subvolume.
    pub(crate) highest: u64,
}

/// The parts of an open file system. Each keeps its own invariants, under its own lock; what works on several
/// borrows these.
pub(crate) struct EngineCore {
    options: EngineOptions,
    metrics: EngineMetrics,
    volume: Arc<Volume>,
    blocks: Arc<VolumeBlocks>,
    /// The superblock of the last commit, with what changed since in fields that no tree holds.
    superblock: Mutex<Superblock>,
    trees: SystemTrees,
    queues: CommitQueues,
    space: SpaceManager,
    chunks: ChunkWork,
    freed: FreedSpace,
    numbers: SubvolumeNumbers,
    /// What fsync writes between commits.
    log: LogWriter,
    balance: BlockBalance,
    sharing_gate: Mutex<()>,
    running: RunningTransaction,
    committer: Committer,
    latch: Latch,
    troubles: Troubles,
    dead_trees: DeadTrees,
    /// Whether the groups' items were read; held by the thread that reads them.
    has_groups: Mutex<bool>,
}

impl EngineCore {
    pub(crate) fn new(state: OpenedState, options: EngineOptions) -> Self {
        let OpenedState { volume, blocks, superblock, trees, device_items, reason, highest } = state;
        let registry = Arc::clone(&options.registry);
        let chunk_tree_uuid = trees.identity().chunk_tree_uuid;
        Self {
            metrics: EngineMetrics::new(&registry),
            running: RunningTransaction::after(superblock.generation),
            superblock: Mutex::new(superblock),
            queues: CommitQueues::new(trees.checksum_geometry(), &registry),
            space: SpaceManager::new(trees.node_size()),
            chunks: ChunkWork::new(Arc::clone(&volume), chunk_tree_uuid, device_items, &registry),
            freed: FreedSpace::new(Arc::clone(&volume), options.discard, &registry),
            numbers: SubvolumeNumbers::after(highest),
            log: LogWriter::new(Arc::clone(&blocks) as _, options.cache_bytes, &registry),
            balance: BlockBalance::default(),
            sharing_gate: Mutex::new(()),
            committer: Committer::default(),
            latch: Latch::new(reason),
            troubles: Troubles::default(),
            dead_trees: DeadTrees::default(),
            has_groups: Mutex::new(false),
            volume,
            blocks,
            trees,
            options,
        }
    }

    pub(crate) fn options(&self) -> &EngineOptions {
        &self.options
    }

    pub(crate) fn metrics(&self) -> &EngineMetrics {
        &self.metrics
    }

    pub(crate) fn volume(&self) -> &Arc<Volume> {
        &self.volume
    }

    /// What reads and judges tree blocks.
    pub(crate) fn blocks(&self) -> &VolumeBlocks {
        &self.blocks
    }

    /// The superblock as it stands.
    pub(crate) fn superblock(&self) -> MutexGuard<'_, Superblock> {
        self.superblock.lock()
    }

    pub(crate) fn trees(&self) -> &SystemTrees {
        &self.trees
    }

    /// What waits for the commit.
    pub(crate) fn queues(&self) -> &CommitQueues {
        &self.queues
    }

    pub(crate) fn space(&self) -> &SpaceManager {
        &self.space
    }

    pub(crate) fn chunks(&self) -> &ChunkWork {
        &self.chunks
    }

    pub(crate) fn freed(&self) -> &FreedSpace {
        &self.freed
    }

    pub(crate) fn numbers(&self) -> &SubvolumeNumbers {
        &self.numbers
    }

    pub(crate) fn log(&self) -> &LogWriter {
        &self.log
    }

    pub(crate) fn balance(&self) -> &BlockBalance {
        &self.balance
    }

    pub(crate) fn running(&self) -> &RunningTransaction {
        &self.running
    }

    pub(crate) fn committer(&self) -> &Committer {
        &self.committer
    }

    pub(crate) fn latch(&self) -> &Latch {
        &self.latch
    }

    pub(crate) fn troubles(&self) -> &Troubles {
        &self.troubles
    }

    /// Keeps what went wrong in a commit, or before it in writing out what it was to make durable.
    pub(crate) fn note_failed_commit(&self, error: &dyn std::error::Error) {
        self.troubles.note_failed_commit(error.to_string(), self.options.clock.now(), self.generation());
    }

    /// Held while it is settled whether a block is shared, and what follows.
    pub(crate) fn sharing_gate(&self) -> &Mutex<()> {
        &self.sharing_gate
    }

    pub(crate) fn dead_trees(&self) -> &DeadTrees {
        &self.dead_trees
    }

    /// The running transaction's generation.
    pub(crate) fn generation(&self) -> Generation {
        self.running.generation()
    }

    /// The tree of a number, subvolumes included.
    ///
    /// # Errors
    /// [`EngineError::NoSuchTree`], or what reading its root item met.
    pub(crate) fn tree(&self, id: RootId) -> Result<Arc<OpenTree>, EngineError> {
        self.trees.tree(id, self.space.reservations())
    }

    /// Reads how much of each chunk is used, and with that all chunks, unless that was done. A file system
    /// of which files are only read does without. What `forgive` lets pass is not read again.
    pub(crate) fn load_space(
        &self,
        forgive: impl FnOnce(EngineError) -> Result<(), EngineError>,
    ) -> Result<(), EngineError> {
        let mut has_groups = self.has_groups.lock();
        if *has_groups {
            return Ok(());
        }
        let load = || {
            self.volume.load_chunks()?;
            let loaded = self.group_loader().load_items(&self.volume, &self.latch);
            self.reserve_sizing().size_global_reserve();
            loaded
        };
        load().or_else(forgive)?;
        *has_groups = true;
        Ok(())
    }

    /// What a handle, or with no `draw` the committer, changes trees with.
    pub(crate) fn editor(
        &self,
        generation: Generation,
        access: Option<ReserveAccess>,
        promised: Charge,
    ) -> Editor<'_> {
        let space = HandleSpace::new(self.block_space(), access, promised);
        Editor::new(self.trees.store(), space, generation, self.trees.identity())
    }

    /// What makes the file system read-only.
    pub(crate) fn shutdown(&self) -> Shutdown<'_> {
        Shutdown::new(&self.latch, &self.running, &self.volume)
    }

    /// What makes chunks.
    pub(crate) fn chunk_maker(&self) -> ChunkMaker<'_> {
        ChunkMaker::new(&self.trees, &self.queues, &self.space, &self.chunks, &self.running)
    }

    /// What sizes the global reserve.
    pub(crate) fn reserve_sizing(&self) -> ReserveSizing<'_> {
        ReserveSizing {
            trees: &self.trees,
            queues: &self.queues,
            space: &self.space,
            chunks: &self.chunks,
            numbers: &self.numbers,
        }
    }

    /// What reserves space.
    pub(crate) fn reserver(&self) -> Reserver<'_> {
        Reserver::new(self.reserve_sizing(), &self.running, &self.freed)
    }

    /// What gives trees their blocks.
    pub(crate) fn block_space(&self) -> BlockSpace<'_> {
        BlockSpace::new(self.reserver(), self.shutdown(), &self.log, &self.balance, &self.sharing_gate)
    }

    /// What reads groups out of the trees.
    pub(crate) fn group_loader(&self) -> GroupLoader<'_> {
        GroupLoader::new(&self.trees, &self.space, &self.chunks)
    }
}
