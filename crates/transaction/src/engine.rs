//! The engine: a volume's trees, its space, and the running transaction, as one thing that `fs` builds on.

use std::ops::Range;

use vlinder_base::clock::Clock;
use vlinder_base::inode_clock::InodeClock;
use vlinder_base::metrics::Registry;
use vlinder_base::random::{OsRandom, Random};
use vlinder_base::sync::{Arc, Mutex, Weak};
use vlinder_codec::checksum::ChecksumKind;
use vlinder_format::checksum_item::ChecksumGeometry;
use vlinder_format::features::IncompatFeatures;
use vlinder_format::superblock::Superblock;
use vlinder_format::{Generation, Key, RootId};
use vlinder_tree::bootstrap::Leniency;
use vlinder_tree::lease::{CommitLease, LeaseObserver};
use vlinder_tree::{Root, RootPointer, VolumeBlocks};
use vlinder_volume::Volume;

use crate::block_balance::BlockBalance;
use crate::chunk_work::ChunkWork;
use crate::chunks::ChunkMaker;
use crate::commit_queues::CommitQueues;
use crate::dead_trees::DeadTrees;
use crate::freed_space::FreedSpace;
use crate::fsync_log::LogWriter;
use crate::global_reserve::ReserveSizing;
use crate::group_loader::GroupLoader;
use crate::latch::Latch;
use crate::measuring::Measuring;
use crate::metrics::EngineMetrics;
use crate::pending::PendingWindow;
use crate::phase::RunningTransaction;
use crate::promises::{DataPromise, Reserver};
use crate::shutdown::Shutdown;
use crate::space_service::BlockSpace;
use crate::subvolume_numbers::SubvolumeNumbers;
use crate::system_trees::SystemTrees;
use crate::troubles::Troubles;
use crate::unpublished::Unpublished;
use crate::{EngineError, Participant, ReadOnlyReason};
use vlinder_forest::{Forest, OpenTree, find_root_item};
use vlinder_space::{PromisedData, SpaceManager, Ticket};

/// Mechanisms that are switched off, for measuring (`-o disable=`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Disabled {
    /// The cached position of seeks.
    pub seek_cache: bool,
    /// Batches of pending items across gaps.
    pub delayed_batch: bool,
    /// Skipping group items that did not change.
    pub block_group_skip: bool,
    /// Readahead for send.
    pub send_readahead: bool,
    /// Trimming state records in place.
    pub state_trim: bool,
}

/// How a file system is opened.
#[derive(Clone)]
pub struct EngineOptions {
    /// For reading only.
    pub read_only: bool,
    /// Why an fsync log is to be left as it is, if so. Otherwise the engine of a file system that has one
    /// takes no changes until the log was taken up ([`Engine::take_up_log`]).
    pub leave_log: Option<ReadOnlyReason>,
    /// Memory for tree blocks, clean and changed, in bytes.
    pub cache_bytes: u64,
    /// Memory for what is not on disk yet, in bytes.
    pub dirty_bytes: u64,
    /// Tell the devices what was freed.
    pub discard: bool,
    /// Where times come from.
    pub clock: Arc<dyn Clock>,
    /// Where UUIDs come from.
    pub random: Arc<dyn Random>,
    /// Where mechanisms count.
    pub registry: Arc<Registry>,
    /// What is switched off.
    pub disabled: Disabled,
    /// What may be damaged. Only with `read_only`, or under a log that is left.
    pub rescue: Rescue,
}

/// What a file system that is opened for reading may lack (parts of `rescue=`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Rescue {
    /// Trees that reading files can do without may be missing or have a root that can't be read, as with
    /// Linux's `rescue=ignorebadroots`: extent, device, checksum, UUID, free-space and block-group tree.
    pub ignores_bad_roots: bool,
    /// What is believed although it is damaged.
    pub leniency: Leniency,
}

impl Default for EngineOptions {
    fn default() -> Self {
        Self {
            read_only: false,
            leave_log: None,
            cache_bytes: 256 << 20,
            dirty_bytes: 64 << 20,
            discard: false,
            clock: Arc::new(InodeClock::new()),
            random: Arc::new(OsRandom),
            registry: Arc::new(Registry::new()),
            disabled: Disabled::default(),
            rescue: Rescue::default(),
        }
    }
}

impl EngineOptions {
    /// Changed blocks that a transaction may gather: its predecessor's, which are being written, are as many.
    pub(crate) fn dirty_blocks_bytes(&self) -> u64 {
        self.cache_bytes / 4
    }
}

