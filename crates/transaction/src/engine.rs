//! The engine: a volume's trees, its space, and the running transaction, as one thing that `fs` builds on.

use std::ops::Range;

use vlinder_base::clock::Clock;
use vlinder_base::metrics::Registry;
use vlinder_base::sync::{Arc, Weak};
use vlinder_forest::{ExtentUsers, Forest, ForestError, OpenTree, PendingReferences, Referrer};
use vlinder_format::checksum_item::ChecksumGeometry;
use vlinder_format::features::IncompatFeatures;
use vlinder_format::superblock::Superblock;
use vlinder_format::{DeviceId, Generation, Key, Logical, RootId};
use vlinder_space::{ChunkShare, Reservations, ReservedData, SpaceReport};
use vlinder_tree::lease::{CommitLease, LeaseObserver};
use vlinder_volume::{Opened, Volume};

use crate::awaited_items::AwaitedItems;
use crate::dead_trees::DeadTrees;
use crate::engine_core::EngineCore;
use crate::handle::Handle;
use crate::log_roots::FsyncLog;
use crate::open::open_core;
use crate::options::EngineOptions;
use crate::promises::DataReservation;
use crate::reader::TransactionReader;
use crate::reservation::Reservation;
use crate::tree_deletion::clean;
use crate::trim::Trimmer;
use crate::troubles::Troubles;
use crate::{EngineError, Participant, ReadOnlyReason};

/// A file system's trees, space and running transaction: what is built on it begins here.
pub struct Engine {
    core: EngineCore,
}

impl Engine {
    /// Opens the file system of a volume.
    ///
    /// What vlinder cannot keep right when it writes opens for reading, with the reason
    /// ([`Engine::read_only_reason`]).
    ///
    /// # Errors
    /// [`EngineError::UnknownFeatures`]; damage or device errors on the way to the trees that everything
    /// needs.
    pub fn open(opened: Opened, options: EngineOptions) -> Result<Arc<Self>, EngineError> {
        Ok(Arc::new(Self { core: open_core(opened, options)? }))
    }

    /// The parts, for tests that look at them.
    #[cfg(test)]
    pub(crate) fn core(&self) -> &EngineCore {
        &self.core
    }

