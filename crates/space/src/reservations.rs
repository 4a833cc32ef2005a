//! What is counted on of space, beside what is taken: promises to handles and to data, and whether all of
//! them find room.

use vlinder_base::sync::atomic::Ordering;

use crate::charge::{Charge, OwnMoves, TreeSizes};
use crate::demand::{ReserveAccess, ReservedData, Wanted};
use crate::groups::Purpose;
use crate::ledger::{Ledger, State};
use crate::promises::{GlobalReserve, Room, Unallocated};
use crate::tickets::Ticket;

/// How asking for a promise ended, by what is known of the devices and the trees.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Promised {
    /// It is promised.
    Given,
    /// There is no room.
    Refused,
    /// What new chunks can have has to be said first ([`Reservations::set_unallocated`]).
    Unmeasured(ChunkChanges),
    /// There is no room by bounds that counting may lower ([`Reservations::set_counted`]).
    Uncounted(SizeChanges, Charge),
    /// What waits is not known: a handle ended while it was being asked.
    Overtaken,
}

/// What a promise may have to look up; no lock is held then.
pub trait LookUps {
    /// What new chunks can have.
    fn unallocated(&self) -> Unallocated;
    /// What can be counted of the trees whose sizes are bounds; none where that can't be read.
    fn count_trees(&self, owed: &Charge) -> Option<CountedBlocks>;
}

/// Look-ups of one promise. Two are enough at rest; each further one means that a chunk or a commit of
/// another thread made the one before worthless. After so many the promise is refused, as if there were no
/// room: what cannot be known cannot be promised, and the caller tries again after a commit.
const MAX_LOOK_UPS: u32 = 64;

/// A state of the trees' sizes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SizeChanges(u64);

/// What was counted where [`TreeSizes`] had bounds; each as there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CountedBlocks {
    /// Blocks that tell of places of tree blocks.
    pub about_blocks: u64,
    /// Blocks of root items and group items.
    pub roots_and_groups: u64,
    /// How far the moves of the commit's own blocks go.
    pub own_moves: OwnMoves,
}

/// A state of the chunks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ChunkChanges(u64);

impl State {
    /// What of these needs the groups do not cover.
    pub(crate) fn lacking(&self, needs: Room) -> Room {
        let available = Room {
            data: self.groups.available(Purpose::Data),
            metadata: self.groups.available(Purpose::Metadata),
        };
        needs.beyond(available, self.is_mixed)
    }

    /// Whether the groups, and the chunks that can be made, have room for what is wanted beside all else.
    fn fits(&mut self, access: ReserveAccess, waiting: Charge, wanted: Wanted) -> Promised {
        let mut needs = self.promises.needs(access, waiting, wanted);
        let mut lacking = self.lacking(needs);
        let twice = Room { data: needs.data.saturating_mul(2), metadata: needs.metadata.saturating_mul(2) };
        self.is_ample = lacking == Room::default() && self.lacking(twice) == Room::default();
        if wanted.data.bytes > 0 && lacking.data > 0 && !self.is_mixed {
            // A chunk of data takes for good what metadata could have had.
            needs.metadata = needs.metadata.saturating_add(self.promises.growth_bytes());
            lacking = self.lacking(needs);
        }
        if lacking == Room::default() {
            return Promised::Given;
        }
        match self.unallocated {
            None => Promised::Unmeasured(ChunkChanges(self.chunk_changes)),
            Some(unallocated) if unallocated.taken_by(lacking) <= unallocated.bytes => Promised::Given,
            Some(unallocated) => {
                let owed = self.promises.owed(access, waiting, wanted);
                if !self.is_counted || self.would_fit_into_more(access, &owed) {
                    return Promised::Uncounted(SizeChanges(self.size_changes), owed);
                }
                let sizes = self.promises.sizes();
                tracing::trace!(draw = ?access, ?waiting, ?wanted, ?needs, ?lacking, ?unallocated, ?sizes, reserve = ?self.promises.reserve(), "no room");
                Promised::Refused
            }
        }
    }

    /// Whether what is owed would have room, were more places chosen for new blocks than there are.
    fn would_fit_into_more(&self, access: ReserveAccess, owed: &Charge) -> bool {
        let sizes = self.promises.sizes_for(access);
        let room = self.groups.available(Purpose::Metadata) / sizes.block_bytes.max(1);
        let wanted = sizes.blocks_by_moves(owed).filter(|wanted| *wanted > self.chosen_for);
        wanted.is_some_and(|wanted| wanted <= room && wanted > sizes.chosen_blocks)
    }