/// A file system's trees, space and running transaction.
pub struct Engine {
    pub(crate) volume: Arc<Volume>,
    pub(crate) blocks: Arc<VolumeBlocks>,
    pub(crate) options: EngineOptions,
    pub(crate) metrics: EngineMetrics,
    /// The superblock of the last commit, with what changed since in fields that no tree holds.
    pub(crate) superblock: Mutex<Superblock>,
    pub(crate) trees: SystemTrees,
    pub(crate) space: SpaceManager,
    pub(crate) queues: CommitQueues,
    pub(crate) sharing_gate: Mutex<()>,
    pub(crate) chunks: ChunkWork,
    pub(crate) dead_trees: DeadTrees,
    pub(crate) freed: FreedSpace,
    /// What fsync writes between commits.
    pub(crate) log: LogWriter,
    pub(crate) block_balance: BlockBalance,
    pub(crate) running: RunningTransaction,
    /// Held by the committer, with what an earlier commit left to be published.
    pub(crate) committer: Mutex<Option<Unpublished>>,
    pub(crate) troubles: Troubles,
    pub(crate) latch: Latch,
    pub(crate) participants: Mutex<Vec<Weak<dyn Participant>>>,
    pub(crate) numbers: SubvolumeNumbers,
    /// Whether the groups' items were read; held by who reads them.
    pub(crate) has_groups: Mutex<bool>,
}

impl Engine {
    /// The trees of the running transaction.
    pub fn forest(&self) -> &Forest {
        self.trees.forest()
    }

    /// The volume, for reading and writing data.
    pub fn volume(&self) -> &Volume {
        &self.volume
    }

    /// What the mechanisms count.
    pub fn registry(&self) -> &Registry {
        &self.options.registry
    }

    /// How the file system was opened.
    pub fn options(&self) -> &EngineOptions {
        &self.options
    }

    /// Where times come from.
    pub fn clock(&self) -> &dyn Clock {
        &*self.options.clock
    }

    /// Where UUIDs come from.
    pub fn random(&self) -> &dyn Random {
        &*self.options.random
    }

    /// The superblock as it stands.
    pub fn superblock(&self) -> Superblock {
        self.superblock.lock().clone()
    }

    /// Changes fields of the superblock that no tree holds (the label); the next commit writes it. Called
    /// with a handle open.
    pub fn change_superblock(&self, change: impl FnOnce(&mut Superblock)) {
        change(&mut self.superblock.lock());
        self.running.mark_changed();
    }

    /// Bytes of a sector.
    pub fn sector_size(&self) -> u32 {
        self.volume.geometry().sector_size
    }

    /// Bytes of a tree block.
    pub fn node_size(&self) -> u32 {
        self.volume.geometry().node_size
    }

    /// Kind of every checksum.
    pub fn checksum_kind(&self) -> ChecksumKind {
        self.volume.geometry().checksum_kind
    }

    /// The arithmetic of checksum items.
    pub fn checksum_geometry(&self) -> ChecksumGeometry {
        self.trees.checksum_geometry()
    }

    /// Whether holes have no items.
    pub fn no_holes(&self) -> bool {
        self.superblock.lock().incompat.has(IncompatFeatures::NO_HOLES)
    }

    /// Why nothing can be changed, if so.
    pub fn read_only_reason(&self) -> Option<ReadOnlyReason> {
        self.latch.reason()
    }

    /// Nothing can be changed from now on: an error left it unsure what is on the devices.
    pub fn latch_read_only(&self, error: &dyn std::error::Error) {
        self.shutdown().close_after(error);
    }

    /// Nothing can be changed from now on, as was asked for: what was done before is committed.
    pub fn end_changes(&self, reason: ReadOnlyReason) {
        self.shutdown().close_for(reason);
    }

    /// The tree of a number, subvolumes included.
    ///
    /// # Errors
    /// [`EngineError::NoSuchTree`], or what reading its root item met.
    pub fn tree(&self, id: RootId) -> Result<Arc<OpenTree>, EngineError> {
        self.trees.tree(id, self.space.reservations())
    }

    /// Whether a tree that reading files can do without is missing or has a root that can't be read
    /// ([`Rescue::ignores_bad_roots`]).
    pub fn is_bad_root(&self, id: RootId) -> bool {
        self.trees.fixed().bad.contains(&id)
    }

    /// The chunk tree, for searches.
    pub fn chunk_tree(&self) -> &Arc<Root> {
        self.trees.chunk()
    }

