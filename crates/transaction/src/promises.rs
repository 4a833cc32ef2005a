//! Space promised before it is used, so that what was accepted never fails for lack of it: metadata to
//! handles, data to writes that are not allocated yet.

use std::ops::Range;

use vlinder_base::metrics::Counter;
use vlinder_format::Key;

use crate::EngineError;
use crate::change_kind::ChangeKind;
use crate::chunks::ChunkMaker;
use crate::commit_queues::CommitQueues;
use crate::committing_thread::CommittingThread;
use crate::error::METADATA;
use crate::freed_space::FreedSpace;
use crate::global_reserve::ReserveSizing;
use crate::group_loader::GroupLoader;
use crate::measuring::Measuring;
use crate::phase::{Activity, RunningTransaction};
use crate::system_trees::SystemTrees;
use vlinder_forest::OpenTree;
use vlinder_space::{Asker, Charge, Reservations, ReserveAccess, ReservedData, SpaceManager, Wanted};

/// Data space promised to a write that is not allocated yet, and the metadata space for it; settles on drop.
pub struct DataReservation<'a> {
    reservations: Reservations<'a>,
    queues: &'a CommitQueues,
    space: ReservedData,
    /// Leaves for whose copies each of its runs was counted.
    leaves_of_run: u64,
}

/// Leaves that a run changes and that hold other items, too: one at either end, and that of its inode's item.
const LEAVES_AROUND_RUN: u64 = 3;

/// How often a promise is tried, with a commit between two tries.
const TRIES: u32 = 3;

/// How often a handle that may draw on the reserve tries to, when others have drawn on all of it.
const RESERVE_TRIES: u32 = 16;

/// Attempts something up to `tries` times, and commits between two attempts while a commit would gain space.
/// The last step is always an attempt: another thread's commit may have ended between the attempt before and
/// the look that found nothing to commit.
fn attempt_between_commits<E>(
    tries: u32,
    attempt: impl Fn() -> bool,
    would_gain: impl Fn() -> bool,
    commit: impl Fn() -> Result<(), E>,
) -> Result<bool, E> {
    for _ in 1..tries {
        if attempt() {
            return Ok(true);
        }
        if !would_gain() {
            break;
        }
        commit()?;
    }
    Ok(attempt())
}

/// What reserves space for handles and for data. It commits only where the caller says how.
#[derive(Clone, Copy)]
pub(crate) struct Reserver<'a> {
    sizing: ReserveSizing<'a>,
    running: &'a RunningTransaction,
    freed: &'a FreedSpace,
}

impl<'a> Reserver<'a> {
    pub(crate) fn new(
        sizing: ReserveSizing<'a>,
        running: &'a RunningTransaction,
        freed: &'a FreedSpace,
    ) -> Self {
        Self { sizing, running, freed }
    }

