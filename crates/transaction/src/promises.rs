//! Space promised before it is used, so that what was accepted never fails for lack of it: metadata to
//! handles, data to writes that are not allocated yet.

use std::ops::Range;

use vlinder_format::Key;

use crate::EngineError;
use crate::engine::Engine;
use crate::error::METADATA;
use crate::measuring::Measuring;
use crate::phase::Activity;
use vlinder_forest::OpenTree;
use vlinder_space::{Asker, Charge, CountedBlocks, Draw, LookUps, PromisedData, Ticket, Unallocated, Wanted};

/// Data space promised to a write that is not allocated yet, and the metadata space for it; settles on drop.
pub struct DataPromise<'a> {
    engine: &'a Engine,
    space: PromisedData,
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

impl Engine {
    /// Promises metadata. Chunks that can be made count as room, and are made when blocks are taken. Where
    /// there is no room, these make it: a commit, which does what waits and unpins, then what leases hold,
    /// then what `draw` allows of the reserve.
    pub(crate) fn promise_changes(&self, changes: Charge, draw: Draw) -> Result<(), EngineError> {
        if changes == Charge::default() {
            return Ok(());
        }
        let wanted = Wanted { changes, ..Wanted::default() };
        let promised = if Self::is_committing_thread() {
            // A participant puts in what has waited in memory. It can't wait for a commit, which is this one;
            // what finds no room stays where it is.
            self.try_promise(wanted, draw)
        } else {
            // Others may draw on the reserve at the moment: a commit waits for them, and gives back what they
            // do not need.
            self.promise_making_room(wanted, draw.min(Draw::Margin))?
                || (draw > Draw::Margin && self.promise_between_commits(RESERVE_TRIES, wanted, draw)?)
        };
        if promised { Ok(()) } else { Err(self.no_space(changes)) }
    }

    /// Promises what is wanted; where there is no room, commits, and at last takes back leases.
    fn promise_making_room(&self, wanted: Wanted, draw: Draw) -> Result<bool, EngineError> {
        if self.promise_between_commits(TRIES, wanted, draw)? {
            return Ok(true);
        }
        // Reading an older state matters less than any change.
        Ok(self.freed.revoke_leases(self.space.pins()) && self.try_promise(wanted, draw))
    }

    fn promise_between_commits(&self, tries: u32, wanted: Wanted, draw: Draw) -> Result<bool, EngineError> {
        let attempt = || self.try_promise(wanted, draw);
        attempt_between_commits(
            tries,
            attempt,
            || self.would_gain_by_committing(),
            || self.commit().map(drop),
        )
    }

    /// The calling thread was refused so many bytes of metadata ([`EngineError::lacking_metadata_bytes`]) and
    /// tries again: other threads do not take them while the ticket lives, unless for what was accepted
    /// before. Waits for the tickets that were taken earlier, up to two seconds for each.
    #[must_use]
    pub fn take_ticket(&self, bytes: u64) -> Ticket<'_> {
        self.space.reservations().take_ticket(bytes)
    }

    pub(crate) fn no_space(&self, changes: Charge) -> EngineError {
        EngineError::NoSpace { kind: METADATA, needed_bytes: self.space.reservations().price_bytes(changes) }
    }

    /// Whether a commit could give back space: by writing what waits, by freeing what is pinned, by removing
    /// empty chunks, by waiting for handles that are open or about to be, or for another thread's commit that
    /// has not freed yet what it pinned.
    #[must_use]
    pub fn would_gain_by_committing(&self) -> bool {
        let Activity { has_handles, is_held_up } = self.running.activity();
        has_handles
            || self.space.reservations().has_tickets_before_this_thread()
            || self.space.reservations().promised_changes() != Charge::default()
            || self.queues.waiting() != Charge::default()
            || self.space.pins().pinned_bytes() > 0
            // What waits for the host is not freed by waiting here.
            || (!is_held_up && self.space.pins().committing_bytes() > 0)
            || self.asks_to_remove_chunks()
    }

    /// Promises metadata if there is room; false where there is none. There is room for nothing always.
    pub(crate) fn try_changes(&self, changes: Charge, asker: impl Into<Asker>) -> bool {
        let Asker { draw, held, copies_shared } = asker.into();
        let wanted = Wanted { changes, held, copies_shared, ..Wanted::default() };
        changes == Charge::default() || self.try_promise(wanted, draw)
    }

    /// Asks for a promise: by counts of what waits for the commit, by what was measured of that before, and
    /// at last measured anew. Never commits.
    fn try_promise(&self, wanted: Wanted, draw: Draw) -> bool {
        // What may be put off does not keep away those who draw on the reserve.
        let postponable = || {
            if draw > Draw::Margin {
                Charge::default()
            } else {
                self.queues.awaited(self.trees.forest().may_share_blocks())
            }
        };
        let counted = || self.queues.waiting() + postponable();
        let measured = || {
            self.queues.measured(self.generation()).map_or_else(counted, |changes| changes + postponable())
        };
        if self.space.reservations().promise(wanted, draw, counted, self)
            || (self.queues.measured(self.generation()).is_some()
                && self.space.reservations().promise(wanted, draw, measured, self))
        {
            return true;
        }
        counted() != Charge::default()
            && Measuring::of(self).measure_waiting()
            && self.space.reservations().promise(wanted, draw, measured, self)
    }

    /// Whether there is room for all that waits for the commit, for what the commit takes by itself, and for
    /// what handles were promised: what every promise leaves room for.
    pub(crate) fn has_room_for_promises(&self) -> bool {
        let nothing = Wanted::default();
        self.try_promise(nothing, Draw::LastReserve)
    }

    /// Whether one item more can be changed outside a transaction, for a participant to put in before the
    /// next commit. A caller that hears no leaves the item as it was: a commit that found no space for it
    /// could not end.
    pub fn has_room_for_item(&self) -> bool {
        let beside = self.queues.items_beside(1, self.trees.forest().may_share_blocks());
        let changes = Charge::leaves(1) + beside;
        let has_room = self.try_changes(changes, Draw::Nothing);
        if has_room {
            self.space.reservations().unpromise(changes);
        }
        has_room
    }

    /// Promises data space to a write, and the metadata for it, so that its flush later cannot fail for lack
    /// of either. A write draws on the margin: Linux asks for little more for one than it takes, unlike for
    /// names.
    ///
    /// # Errors
    /// [`EngineError::NoSpace`], [`EngineError::ReadOnly`].
    pub fn promise_data(&self, space: PromisedData) -> Result<DataPromise<'_>, EngineError> {
        self.latch.check_writable()?;
        let wanted = Wanted { data: space, ..Wanted::default() };
        if self.promise_making_room(wanted, Draw::Margin)? {
            return Ok(DataPromise { engine: self, space, leaves_of_run: 0 });
        }
        match self.space.reservations().metadata_of_refused(space) {
            Some(needed_bytes) => Err(EngineError::NoSpace { kind: METADATA, needed_bytes }),
            None => Err(EngineError::NoSpace { kind: "data", needed_bytes: space.bytes }),
        }
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
        if !tree.may_share_blocks() {
            return self.promise_data(space);
        }
        self.latch.check_writable()?;
        let copies = self.queues.copies_of_leaves(LEAVES_AROUND_RUN.saturating_mul(space.runs));
        // Each leaf between the ends holds nothing but what is overwritten.
        let sectors = space.bytes / u64::from(self.sector_size());
        let between = Charge { added_references: sectors, dropped_references: sectors, ..Charge::default() };
        let counted = space.with_copies(copies + between);
        let wanted = Wanted { data: counted, ..Wanted::default() };
        if self.try_promise(wanted, Draw::Margin) {
            return Ok(DataPromise { engine: self, space: counted, leaves_of_run: LEAVES_AROUND_RUN });
        }
        match Measuring::of(self).copies_at(tree, keys()) {
            Some(copies) => self.promise_data(space.with_copies(copies)),
            None => self.promise_data(counted),
        }
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
}