    /// The running transaction's generation.
    pub fn generation(&self) -> Generation {
        self.running.generation()
    }

    /// Registers someone who has things to put into a transaction before it ends.
    pub fn register(&self, participant: Weak<dyn Participant>) {
        self.participants.lock().push(participant);
    }

    /// An item, with what is pending of it.
    ///
    /// # Errors
    /// What reading the tree met.
    pub fn item(&self, tree: &OpenTree, key: &Key) -> Result<Option<Vec<u8>>, EngineError> {
        if let Some(pending) = self.queues.pending().get(tree.id(), key) {
            return Ok(pending);
        }
        Ok(self.trees.store().get(tree.root(), key)?.map(|position| position.data().to_vec()))
    }

    /// Items from `from` up to and without `to`, with what is pending of them, in order, at most `limit`.
    ///
    /// # Errors
    /// What reading the tree met.
    pub fn items(
        &self,
        tree: &OpenTree,
        from: Key,
        to: Key,
        limit: usize,
    ) -> Result<Vec<(Key, Vec<u8>)>, EngineError> {
        if from >= to {
            return Ok(Vec::new());
        }
        let mut pending = PendingWindow::new(self.queues.pending(), tree.id(), from, to);
        let mut items = Vec::new();
        let mut cursor =
            self.trees.store().cursor(tree.root(), &from, vlinder_tree::Readahead::Forward(8))?;
        while items.len() < limit {
            let stored = cursor.item().filter(|(key, _)| *key < to).map(|(key, data)| (key, data.to_vec()));
            match (stored, pending.first_key()) {
                (None, None) => break,
                (Some((key, data)), next) if next.is_none_or(|other| key < other) => {
                    items.push((key, data));
                    cursor.advance()?;
                }
                (stored, Some(_)) => {
                    let Some((key, data)) = pending.take() else { break };
                    match key.next() {
                        // What was drained between two parts is in the tree now, and maybe not in the
                        // cursor's leaf.
                        Some(next) if pending.took_last_of_part() => cursor.seek(&next)?,
                        _ if stored.is_some_and(|(other, _)| other == key) => cursor.advance()?,
                        _ => {}
                    }
                    items.extend(data.map(|data| (key, data)));
                }
                (Some(_), None) => break,
            }
        }
        Ok(items)
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

    /// What measures in the trees as they stand.
    pub(crate) fn measuring(&self) -> Measuring<'_> {
        Measuring::new(&self.trees, &self.queues, &self.space, &self.running)
    }