    /// What measures in the trees of the running transaction.
    pub(crate) fn measuring(&self) -> Measuring<'a> {
        let ReserveSizing { trees, queues, space, .. } = self.sizing;
        Measuring::new(trees, queues, space, self.running)
    }

    /// What makes chunks.
    pub(crate) fn chunk_maker(&self) -> ChunkMaker<'a> {
        let ReserveSizing { trees, queues, space, chunks, .. } = self.sizing;
        ChunkMaker::new(trees, queues, space, chunks, self.running)
    }

    /// What reads groups out of the trees.
    pub(crate) fn group_loader(&self) -> GroupLoader<'a> {
        GroupLoader::new(self.sizing.trees, self.sizing.space, self.sizing.chunks)
    }

    pub(crate) fn space(&self) -> &'a SpaceManager {
        self.sizing.space
    }

    pub(crate) fn running(&self) -> &'a RunningTransaction {
        self.running
    }

    /// What is promised.
    pub(crate) fn reservations(&self) -> Reservations<'a> {
        self.sizing.space.reservations()
    }

    pub(crate) fn trees(&self) -> &'a SystemTrees {
        self.sizing.trees
    }

    /// What waits for the commit.
    pub(crate) fn queues(&self) -> &'a CommitQueues {
        self.sizing.queues
    }

    /// Takes all leases back if that gives space; false if they hold none.
    pub(crate) fn revoke_leases(&self) -> bool {
        self.freed.revoke_leases(self.sizing.space.pins())
    }

    /// What the next commit has to do, as it was measured.
    fn measured(&self) -> Option<Charge> {
        self.queues().measured(self.running.generation())
    }

    /// What participants put in before the next commit.
    fn awaited(&self) -> Charge {
        self.queues().awaited(self.trees().forest().may_share_blocks())
    }

    /// Promises metadata. Chunks that can be made count as room, and are made when blocks are taken. Where
    /// there is no room, these make it: a commit, which does what waits and unpins, then what leases hold,
    /// then what `draw` allows of the reserve.
    pub(crate) fn reserve_changes(
        &self,
        changes: Charge,
        access: ReserveAccess,
        commit: impl Fn() -> Result<(), EngineError>,
    ) -> Result<(), EngineError> {
        if changes == Charge::default() {
            return Ok(());
        }
        let wanted = Wanted { changes, ..Wanted::default() };
        let promised = if CommittingThread::is_this() {
            // A participant puts in what has waited in memory. It can't wait for a commit, which is this one;
            // what finds no room stays where it is.
            self.try_reserve(wanted, access)
        } else {
            // Others may draw on the reserve at the moment: a commit waits for them, and gives back what they
            // do not need.
            self.reserve_making_room(wanted, access.min(ReserveAccess::Margin), &commit)?
                || (access > ReserveAccess::Margin
                    && self.reserve_between_commits(RESERVE_TRIES, wanted, access, &commit)?)
        };
        if promised { Ok(()) } else { Err(self.no_space(changes)) }
    }

    /// Promises what is wanted; where there is no room, commits, and at last takes back leases.
    fn reserve_making_room(
        &self,
        wanted: Wanted,
        access: ReserveAccess,
        commit: impl Fn() -> Result<(), EngineError>,
    ) -> Result<bool, EngineError> {
        if self.reserve_between_commits(TRIES, wanted, access, commit)? {
            return Ok(true);
        }
        // Reading an older state matters less than any change.
        Ok(self.revoke_leases() && self.try_reserve(wanted, access))
    }

    fn reserve_between_commits(
        &self,
        tries: u32,
        wanted: Wanted,
        access: ReserveAccess,
        commit: impl Fn() -> Result<(), EngineError>,
    ) -> Result<bool, EngineError> {
        let attempt = || self.try_reserve(wanted, access);
        attempt_between_commits(tries, attempt, || self.would_gain_by_committing(), commit)
    }

    pub(crate) fn no_space(&self, changes: Charge) -> EngineError {
        EngineError::NoSpace { kind: METADATA, needed_bytes: self.reservations().price_bytes(changes) }
    }

    /// Whether a commit could give back space: by writing what waits, by freeing what is pinned, by removing
    /// empty chunks, by waiting for handles that are open or about to be, or for another thread's commit that
    /// has not freed yet what it pinned.
    pub(crate) fn would_gain_by_committing(&self) -> bool {
        let Activity { has_handles, is_held_up } = self.running.activity();
        has_handles
            || self.reservations().has_tickets_before_this_thread()
            || self.reservations().promised_changes() != Charge::default()
            || self.queues().waiting() != Charge::default()
            || self.sizing.space.pins().pinned_bytes() > 0
            // What waits for the host is not freed by waiting here.
            || (!is_held_up && self.sizing.space.pins().committing_bytes() > 0)
            || self.chunk_maker().asks_to_remove_chunks()
    }

    /// Promises metadata if there is room; false where there is none. There is room for nothing always.
    pub(crate) fn try_changes(&self, changes: Charge, asker: impl Into<Asker>) -> bool {
        let Asker { access, held } = asker.into();
        let wanted = Wanted { changes, held, ..Wanted::default() };
        changes == Charge::default() || self.try_reserve(wanted, access)
    }

    /// Asks for a promise: by counts of what waits for the commit, by what was measured of that before, and
    /// at last measured anew. Never commits.
    fn try_reserve(&self, wanted: Wanted, access: ReserveAccess) -> bool {
        // What may be put off does not keep away those who draw on the reserve.
        let postponable = || {
            if access > ReserveAccess::Margin { Charge::default() } else { self.awaited() }
        };
        let counted = || self.queues().waiting() + postponable();
        let measured = || self.measured().map_or_else(counted, |changes| changes + postponable());
        if self.reservations().reserve(wanted, access, counted, &self.sizing)
            || (self.measured().is_some()
                && self.reservations().reserve(wanted, access, measured, &self.sizing))
        {
            return true;
        }
        counted() != Charge::default()
            && self.measuring().measure_waiting()
            && self.reservations().reserve(wanted, access, measured, &self.sizing)
    }

    /// Whether there is room for all that waits for the commit, for what the commit takes by itself, and for
    /// what handles were promised: what every promise leaves room for.
    pub(crate) fn has_room_for_promises(&self) -> bool {
        let nothing = Wanted::default();
        self.try_reserve(nothing, ReserveAccess::LastReserve)
    }

    /// Whether one item more can be changed outside a transaction, for a participant to put in before the
    /// next commit. A caller that hears no leaves the item as it was: a commit that found no space for it
    /// could not end.
    pub(crate) fn has_room_for_item(&self) -> bool {
        let beside = self.queues().items_beside(1, self.trees().forest().may_share_blocks());
        let changes = Charge::leaves(1) + beside;
        let has_room = self.try_changes(changes, ReserveAccess::Nothing);
        if has_room {
            self.reservations().unreserve(changes);
        }
        has_room
    }

    /// Promises data space to a write, and the metadata for it, so that its flush later cannot fail for lack
    /// of either. A write draws on the margin: Linux asks for little more for one than it takes, unlike for
    /// names.
    ///
    /// # Errors
    /// [`EngineError::NoSpace`], [`EngineError::ReadOnly`].
    pub(crate) fn reserve_data(
        &self,
        space: ReservedData,
        commit: impl Fn() -> Result<(), EngineError>,
    ) -> Result<DataReservation<'a>, EngineError> {
        let wanted = Wanted { data: space, ..Wanted::default() };
        if self.reserve_making_room(wanted, ReserveAccess::Margin, commit)? {
            return Ok(self.data_reservation(space, 0));
        }
        match self.reservations().metadata_of_refused(space) {
            Some(needed_bytes) => Err(EngineError::NoSpace { kind: METADATA, needed_bytes }),
            None => Err(EngineError::NoSpace { kind: "data", needed_bytes: space.bytes }),
        }
    }

    /// As [`reserve_data`](Self::reserve_data), for data whose items lie at these keys of a tree, in order,
    /// those of their inodes among them: what copies of the leaves there add is promised, too, so far as
    /// other trees share them.
    ///
    /// # Errors
    /// As there.
    pub(crate) fn reserve_data_at(
        &self,
        tree: &OpenTree,
        keys: impl FnOnce() -> Vec<Range<Key>>,
        space: ReservedData,
        commit: impl Fn() -> Result<(), EngineError>,
    ) -> Result<DataReservation<'a>, EngineError> {
        if !tree.may_share_blocks() {
            return self.reserve_data(space, commit);
        }
        let copies = self.queues().copies_of_leaves(LEAVES_AROUND_RUN.saturating_mul(space.runs));
        // Each leaf between the ends holds nothing but what is overwritten.
        let sectors = space.bytes / u64::from(self.trees().checksum_geometry().sector_size);
        let between = Charge { added_references: sectors, dropped_references: sectors, ..Charge::default() };
        let counted = space.with_leaf_copies(copies + between);
        let wanted = Wanted { data: counted, ..Wanted::default() };
        if self.try_reserve(wanted, ReserveAccess::Margin) {
            return Ok(self.data_reservation(counted, LEAVES_AROUND_RUN));
        }
        match self.measuring().copies_at(tree, keys()) {
            Some(copies) => self.reserve_data(space.with_leaf_copies(copies), commit),
            None => self.reserve_data(counted, commit),
        }
    }

    fn data_reservation(&self, space: ReservedData, leaves_of_run: u64) -> DataReservation<'a> {
        DataReservation { reservations: self.reservations(), queues: self.queues(), space, leaves_of_run }
    }

    /// Makes sure that what waits has room in the commit to come. Without it the commit may fail, and take
    /// all along that was done since the last one. Debug builds stop; release builds count and log it
    /// (decision 15).
    pub(crate) fn check_room(&self, kind: ChangeKind, broken_promises: &Counter) {
        // The last promise found twice the room for all of this, and no handle may take more than it was
        // promised, which was checked. A debug build prices it again all the same.
        if cfg!(not(debug_assertions)) && self.reservations().has_ample_room() {
            return;
        }
        // While other handles are open, or about to be, what they were promised and what waits may change the
        // same blocks, which two prices count twice. What a commit took and freed is not free before its
        // superblock is durable, and no other commit begins before. A promise that was given meanwhile and is
        // given back counts as a handle that was about to be open.
        let rest = || {
            self.running.look_at_rest(|generation| {
                let reservations = self.reservations();
                (reservations.promised_changes() == Charge::default())
                    .then(|| (generation, self.queues().grown(), reservations.promises_given_back()))
            })
        };
        let before = rest();
        if before.is_none() || self.has_room_for_promises() || rest() != before {
            return;
        }
        broken_promises.increment();
        let (waiting, measured) = (self.queues().waiting(), self.measured());
        let (sizes, room) =
            (self.reservations().sizes(), self.reservations().describe_room(measured.unwrap_or(waiting)));
        debug_assert!(
            false,
            "no room for what waits for the commit after {kind:?}: {waiting:?}, measured {measured:?}, in {sizes:?}; {room}"
        );
        tracing::error!(
            ?kind,
            ?waiting,
            ?measured,
            ?sizes,
            room,
            "there is no room for what waits for the commit; please report it"
        );
    }
}