impl LookUps for Engine {
    fn unallocated(&self) -> Unallocated {
        self.chunks.unallocated()
    }

    fn count_trees(&self, owed: &Charge) -> Option<CountedBlocks> {
        Engine::count_trees(self, owed)
    }
}

impl DataPromise<'_> {
    /// What is promised.
    pub fn space(&self) -> PromisedData {
        self.space
    }

    /// Splits off a part of the promise.
    #[must_use]
    pub fn split(&mut self, bytes: u64) -> Self {
        let bytes = bytes.min(self.space.bytes);
        let preallocated_bytes = bytes.min(self.space.preallocated_bytes);
        let space = PromisedData { preallocated_bytes, ..PromisedData::written(bytes, 0) };
        self.space -= space;
        Self { engine: self.engine, space, leaves_of_run: self.leaves_of_run }
    }

    /// Gives back the promise for all but `runs` of the runs.
    pub fn keep_runs(&mut self, runs: u64) {
        let runs = self.space.runs.saturating_sub(runs);
        let copies = self.engine.queues.copies_of_leaves(self.leaves_of_run.saturating_mul(runs));
        let surplus = PromisedData::written(0, runs).with_copies(copies);
        self.space -= surplus;
        self.engine.space.reservations().unpromise_data(surplus, 0);
    }

    /// Takes the space out of this guard's care: the caller gives it back through
    /// [`Engine::settle_data_promise`]. For promises kept beside the data itself.
    pub fn keep(mut self) -> PromisedData {
        std::mem::take(&mut self.space)
    }
}

impl Drop for DataPromise<'_> {
    fn drop(&mut self) {
        self.engine.space.reservations().unpromise_data(self.space, 0);
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
    fn data_are_promised_copies_where_trees_may_share_leaves_and_give_all_of_them_back() {
        require!(Tool("mkfs.btrfs"));
        let scratch = Scratch::new("data_at");
        let engine = write(&new_image(&scratch, &[])).unwrap();
        let tree = engine.tree(RootId::FS_TREE).unwrap();
        let key = FileExtent::key(ObjectId(257), FileOffset(0));
        let promise =
            |space| engine.promise_data_at(&tree, || vec![key..key.next().unwrap()], space).unwrap();
        let space = PromisedData::written(8192, 2);
        assert_eq!(promise(space).space(), space, "nothing can be shared");
        tree.root().mark_snapshot(engine.generation());
        let mut counted = promise(space);
        let all = counted.space().copies;
        let between = Charge { added_references: 2, dropped_references: 2, ..Charge::default() };
        assert_eq!(all, engine.queues.copies_of_leaves(2 * LEAVES_AROUND_RUN) + between);
        counted.keep_runs(1);
        let kept = counted.keep();
        assert_eq!(kept.copies, engine.queues.copies_of_leaves(LEAVES_AROUND_RUN) + between);
        engine.settle_data_promise(kept, 0);
        let measured = Measuring::of(&engine).copies_at(&tree, vec![key..key.next().unwrap()]);
        assert_eq!(measured, Some(Charge::default()), "the leaf of a new file system describes no extent");
    }
}