    /// What reserves space.
    pub(crate) fn reserver(&self) -> Reserver<'_> {
        let (sizing, measuring) = (self.reserve_sizing(), self.measuring());
        Reserver::new(sizing, measuring, self.chunk_maker(), &self.running, &self.freed)
    }

    /// What gives trees their blocks.
    pub(crate) fn block_space(&self) -> BlockSpace<'_> {
        BlockSpace {
            reserver: self.reserver(),
            loader: self.group_loader(),
            maker: self.chunk_maker(),
            shutdown: self.shutdown(),
            space: &self.space,
            running: &self.running,
            log: &self.log,
            balance: &self.block_balance,
            sharing_gate: &self.sharing_gate,
        }
    }

    /// Bytes of data that the groups, and chunks that can be made, have room for beside what metadata need. A
    /// file system that is only read knows its groups after [`Engine::space`].
    pub fn room_for_data(&self) -> u64 {
        self.chunk_maker().room_for_data()
    }

    /// Whether a commit could give back space: by writing what waits, by freeing what is pinned, by removing
    /// empty chunks, by waiting for handles that are open or about to be, or for another thread's commit that
    /// has not freed yet what it pinned.
    #[must_use]
    pub fn would_gain_by_committing(&self) -> bool {
        self.reserver().would_gain_by_committing()
    }

    /// Whether one item more can be changed outside a transaction, for a participant to put in before the
    /// next commit. A caller that hears no leaves the item as it was: a commit that found no space for it
    /// could not end.
    pub fn has_room_for_item(&self) -> bool {
        self.reserver().has_room_for_item()
    }

    /// Promises data space to a write, and the metadata for it, so that its flush later cannot fail for lack
    /// of either. A write draws on the margin: Linux asks for little more for one than it takes, unlike for
    /// names.
    ///
    /// # Errors
    /// [`EngineError::NoSpace`], [`EngineError::ReadOnly`].
    pub fn promise_data(&self, space: PromisedData) -> Result<DataPromise<'_>, EngineError> {
        self.latch.check_writable()?;
        self.reserver().promise_data(space, || self.commit().map(drop))
    }

    /// As [`promise_data`](Self::promise_data), for data whose items lie at these keys of a tree, in order,
    /// those of their inodes among them: what copies of the leaves there add is promised, too, so far as
    /// other trees share them.
    ///
    /// # Errors
    /// As there.
    pub fn promise_data_at(
        &self,
        tree: &OpenTree,
        keys: impl FnOnce() -> Vec<Range<Key>>,
        space: PromisedData,
    ) -> Result<DataPromise<'_>, EngineError> {
        self.latch.check_writable()?;
        self.reserver().promise_data_at(tree, keys, space, || self.commit().map(drop))
    }

    /// The calling thread was refused so many bytes of metadata ([`EngineError::lacking_metadata_bytes`]) and
    /// tries again: other threads do not take them while the ticket lives, unless for what was accepted
    /// before. Waits for the tickets that were taken earlier, up to two seconds for each.
    #[must_use]
    pub fn take_ticket(&self, bytes: u64) -> Ticket<'_> {
        self.space.reservations().take_ticket(bytes)
    }

    /// Promises space to data that were accepted before, whatever there is.
    pub fn promise_accepted_data(&self, data: PromisedData) {
        self.space.reservations().promise_accepted_data(data);
    }

    /// Gives back a kept promise ([`DataPromise::keep`]), when its data have their items or were dropped;
    /// `placed_bytes` of them had their space ([`place_promised_data`](Self::place_promised_data)).
    pub fn settle_data_promise(&self, promised: PromisedData, placed_bytes: u64) {
        self.space.reservations().unpromise_data(promised, placed_bytes);
    }

    /// So many bytes of data that were promised space have it now, and count no longer beside it.
    pub fn place_promised_data(&self, bytes: u64) {
        self.space.reservations().place_data(bytes);
    }

    /// Data that had their space ([`place_promised_data`](Self::place_promised_data)) gave it back; it is
    /// promised to them still.
    pub fn displace_promised_data(&self, bytes: u64) {
        self.space.reservations().displace_data(bytes);
    }

    /// What reads groups out of the trees.
    pub(crate) fn group_loader(&self) -> GroupLoader<'_> {
        GroupLoader::new(&self.trees, &self.space, &self.chunks)
    }

    /// Items that changed outside a transaction: ordinary changes leave room for them, so that the next
    /// commit takes them. (It goes without those that find none.)
    pub fn await_items(&self, count: u64) {
        self.queues.work().await_items(count);
    }

    /// Items that were awaited are in a transaction, or not needed any more.
    pub fn settle_awaited_items(&self, count: u64) {
        self.queues.work().settle_awaited(count);
    }

    /// Commits, and leases the state that was published: it stays readable until the lease is dropped or
    /// revoked. What was done before this call is in it.
    ///
    /// # Errors
    /// What the commit met. A file system that is read-only leases what is on its devices.
    pub fn lease(self: &Arc<Self>) -> Result<CommitLease, EngineError> {
        match self.read_only_reason() {
            None => drop(self.commit()?),
            // What is published after such an error is not known.
            Some(reason @ ReadOnlyReason::Error(_)) => return Err(EngineError::ReadOnly { reason }),
            Some(_) => {}
        }
        // No commit is under way: nothing of what was published is freed yet.
        let _committer = self.committer.lock();
        let observer: Weak<Self> = Arc::downgrade(self);
        Ok(self.freed.lease(self.volume.published_superblocks(), observer))
    }

    /// The root of a tree in a leased state, for searches in [`Engine::forest`].
    ///
    /// # Errors
    /// [`EngineError::NoSuchTree`], what reading met, or that the lease was revoked.
    pub fn leased_tree(&self, lease: &CommitLease, id: RootId) -> Result<Arc<Root>, EngineError> {
        let found = lease.root_tree().map(|root| find_root_item(self.trees.store(), &root, id)).transpose();
        // A state that was given up may look like anything.
        lease.confirm()?;
        let (_, item) = found?.flatten().ok_or(EngineError::NoSuchTree { root: id })?;
        let pointer = RootPointer { logical: item.address, generation: item.generation, level: item.level };
        Ok(Root::new(id, pointer, item.last_snapshot))
    }
}

impl LeaseObserver for Engine {
    fn lease_ended(&self) {
        self.freed.release(self.space.pins());
    }
}