    /// Joins the running transaction, or waits for the next if it is just ending.
    ///
    /// # Errors
    /// [`EngineError::ReadOnly`]; [`EngineError::NoSpace`], before anything was changed.
    pub fn begin(&self, reservation: Reservation) -> Result<Handle<'_>, EngineError> {
        self.core.begin(reservation)
    }

    /// As [`begin`](Self::begin), for work that can wait: where there is no room right now, it fails at once
    /// instead of committing.
    ///
    /// # Errors
    /// As there.
    pub fn begin_at_once(&self, reservation: Reservation) -> Result<Handle<'_>, EngineError> {
        self.core.begin_at_once(reservation)
    }

    /// Makes everything durable that was done in handles that ended before this call.
    ///
    /// # Errors
    /// [`EngineError::ReadOnly`], or what went wrong: then the file system is read-only from now on, unless
    /// the host has no space ([`EngineError::is_host_full`]). What only a participant met ends no commit, and
    /// is given once that is durable. Within a participant's callback this does nothing.
    pub fn commit(&self) -> Result<Generation, EngineError> {
        self.core.commit()
    }

    /// The trees of the running transaction.
    pub fn forest(&self) -> &Forest {
        self.core.trees().forest()
    }

    /// The volume, for reading and writing data. The last one that keeps it lets go of the devices.
    pub fn volume(&self) -> &Arc<Volume> {
        self.core.volume()
    }

    /// What the mechanisms count.
    pub fn registry(&self) -> &Registry {
        &self.core.options().registry
    }

    /// How the file system was opened.
    pub fn options(&self) -> &EngineOptions {
        self.core.options()
    }

    /// Where times come from.
    pub fn clock(&self) -> &dyn Clock {
        &*self.core.options().clock
    }

    /// The superblock as it stands.
    pub fn superblock(&self) -> Superblock {
        self.core.superblock().clone()
    }

    /// Changes fields of the superblock that no tree holds (the label); the next commit writes it. Called
    /// with a handle open.
    pub fn change_superblock(&self, change: impl FnOnce(&mut Superblock)) {
        change(&mut self.core.superblock());
        self.core.running().mark_changed();
    }

    /// Bytes of a sector.
    pub fn sector_size(&self) -> u32 {
        self.core.volume().geometry().sector_size
    }

    /// The arithmetic of checksum items.
    pub fn checksum_geometry(&self) -> ChecksumGeometry {
        self.core.trees().checksum_geometry()
    }

    /// Whether holes have no items.
    pub fn no_holes(&self) -> bool {
        self.core.superblock().incompat.has(IncompatFeatures::NO_HOLES)
    }

    /// What keeps commits from succeeding.
    pub fn troubles(&self) -> &Troubles {
        self.core.troubles()
    }

    /// What is promised, for callers that keep promises of data beside the data
    /// ([`DataReservation::keep`]), and for those that were refused.
    pub fn reservations(&self) -> Reservations<'_> {
        self.core.space().reservations()
    }

    /// Items that change outside a transaction.
    pub fn awaited_items(&self) -> AwaitedItems<'_> {
        AwaitedItems::new(self.core.reserver())
    }

    /// Deleted trees that are closed and not fully freed.
    pub fn dead_trees(&self) -> &DeadTrees {
        self.core.dead_trees()
    }

    /// Reads the running transaction's state.
    pub fn reader(&self) -> TransactionReader<'_> {
        let kind = self.core.volume().geometry().checksum_kind;
        TransactionReader::new(self.core.trees(), self.core.queues(), kind)
    }

    /// Why nothing can be changed, if so.
    pub fn read_only_reason(&self) -> Option<ReadOnlyReason> {
        self.core.latch().reason()
    }

    /// Nothing can be changed from now on: an error left it unsure what is on the devices.
    pub fn become_read_only(&self, error: &dyn std::error::Error) {
        self.core.shutdown().close_after(error);
    }

    /// Nothing can be changed from now on, as was asked for: what was done before is committed.
    pub fn end_changes(&self, reason: ReadOnlyReason) {
        self.core.shutdown().close_for(reason);
    }

    /// The tree of a number, subvolumes included.
    ///
    /// # Errors
    /// [`EngineError::NoSuchTree`], or what reading its root item met.
    pub fn tree(&self, id: RootId) -> Result<Arc<OpenTree>, EngineError> {
        self.core.trees().tree(id, self.core.space().reservations())
    }

    /// The running transaction's generation.
    pub fn generation(&self) -> Generation {
        self.core.running().generation()
    }

    /// Registers someone who has things to put into a transaction before it ends.
    pub fn register(&self, participant: Weak<dyn Participant>) {
        self.core.committer().register(participant);
    }

    /// Bytes of data that the groups, and chunks that can be made, have room for beside what metadata need. A
    /// file system that is only read knows its groups after [`Engine::space`].
    pub fn room_for_data(&self) -> u64 {
        self.core.chunk_maker().room_for_data()
    }

    /// Whether a commit could give back space: by writing what waits, by freeing what is pinned, by removing
    /// empty chunks, by waiting for handles that are open or about to be, or for another thread's commit that
    /// has not freed yet what it pinned.
    #[must_use]
    pub fn would_gain_by_committing(&self) -> bool {
        self.core.reserver().would_gain_by_committing()
    }

    /// Promises data space to a write, and the metadata for it, so that its flush later cannot fail for lack
    /// of either. A write draws on the margin: Linux asks for little more for one than it takes, unlike for
    /// names.
    ///
    /// # Errors
    /// [`EngineError::NoSpace`], [`EngineError::ReadOnly`].
    pub fn reserve_data(&self, space: ReservedData) -> Result<DataReservation<'_>, EngineError> {
        self.core.latch().check_writable()?;
        self.core.reserver().reserve_data(space, || self.commit().map(drop))
    }

    /// As [`reserve_data`](Self::reserve_data), for data whose items lie at these keys of a tree, in order,
    /// those of their inodes among them: what copies of the leaves there add is promised, too, so far as
    /// other trees share them.
    ///
    /// # Errors
    /// As there.
    pub fn reserve_data_at(
        &self,
        tree: &OpenTree,
        keys: impl FnOnce() -> Vec<Range<Key>>,
        space: ReservedData,
    ) -> Result<DataReservation<'_>, EngineError> {
        self.core.latch().check_writable()?;
        self.core.reserver().reserve_data_at(tree, keys, space, || self.commit().map(drop))
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
        let _committer = self.core.committer().lock();
        let observer: Weak<Self> = Arc::downgrade(self);
        Ok(self.core.freed().lease(self.core.volume().published_superblocks(), observer))
    }

    /// Keeps what went wrong in a commit, or before it in writing out what it was to make durable. The log
    /// says each reason once as long as no commit succeeds.
    pub fn note_failed_commit(&self, error: &dyn std::error::Error) {
        self.core.note_failed_commit(error);
    }

    /// Whether the host has no space for the image. From a write that failed so until everything is durable.
    /// A file system that an error made read-only waits for no space.
    #[must_use]
    pub fn is_host_full(&self) -> bool {
        self.core.troubles().is_host_full() && self.core.latch().check_unbroken().is_ok()
    }

    /// How full the file system is, right now. A file system that is only read learns it with the first call.
    ///
    /// # Errors
    /// What reading the chunks and their groups met.
    pub fn space(&self) -> Result<SpaceReport, EngineError> {
        self.core.load_space(Err)?;
        let on_seed = self.core.chunks().on_seed();
        Ok(SpaceReport {
            kinds: self.core.space().kinds(|group| on_seed.contains(&group.start)),
            devices: self.core.chunks().device_reports(),
            unallocated_bytes: self.core.chunks().unallocated_bytes(),
            device_bytes: self.core.chunks().device_bytes(),
            global_reserve_bytes: self.core.space().global_reserve(),
            linux_reserve_bytes: self.core.reserve_sizing().linux_reserve(),
            can_make_metadata: self.core.chunks().can_make_metadata(),
            data_available_bytes: self.room_for_data(),
        })
    }

    /// What the chunks have on each device, in the order in which the chunks name them.
    ///
    /// # Errors
    /// What reading the chunks met.
    pub fn chunk_shares(&self) -> Result<Vec<ChunkShare>, EngineError> {
        self.core.load_space(Err)?;
        Ok(self.core.chunks().shares())
    }

    /// A walk from extents of the running transaction to the runs of files that show them. Where others may
    /// change the file system, the caller keeps a handle open as long as the walk: then no commit comes
    /// between. The parameter says no more than that; a file system that is read-only needs none.
    ///
    /// # Errors
    /// What opening the extent tree met.
    pub fn extent_user_walk<'a>(
        &'a self,
        _handle: Option<&Handle<'a>>,
    ) -> Result<ExtentUsers<'a>, ForestError> {
        ExtentUsers::new(self.core.trees().forest(), Some(&self.core))
    }

    /// Frees blocks of deleted trees, about `budget_blocks` of them; gives whether there are more.
    ///
    /// # Errors
    /// What reading or changing trees met, or [`EngineError::NoSpace`]. A tree whose walk an error ended goes
    /// behind the others, and is tried again by a later call: the error may have passed by then (Linux, too,
    /// keeps it: `btrfs_add_dead_root`).
    pub fn clean(&self, budget_blocks: usize) -> Result<bool, EngineError> {
        clean(&self.core, budget_blocks)
    }

    /// Gives free space back to the devices.
    #[must_use]
    pub fn trimmer(&self) -> Trimmer<'_> {
        Trimmer::new(&self.core)
    }

    /// The devices that the file system has and nobody gave.
    #[must_use]
    pub fn missing_devices(&self) -> Vec<DeviceId> {
        self.core.chunks().missing_devices()
    }

    /// Takes up the log that the superblock names, after which changes may be made: all in the one
    /// transaction of the handle that replays it ([`Handle::finish_log`]). None where there is no log, or
    /// where the file system cannot be changed for another reason. Logs of subvolumes that were deleted count
    /// for nothing.
    ///
    /// # Errors
    /// Damage of the log, or a place of it that is not free; the engine takes no changes then.
    pub fn adopt_log(&self) -> Result<Option<FsyncLog>, EngineError> {
        FsyncLog::take_up(&self.core)
    }
}

impl LeaseObserver for Engine {
    fn lease_ended(&self) {
        self.core.freed().release(self.core.space().pins());
    }
}

impl PendingReferences for EngineCore {
    fn changes(&self, start: Logical) -> Option<Vec<(Referrer, i64)>> {
        let delayed = self.queues().delayed();
        delayed.head(start).map(|head| head.changes.iter().collect())
    }

    fn generation(&self) -> Generation {
        self.generation()
    }
}