    /// Blocks that are neither of the extent tree nor of the trees of free space and of checksums: all other
    /// trees have so many together, whatever sizes their root items say.
    fn other_blocks(&self, sizes: &TreeSizes) -> u64 {
        let taken = self.groups.metadata_taken() / sizes.block_bytes.max(1);
        let counted = sizes.extent.saturating_add(sizes.free_space).saturating_add(sizes.checksum);
        taken.saturating_sub(counted)
    }
}

/// What is promised of the space of a file system, and who may have how much of the rest.
///
/// 1. All that is promised and kept finds room together ([`reserve`](Self::reserve)).
/// 2. What a handle leaves waits before its promise goes, and a promise that a handle's end comes between is
///    asked for anew (`given_back`).
/// 3. Nothing is promised while a chunk is on its way into a group
///    ([`ChunkBeingMade`](crate::ChunkBeingMade)).
#[derive(Clone, Copy, Debug)]
pub struct Reservations<'a> {
    ledger: &'a Ledger,
}

impl<'a> Reservations<'a> {
    pub(crate) fn new(ledger: &'a Ledger) -> Self {
        Self { ledger }
    }

    /// Gives the calling thread a ticket for so many bytes of metadata, and waits for its turn
    /// ([`Ticket`]).
    #[must_use]
    pub fn take_ticket(self, bytes: u64) -> Ticket<'a> {
        Ticket::take(self.ledger, bytes)
    }

    /// Whether other threads wait for room that come before the calling thread.
    pub fn has_tickets_before_this_thread(&self) -> bool {
        self.ledger.state.lock().promises.tickets().bytes_before_this_thread() > 0
    }

    /// What new chunks can have.
    ///
    /// # Errors
    /// The state of the chunks for which that has to be looked up.
    pub fn unallocated(&self) -> Result<Unallocated, ChunkChanges> {
        let state = self.ledger.state.lock();
        state.unallocated.ok_or(ChunkChanges(state.chunk_changes))
    }

    /// What new chunks can have, as it was looked up; forgotten if chunks came or went meanwhile.
    pub fn set_unallocated(&self, seen: ChunkChanges, unallocated: Unallocated) {
        let mut state = self.ledger.state.lock();
        if state.chunk_changes == seen.0 {
            state.unallocated = Some(unallocated);
        }
    }

    /// A tree that is used has so many levels.
    pub fn note_levels(&self, levels: u64) {
        let mut state = self.ledger.state.lock();
        let sizes = state.promises.sizes_mut();
        sizes.levels = sizes.levels.max(levels);
    }

    /// A tree of files was opened that has so many blocks.
    pub fn note_opened(&self, blocks: u64) {
        let mut state = self.ledger.state.lock();
        let sizes = state.promises.sizes_mut();
        sizes.files = sizes.files.saturating_add(blocks);
    }

    /// A handle made a block in a tree of files, or let go of one that the transaction made.
    pub fn note_made(&self, blocks: i64) {
        self.ledger.made.fetch_add(blocks, Ordering::Relaxed);
    }

    /// How large the trees are that have come to rest, and what is kept. No handle is open.
    pub fn set_sizes(&self, sizes: TreeSizes, reserve: GlobalReserve) {
        let mut state = self.ledger.state.lock();
        state.size_changes += 1;
        state.is_counted = false;
        let files = sizes.files.max(state.other_blocks(&sizes));
        state.promises.set_sizes(TreeSizes { files, made: 0, ..sizes }, reserve);
        state.groups.choose_free(&[]);
        state.chosen_for = 0;
        self.ledger.made.store(0, Ordering::Relaxed);
    }

    /// What was counted of the trees whose sizes were bounds so far; of no use if they changed meanwhile.
    fn set_counted(&self, seen: SizeChanges, counted: Option<CountedBlocks>, owed: &Charge) {
        let mut state = self.ledger.state.lock();
        if state.size_changes != seen.0 {
            return;
        }
        state.is_counted = true;
        if let Some(counted) = counted {
            let sizes = state.promises.sizes_mut();
            sizes.about_blocks = sizes.about_blocks.min(counted.about_blocks);
            sizes.roots_and_groups = sizes.roots_and_groups.min(counted.roots_and_groups);
            let before = sizes.blocks_by_moves(owed);
            sizes.own_moves = Some(counted.own_moves);
            let now = sizes.blocks_by_moves(owed);
            state.chosen_for = state.chosen_for.max(before.max(now).unwrap_or(0));
        }
    }

    /// Promises metadata and data, if there is room beside all that is promised or kept, and what `waiting`
    /// changes take. `waiting` is asked anew after each look-up: handles may have left more for the commit
    /// meanwhile. A handle counts what it leaves as waiting before it gives its promise back, so that one of
    /// the two is seen of it, unless both happen between the look at what waits and that at the promises.
    pub fn reserve(
        &self,
        wanted: Wanted,
        access: ReserveAccess,
        waiting: impl Fn() -> Charge,
        look_ups: &impl LookUps,
    ) -> bool {
        for _ in 0..MAX_LOOK_UPS {
            match self.reserve_by_what_is_known(wanted, access, &waiting) {
                Promised::Given => return true,
                Promised::Refused => return false,
                Promised::Unmeasured(chunks) => self.set_unallocated(chunks, look_ups.unallocated()),
                Promised::Uncounted(sizes, owed) => {
                    self.set_counted(sizes, look_ups.count_trees(&owed), &owed);
                }
                Promised::Overtaken => {}
            }
        }
        let is_given = self.reserve_by_what_is_known(wanted, access, &waiting) == Promised::Given;
        if !is_given {
            tracing::warn!(
                "a request for space was refused: promises, chunks or trees changed at each of {MAX_LOOK_UPS} looks"
            );
        }
        is_given
    }

    fn reserve_by_what_is_known(
        &self,
        wanted: Wanted,
        access: ReserveAccess,
        waiting: &impl Fn() -> Charge,
    ) -> Promised {
        let given_back = self.ledger.given_back.load(Ordering::Acquire);
        let waiting = waiting();
        let mut state = self.ledger.up_to_date();
        while state.is_making_chunk {
            self.ledger.chunk_made.wait(&mut state);
        }
        if self.ledger.given_back.load(Ordering::Relaxed) != given_back {
            return Promised::Overtaken;
        }
        let promised = state.fits(access, waiting, wanted);
        self.ledger.is_ample.store(state.is_ample, Ordering::Relaxed);
        if promised == Promised::Given {
            state.promises.add_handle(wanted.changes);
            state.promises.add_data(wanted.data);
        }
        promised
    }

    /// Of data that were refused, the price of their metadata if those are what lacks room; none where there
    /// is no room for the data themselves, or where both come out of the same groups.
    pub fn metadata_of_refused(&self, data: ReservedData) -> Option<u64> {
        let state = self.ledger.state.lock();
        let wanted = Wanted { data, ..Wanted::default() };
        let needs = state.promises.needs(ReserveAccess::Margin, Charge::default(), wanted);
        let lacking = state.lacking(Room { metadata: 0, ..needs });
        let unallocated =
            state.unallocated.map_or(0, |unallocated| unallocated.bytes / unallocated.data_copies.max(1));
        let has_room_for_data = !state.is_mixed && lacking.data <= unallocated;
        has_room_for_data.then(|| state.promises.price_of_data(data))
    }

    /// How often a handle, or who was about to open one, gave back what it was promised.
    pub fn promises_given_back(&self) -> u64 {
        self.ledger.given_back.load(Ordering::Acquire)
    }

    /// Whether the groups had room for twice what the last promise needed beside all that was promised, kept
    /// or waited.
    pub fn has_ample_room(&self) -> bool {
        self.ledger.is_ample.load(Ordering::Relaxed)
    }

    /// What handles were promised that are open, or about to be.
    pub fn promised_changes(&self) -> Charge {
        self.ledger.state.lock().promises.handles()
    }

    /// What there is of metadata space and what is wanted of it, for messages.
    pub fn describe_room(&self, waiting: Charge) -> String {
        let state = self.ledger.state.lock();
        let needs = state.promises.needs(ReserveAccess::LastReserve, waiting, Wanted::default());
        let available = Room {
            data: state.groups.available(Purpose::Data),
            metadata: state.groups.available(Purpose::Metadata),
        };
        format!("{needs:?} are needed, {available:?} are available, and {:?}", state.unallocated)
    }

    /// What a commit can take at worst that makes these changes, in bytes.
    pub fn price_of_commit_bytes(&self, changes: Charge) -> u64 {
        let state = self.ledger.up_to_date();
        state.promises.price_bytes(&changes).saturating_add(state.promises.commit_bytes(&changes))
    }

    /// How large the trees are.
    pub fn sizes(&self) -> TreeSizes {
        *self.ledger.up_to_date().promises.sizes_mut()
    }

    /// What changes can take at worst, in bytes.
    pub fn price_bytes(&self, changes: Charge) -> u64 {
        self.ledger.state.lock().promises.price_bytes(&changes)
    }

    /// A promise was used or is not needed. What it left for the commit waits already.
    pub fn unreserve(&self, changes: Charge) {
        if changes == Charge::default() {
            return;
        }
        let mut state = self.ledger.state.lock();
        self.ledger.given_back.fetch_add(1, Ordering::Release);
        state.promises.remove_handle(changes);
    }

    /// Promises space to data that were accepted before, whatever there is.
    pub fn reserve_accepted_data(&self, data: ReservedData) {
        self.ledger.state.lock().promises.add_data(data);
    }

    /// A promise of data was used or is not needed; of them, `placed` had their space.
    pub fn unreserve_data(&self, data: ReservedData, placed: u64) {
        let mut state = self.ledger.state.lock();
        state.promises.displace(placed);
        state.promises.remove_data(data);
    }

    /// Promised data were taken from a group, and count as such from now on.
    pub fn place_data(&self, bytes: u64) {
        self.ledger.state.lock().promises.place(bytes);
    }

    /// Placed data gave their space back, and are promised some as before.
    pub fn displace_data(&self, bytes: u64) {
        self.ledger.state.lock().promises.displace(bytes);
    }

    /// What promises and `waiting` changes, and so much metadata beside them, need of new chunks beyond what
    /// the groups have.
    pub fn lacking(&self, access: ReserveAccess, waiting: Charge, metadata: u64) -> Room {
        let state = self.ledger.up_to_date();
        let mut needs = state.promises.needs(access, waiting, Wanted::default());
        needs.metadata = needs.metadata.saturating_add(metadata);
        state.lacking(needs)
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use vlinder_format::chunk::BlockGroupFlags;

    use super::*;
    use crate::chains::ExtentLeaves;
    use crate::manager::SpaceManager;
    use crate::neighbours::{BLOCKS, Neighbours, neighbours};

    const BLOCK: u64 = 16 << 10;
    const UNALLOCATED: Unallocated = Unallocated { bytes: 1 << 30, data_copies: 1, metadata_copies: 1 };

    /// Another thread makes a chunk, or commits, during each of the first look-ups.
    struct Disturbed<'a> {
        space: &'a SpaceManager,
        unallocated: Unallocated,
        disturbances: Cell<u32>,
        look_ups: Cell<u32>,
    }

    impl Disturbed<'_> {
        fn is_disturbed(&self) -> bool {
            self.look_ups.set(self.look_ups.get() + 1);
            let left = self.disturbances.get();
            self.disturbances.set(left.saturating_sub(1));
            left > 0
        }
    }

    impl LookUps for Disturbed<'_> {
        fn unallocated(&self) -> Unallocated {
            if self.is_disturbed() {
                self.space.forget_unallocated();
            }
            self.unallocated
        }

        fn count_trees(&self, _: &Charge) -> Option<CountedBlocks> {
            if self.is_disturbed() {
                let sizes = TreeSizes { about_blocks: 100, ..self.space.reservations().sizes() };
                self.space.reservations().set_sizes(sizes, GlobalReserve::default());
            }
            let chains = ExtentLeaves::new(Vec::new()).chains([]);
            let own_moves = OwnMoves { chains, other_blocks: 1, roots: 0, splits: 0 };
            Some(CountedBlocks { about_blocks: 1, roots_and_groups: 0, own_moves })
        }
    }

    fn ask(unallocated: Unallocated, disturbances: u32) -> (bool, u32) {
        let space = SpaceManager::new(BLOCK as u32);
        let sizes = TreeSizes { about_blocks: 100, ..space.reservations().sizes() };
        space.reservations().set_sizes(sizes, GlobalReserve::default());
        let disturbances = Cell::new(disturbances);
        let look_ups = Disturbed { space: &space, unallocated, disturbances, look_ups: Cell::new(0) };
        let wanted = Wanted { changes: Charge::leaves(1), ..Wanted::default() };
        let promised =
            space.reservations().reserve(wanted, ReserveAccess::LastReserve, Charge::default, &look_ups);
        assert_eq!(space.reservations().promised_changes() != Charge::default(), promised);
        (promised, look_ups.look_ups.get())
    }

    /// Room for what is wanted where the trees were counted, and not where their sizes are bounds.
    const SCARCE: Unallocated = Unallocated { bytes: 100 * BLOCK, ..UNALLOCATED };

    #[test]
    fn room_is_ample_with_twice_what_is_needed() {
        let space = neighbours(&[(BlockGroupFlags::METADATA, 0); 32]);
        let ask = |blocks| {
            let wanted = Wanted { changes: Charge { blocks, ..Charge::default() }, ..Wanted::default() };
            let reservations = space.reservations();
            let access = ReserveAccess::LastReserve;
            let is_given = reservations.reserve(wanted, access, Charge::default, &Neighbours);
            if is_given {
                reservations.unreserve(wanted.changes);
            }
            (is_given, reservations.has_ample_room())
        };
        let most = (1..=32 * BLOCKS).rev().find(|blocks| ask(*blocks).0).unwrap();
        let ample = (1..=32 * BLOCKS).rev().find(|blocks| ask(*blocks).1).unwrap();
        assert!((1..most).contains(&ample), "{ample} {most}");
        assert_eq!(ask(most), (true, false));
        assert_eq!(ask(32 * BLOCKS + 1), (false, false), "what is refused is not ample");
        assert_eq!(ask(ample), (true, true));
    }

    #[test]
    fn a_refusal_of_data_names_what_lacks_room() {
        let data = ReservedData::written(4 * BLOCK, 1);
        let full = neighbours(&[(BlockGroupFlags::DATA, BLOCKS), (BlockGroupFlags::METADATA, 0)]);
        assert_eq!(full.reservations().metadata_of_refused(data), None);
        let roomy = neighbours(&[(BlockGroupFlags::DATA, 0), (BlockGroupFlags::METADATA, BLOCKS)]);
        assert!(roomy.reservations().metadata_of_refused(data).is_some_and(|bytes| bytes > 0));
    }

    #[test]
    fn a_promise_looks_up_what_is_not_known() {
        assert_eq!(ask(UNALLOCATED, 0), (true, 1), "what is unallocated");
        assert_eq!(ask(SCARCE, 0), (true, 2), "and how large the trees are");
        assert_eq!(ask(Unallocated { bytes: 0, ..UNALLOCATED }, 0), (false, 2));
    }

    #[test]
    fn a_promise_asks_anew_what_waits_if_a_handle_ended_meanwhile() {
        let space = SpaceManager::new(BLOCK as u32);
        space.reservations().set_sizes(space.reservations().sizes(), GlobalReserve::default());
        let own = Charge { blocks: 60, ..Charge::default() };
        let wanted = Wanted { changes: Charge { blocks: 1, ..Charge::default() }, ..Wanted::default() };
        let look_ups = Disturbed {
            space: &space,
            unallocated: SCARCE,
            disturbances: Cell::new(0),
            look_ups: Cell::new(0),
        };
        let ask = |wanted, waiting: &dyn Fn() -> Charge| {
            space.reservations().reserve(wanted, ReserveAccess::LastReserve, waiting, &look_ups)
        };
        assert!(ask(Wanted { changes: own, ..wanted }, &Charge::default));
        // All that the handle was promised waits from now on; it ended after somebody had been told that
        // nothing waits.
        let asked = Cell::new(0);
        let waiting = || {
            asked.set(asked.get() + 1);
            if asked.get() > 1 {
                return own;
            }
            space.reservations().unreserve(own);
            Charge::default()
        };
        let room = SCARCE.bytes / BLOCK - space.reservations().sizes().commit_blocks(&Charge::default());
        let all_of_it = Wanted { changes: Charge { blocks: room - 5, ..Charge::default() }, ..wanted };
        assert!(!ask(all_of_it, &waiting));
        assert!(asked.get() > 1);
        assert!(ask(all_of_it, &Charge::default));
    }

    #[test]
    fn a_promise_is_refused_after_many_disturbed_look_ups() {
        for unallocated in [UNALLOCATED, SCARCE] {
            let (promised, look_ups) = ask(unallocated, 5);
            assert!(promised && look_ups > 5, "{look_ups}");
            assert_eq!(ask(unallocated, u32::MAX), (false, MAX_LOOK_UPS));
        }
    }
}