impl DataReservation<'_> {
    /// What is promised.
    pub fn space(&self) -> ReservedData {
        self.space
    }

    /// Splits off a part of the promise.
    #[must_use]
    pub fn split(&mut self, bytes: u64) -> Self {
        let bytes = bytes.min(self.space.bytes);
        let preallocated_bytes = bytes.min(self.space.preallocated_bytes);
        let space = ReservedData { preallocated_bytes, ..ReservedData::written(bytes, 0) };
        self.space -= space;
        Self {
            reservations: self.reservations,
            queues: self.queues,
            space,
            leaves_of_run: self.leaves_of_run,
        }
    }

    /// Gives back the promise for all but `runs` of the runs.
    pub fn keep_runs(&mut self, runs: u64) {
        let runs = self.space.runs.saturating_sub(runs);
        let copies = self.queues.copies_of_leaves(self.leaves_of_run.saturating_mul(runs));
        let surplus = ReservedData::written(0, runs).with_leaf_copies(copies);
        self.space -= surplus;
        self.reservations.unreserve_data(surplus, 0);
    }

    /// Takes the space out of this guard's care: the caller gives it back through
    /// [`Reservations::unreserve_data`]. For promises kept beside the data
    /// itself.
    pub fn keep(mut self) -> ReservedData {
        std::mem::take(&mut self.space)
    }
}

impl Drop for DataReservation<'_> {
    fn drop(&mut self) {
        self.reservations.unreserve_data(self.space, 0);
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;
    use std::convert::Infallible;

    use vlinder_format::file_extent::FileExtent;
    use vlinder_format::{FileOffset, ObjectId, RootId};
    use vlinder_testkit::{Scratch, require};

    use super::*;
    use crate::opening_tests::{new_image, write};

    /// Attempts until there is room, which the commit of this number makes, or which another thread makes
    /// when it is looked whether a commit would gain. Gives whether it succeeded, the attempts and the
    /// commits.
    fn attempts(tries: u32, room_after: Option<u32>, rests: bool) -> (bool, u32, u32) {
        let (attempted, commits, has_room) = (Cell::new(0), Cell::new(0), Cell::new(false));
        let attempt = || {
            attempted.set(attempted.get() + 1);
            has_room.get()
        };
        let would_gain = || {
            has_room.set(has_room.get() || rests);
            !rests
        };
        let commit = || {
            commits.set(commits.get() + 1);
            has_room.set(room_after.is_some_and(|last| commits.get() >= last));
            Ok::<(), Infallible>(())
        };
        let Ok(ended) = attempt_between_commits(tries, attempt, would_gain, commit);
        (ended, attempted.get(), commits.get())
    }

    #[test]
    fn what_the_last_commit_frees_is_found() {
        for tries in 1..5 {
            assert_eq!(attempts(tries, Some(tries - 1), false), (tries > 1, tries, tries - 1));
            assert_eq!(
                attempts(tries, None, false),
                (false, tries, tries - 1),
                "no commit without an attempt"
            );
        }
        assert_eq!(attempts(16, Some(3), false), (true, 4, 3));
    }

    #[test]
    fn what_another_commit_freed_just_before_the_look_is_found() {
        assert_eq!(attempts(3, None, true), (true, 2, 0));
    }

    /// A leaf of a tree that may share blocks is promised with the data; what was counted for runs that there
    /// are not goes back.
    #[test]
    fn data_get_copies_of_shared_leaves_and_give_them_back() {
        require!(Tool("mkfs.btrfs"));
        let scratch = Scratch::new("data_at");
        let engine = write(&new_image(&scratch, &[])).unwrap();
        let tree = engine.tree(RootId::FS_TREE).unwrap();
        let key = FileExtent::key(ObjectId(257), FileOffset(0));
        let promise =
            |space| engine.reserve_data_at(&tree, || vec![key..key.next().unwrap()], space).unwrap();
        let space = ReservedData::written(8192, 2);
        assert_eq!(promise(space).space(), space, "nothing can be shared");
        tree.root().mark_snapshot(engine.generation());
        let mut counted = promise(space);
        let all = counted.space().leaf_copies;
        let between = Charge { added_references: 2, dropped_references: 2, ..Charge::default() };
        assert_eq!(all, engine.core().queues().copies_of_leaves(2 * LEAVES_AROUND_RUN) + between);
        counted.keep_runs(1);
        let kept = counted.keep();
        assert_eq!(kept.leaf_copies, engine.core().queues().copies_of_leaves(LEAVES_AROUND_RUN) + between);
        engine.reservations().unreserve_data(kept, 0);
        let measured = engine.core().reserver().measuring().copies_at(&tree, vec![key..key.next().unwrap()]);
        assert_eq!(measured, Some(Charge::default()), "the leaf of a new file system describes no extent");
    }
}
