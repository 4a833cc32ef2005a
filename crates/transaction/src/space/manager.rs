//! Space as one whole, under one short lock: groups, pinned ranges, and what was promised to handles.

use std::ops::Range;

use vlinder_base::sync::{Condvar, Mutex};
use vlinder_format::chunk::BlockGroupFlags;
use vlinder_format::free_space::FreeSpaceFault;
use vlinder_format::{Fault, Logical};

use super::charge::{Charge, TreeSizes};
use super::free_ranges::FreeRanges;
use super::free_space_tree::GroupRange;
use super::groups::{Group, Groups, Purpose, Taken, TakenPlace};
use super::leased::{NeededRanges, Needing};
use super::promises::{GlobalReserve, Promises, Room, Unallocated, Wanted};
use super::report::KindReport;
use crate::reservation::{Draw, PromisedData};

#[derive(Debug, Default)]
struct State {
    groups: Groups,
    /// Freed by the running transaction.
    pinned: FreeRanges,
    /// Freed by the transaction that is being written.
    committing: FreeRanges,
    /// Of `pinned`, what leased states reach.
    pinned_needed: NeededRanges,
    /// Of `committing`, what leased states reach.
    committing_needed: NeededRanges,
    /// Freed by durable transactions, and reached by leased states.
    held: NeededRanges,
    /// Held before, on its way to be free.
    released: FreeRanges,
    promises: Promises,
    /// What new chunks can have; none where that has to be looked up again, because chunks came or went.
    unallocated: Option<Unallocated>,
    /// Counts how often `unallocated` was forgotten.
    chunk_changes: u64,
    /// The sizes of trees were counted as closely as they can be, since they changed last.
    is_counted: bool,
    /// Counts how often the sizes of trees were set.
    size_changes: u64,
    /// Some groups hold data and metadata, so that what is promised to one is not there for the other.
    is_mixed: bool,
}

impl State {
    /// What of these needs the groups do not cover.
    fn lacking(&self, needs: Room) -> Room {
        let available = Room {
            data: self.groups.available(Purpose::Data),
            metadata: self.groups.available(Purpose::Metadata),
        };
        needs.beyond(available, self.is_mixed)
    }

    /// Whether the groups, and the chunks that can be made, have room for what is wanted beside all else.
    fn fits(&mut self, draw: Draw, waiting: Charge, wanted: Wanted) -> Promised {
        self.note_sizes();
        let lacking = self.lacking(self.promises.needs(draw, waiting, wanted));
        if lacking == Room::default() {
            return Promised::Given;
        }
        match self.unallocated {
            None => Promised::Unmeasured(ChunkChanges(self.chunk_changes)),
            Some(unallocated) if unallocated.taken_by(lacking) <= unallocated.bytes => Promised::Given,
            Some(_) if !self.is_counted => Promised::Uncounted(SizeChanges(self.size_changes)),
            Some(_) => Promised::Refused,
        }
    }

    /// How large all trees are together, right now.
    fn note_sizes(&mut self) {
        let taken = self.groups.metadata_taken();
        let sizes = self.promises.sizes_mut();
        let counted = sizes.extent + sizes.free_space + sizes.checksum;
        sizes.others = (taken / sizes.block_bytes).saturating_sub(counted);
    }

    fn forget_unallocated(&mut self) {
        self.unallocated = None;
        self.chunk_changes += 1;
    }

    fn check_unpinned(&self, start: Logical, length: u64) -> Result<(), Fault> {
        let mut waiting = [&self.pinned, &self.committing, &self.released].into_iter();
        if waiting.any(|ranges| ranges.overlaps(start.0, length)) || self.held.overlaps(start.0, length) {
            return Err(FreeSpaceFault::FreedTwice { start, length }.into());
        }
        Ok(())
    }
}

/// Space that is about to be free.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Waiting {
    /// For the superblock of the transaction that freed it.
    Committing,
    /// For nothing any more; a lease held it.
    Released,
}

impl Waiting {
    fn of<'a>(self, committing: &'a mut FreeRanges, released: &'a mut FreeRanges) -> &'a mut FreeRanges {
        match self {
            Self::Committing => committing,
            Self::Released => released,
        }
    }
}

/// A group that the committer removes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct GroupUse {
    pub(crate) range: GroupRange,
    pub(crate) flags: vlinder_format::chunk::BlockGroupFlags,
}

/// A group whose item a commit has to write.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ChangedGroup {
    pub(crate) range: GroupRange,
    pub(crate) flags: BlockGroupFlags,
    pub(crate) used: u64,
    /// The block with its item is the running transaction's.
    pub(crate) item_is_ready: bool,
}

/// How asking for a promise ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Promised {
    /// It is promised.
    Given,
    /// There is no room.
    Refused,
    /// What new chunks can have has to be said first ([`SpaceManager::set_unallocated`]).
    Unmeasured(ChunkChanges),
    /// There is no room by bounds that counting may lower ([`SpaceManager::set_counted`]).
    Uncounted(SizeChanges),
}

/// A state of the trees' sizes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct SizeChanges(u64);

/// What was counted where [`TreeSizes`] had bounds; each as there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct CountedBlocks {
    pub(crate) about_blocks: u64,
    pub(crate) roots_and_groups: u64,
}

/// A state of the chunks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ChunkChanges(u64);

/// All space of a file system.
#[derive(Debug)]
pub(crate) struct SpaceManager {
    state: Mutex<State>,
    loaded: Condvar,
}

impl SpaceManager {
    pub(crate) fn new(block_bytes: u32) -> Self {
        let state = State { promises: Promises::new(u64::from(block_bytes)), ..State::default() };
        Self { state: Mutex::new(state), loaded: Condvar::new() }
    }

    pub(crate) fn add_group(&self, group: Group) {
        let mut state = self.state.lock();
        state.is_mixed |=
            group.flags.has(BlockGroupFlags::DATA) && group.flags.has(BlockGroupFlags::METADATA);
        state.groups.insert(group);
        state.forget_unallocated();
    }

    /// Chunks were removed, and their space on the devices is free.
    pub(crate) fn forget_unallocated(&self) {
        self.state.lock().forget_unallocated();
    }

    /// What new chunks can have.
    ///
    /// # Errors
    /// The state of the chunks for which that has to be looked up.
    pub(crate) fn unallocated(&self) -> Result<Unallocated, ChunkChanges> {
        let state = self.state.lock();
        state.unallocated.ok_or(ChunkChanges(state.chunk_changes))
    }

    /// What new chunks can have, as it was looked up; forgotten if chunks came or went meanwhile.
    pub(crate) fn set_unallocated(&self, seen: ChunkChanges, unallocated: Unallocated) {
        let mut state = self.state.lock();
        if state.chunk_changes == seen.0 {
            state.unallocated = Some(unallocated);
        }
    }

    pub(crate) fn take_blocks(
        &self,
        purpose: Purpose,
        count: usize,
        size: u64,
        into: &mut Vec<Logical>,
    ) -> Taken {
        let mut state = self.state.lock();
        loop {
            let had = into.len();
            let wanted = count - had.min(count);
            match state.groups.take_blocks(purpose, wanted, size, into) {
                Taken::Wait => self.loaded.wait(&mut state),
                other => return other,
            }
        }
    }

    pub(crate) fn take_data(&self, least: u64, most: u64) -> Result<(Logical, u64), Taken> {
        let mut state = self.state.lock();
        loop {
            match state.groups.take_data(least, most) {
                Err(Taken::Wait) => self.loaded.wait(&mut state),
                other => return other,
            }
        }
    }

    /// Takes all bytes of a place that is known from elsewhere; [`TakenPlace::Wait`] is waited for here.
    pub(crate) fn take_place(&self, purpose: Purpose, start: Logical, length: u64) -> TakenPlace {
        let mut state = self.state.lock();
        loop {
            match state.groups.take_place(purpose, start, length) {
                TakenPlace::Wait => self.loaded.wait(&mut state),
                other => return other,
            }
        }
    }

    /// The free ranges of a group were read (or could not be). What is pinned of them is left out, in the same moment.
    pub(crate) fn loaded(&self, group: GroupRange, free: Option<FreeRanges>, excluded: &[Range<Logical>]) {
        let mut state = self.state.lock();
        let free = free.map(|mut free| {
            for hole in excluded {
                free.remove(hole.start.0, hole.end.0 - hole.start.0);
            }
            for ranges in [&state.pinned, &state.committing, &state.released] {
                for (start, length) in ranges.within(group.start.0, group.end()) {
                    free.remove(start, length);
                }
            }
            for (start, length) in state.held.within(group.start.0, group.end()) {
                free.remove(start, length);
            }
            free
        });
        state.groups.loaded(group.start, free);
        self.loaded.notify_all();
    }

    pub(crate) fn unreserve(&self, logical: Logical, length: u64) {
        self.state.lock().groups.unreserve(logical, length);
    }

    pub(crate) fn use_reserved(&self, logical: Logical, length: u64) {
        self.state.lock().groups.use_reserved(logical, length);
    }

    /// Used space lost its item: it is free once this transaction is durable, and those leases have ended that reach it.
    ///
    /// # Errors
    /// What the disk said of it before contradicts that it was in use.
    pub(crate) fn pin_used(
        &self,
        logical: Logical,
        length: u64,
        needing: Option<Needing>,
    ) -> Result<(), Fault> {
        let mut state = self.state.lock();
        state.check_unpinned(logical, length)?;
        state.groups.pin_used(logical, length)?;
        state.pinned.add(logical.0, length);
        if let Some(needing) = needing {
            state.pinned_needed.add(needing, logical.0, length);
        }
        Ok(())
    }

    /// Reserved space that may have been written is not needed: it is free once this transaction is durable.
    ///
    /// # Errors
    /// As [`SpaceManager::pin_used`].
    pub(crate) fn pin_reserved(&self, logical: Logical, length: u64) -> Result<(), Fault> {
        let mut state = self.state.lock();
        state.check_unpinned(logical, length)?;
        state.groups.pin_reserved(logical, length);
        state.pinned.add(logical.0, length);
        Ok(())
    }

    pub(crate) fn pinned_bytes(&self) -> u64 {
        self.state.lock().pinned.total()
    }

    /// The running transaction has ended; what it freed waits for its superblock.
    pub(crate) fn freeze_pinned(&self) {
        let mut state = self.state.lock();
        assert_eq!(state.committing.total(), 0, "the commit before is not done");
        state.committing = std::mem::take(&mut state.pinned);
        state.committing_needed = std::mem::take(&mut state.pinned_needed);
    }

    /// The superblock is durable: what leased states reach of what the transaction freed is held for them. `needing` gives
    /// those that are left of the leases between two.
    pub(crate) fn hold_leased(&self, needing: impl Fn(Needing) -> Option<Needing>) {
        let mut state = self.state.lock();
        let State { committing, committing_needed, held, .. } = &mut *state;
        committing_needed.sift(needing, |_, _| {});
        committing_needed.move_to(held, |start, length| {
            committing.remove(start, length);
        });
    }

    /// A lease ended: what no other needs is on its way to be free ([`Waiting::Released`]).
    pub(crate) fn release_unleased(&self, needing: impl Fn(Needing) -> Option<Needing>) {
        let mut state = self.state.lock();
        let State { held, released, .. } = &mut *state;
        held.sift(needing, |start, length| released.add(start, length));
    }

    /// Bytes that only leases keep from being free, and in how many pieces.
    pub(crate) fn held(&self) -> (u64, usize) {
        let state = self.state.lock();
        (state.held.bytes(), state.held.pieces())
    }

    /// What waits to be free, each range within one group.
    pub(crate) fn waiting_ranges(&self, waiting: Waiting) -> Vec<(Logical, u64)> {
        let mut state = self.state.lock();
        let state = &mut *state;
        let mut ranges = Vec::new();
        for (start, length) in waiting.of(&mut state.committing, &mut state.released).iter() {
            let (mut at, end) = (start, start + length);
            while at < end {
                let Some(group) = state.groups.range_of(Logical(at)) else { break };
                let part = group.end().min(end) - at;
                ranges.push((Logical(at), part));
                at += part;
            }
        }
        ranges
    }

    /// What waits to be free may be taken.
    pub(crate) fn unpin(&self, waiting: Waiting) {
        while self.unpin_one(waiting) {}
    }

    /// Frees one range, in one step with forgetting that it is pinned: whoever loads its group in between would else leave
    /// it out for ever. False when there is none.
    fn unpin_one(&self, waiting: Waiting) -> bool {
        let mut state = self.state.lock();
        let state = &mut *state;
        let ranges = waiting.of(&mut state.committing, &mut state.released);
        let Some((start, length)) = ranges.first() else { return false };
        let group = state.groups.range_of(Logical(start));
        // What lies in no group any more went with its chunk.
        let part = group.map_or(length, |group| length.min(group.end() - start));
        if group.is_some() {
            state.groups.unpin(Logical(start), part);
        }
        ranges.remove(start, part);
        true
    }

    pub(crate) fn range_of(&self, logical: Logical) -> Option<GroupRange> {
        self.state.lock().groups.range_of(logical)
    }

    /// The groups whose item differs from what is used, and those that have none yet; with `all_touched` also those whose
    /// extents came and went in equal parts since their item was written (the mechanism switched off).
    pub(crate) fn changed_groups(&self, all_touched: bool) -> Vec<ChangedGroup> {
        let state = self.state.lock();
        let is_changed =
            |group: &&Group| group.item_used != Some(group.used) || (all_touched && group.touched);
        let changed = state.groups.iter().filter(is_changed).map(|group| ChangedGroup {
            range: group.range,
            flags: group.flags,
            used: group.used,
            item_is_ready: group.item_is_ready,
        });
        changed.collect()
    }

    /// The items of these groups say what they use, in blocks that are the running transaction's.
    pub(crate) fn wrote_groups(&self, written: &[ChangedGroup]) {
        let mut state = self.state.lock();
        for changed in written {
            if let Some(group) = state.groups.get_mut(changed.range.start) {
                group.item_used = Some(changed.used);
                (group.touched, group.item_is_ready) = (false, true);
            }
        }
    }

    /// Every item says what its group uses; until the next transaction all of them rest. Gives how many differ from what
    /// they were in the last one.
    pub(crate) fn settle_groups(&self) -> u64 {
        let mut changed = 0;
        let mut state = self.state.lock();
        state.groups.assert_lists();
        for group in state.groups.iter_mut() {
            changed += u64::from(group.committed_used != group.item_used);
            group.committed_used = group.item_used;
            (group.touched, group.item_is_ready) = (false, false);
        }
        changed
    }

    /// Bytes that all groups use: the superblock's `bytes_used`.
    pub(crate) fn used_bytes(&self) -> u64 {
        self.state.lock().groups.iter().map(|group| group.used).sum()
    }

    /// Idle groups that may go: never the last with room of its content.
    pub(crate) fn removable_groups(&self) -> Vec<GroupUse> {
        let state = self.state.lock();
        let mut removable: Vec<GroupUse> = Vec::new();
        let idle = |group: &&Group| group.is_idle() && !group.closed && group.committed_used == Some(0);
        for group in state.groups.iter().filter(idle) {
            let alike =
                state.groups.iter().filter(|other| other.flags == group.flags && !other.closed).count();
            let going = removable.iter().filter(|gone| gone.flags == group.flags).count();
            if alike > going + 1 {
                removable.push(GroupUse { range: group.range, flags: group.flags });
            }
        }
        removable
    }

    /// Nothing more is taken from a group; false if something was meanwhile, or promises count on its room, which on the
    /// devices is free only once the transaction that removes it is durable.
    pub(crate) fn close_idle(&self, start: Logical) -> bool {
        let mut state = self.state.lock();
        let State { groups, promises, .. } = &mut *state;
        let Some(group) = groups.get_mut(start).filter(|group| group.is_idle()) else { return false };
        let room = group.available();
        let mut without = promises.needs(Draw::Nothing, Charge::default(), Wanted::default());
        let needs = without;
        if group.flags.has(BlockGroupFlags::DATA) {
            without.data += room;
        } else if group.flags.has(BlockGroupFlags::METADATA) {
            without.metadata += room;
        }
        let is_needed = state.lacking(without) != state.lacking(needs);
        if !is_needed {
            state.groups.close(start);
        }
        !is_needed
    }

    pub(crate) fn remove_group(&self, start: Logical) {
        self.state.lock().groups.remove(start);
    }

    /// How large the trees are from now on, and what is kept.
    pub(crate) fn set_sizes(&self, sizes: TreeSizes, reserve: GlobalReserve) {
        let mut state = self.state.lock();
        state.size_changes += 1;
        state.is_counted = false;
        state.promises.set_sizes(sizes, reserve);
    }

    /// What was counted of the trees whose sizes were bounds so far; of no use if they changed meanwhile.
    pub(crate) fn set_counted(&self, seen: SizeChanges, counted: Option<CountedBlocks>) {
        let mut state = self.state.lock();
        if state.size_changes != seen.0 {
            return;
        }
        state.is_counted = true;
        if let Some(counted) = counted {
            let sizes = state.promises.sizes_mut();
            sizes.about_blocks = sizes.about_blocks.min(counted.about_blocks);
            sizes.roots_and_groups = sizes.roots_and_groups.min(counted.roots_and_groups);
        }
    }

    pub(crate) fn global_reserve(&self) -> u64 {
        self.state.lock().promises.global_reserve()
    }

    /// Promises metadata and data, if there is room beside all that is promised or kept, and what `waiting` changes take.
    pub(crate) fn promise(&self, wanted: Wanted, waiting: Charge, draw: Draw) -> Promised {
        let mut state = self.state.lock();
        let promised = state.fits(draw, waiting, wanted);
        if promised == Promised::Given {
            state.promises.add_handle(wanted.changes);
            state.promises.add_data(wanted.data);
        }
        promised
    }

    /// Whether handles that are open, or about to be, were promised something.
    pub(crate) fn has_promised_changes(&self) -> bool {
        self.state.lock().promises.has_promised_changes()
    }

    /// What there is of metadata space and what is wanted of it, for messages.
    pub(crate) fn describe_room(&self, waiting: Charge) -> String {
        let state = self.state.lock();
        let needs = state.promises.needs(Draw::LastReserve, waiting, Wanted::default());
        let available = Room {
            data: state.groups.available(Purpose::Data),
            metadata: state.groups.available(Purpose::Metadata),
        };
        format!("{needs:?} are needed, {available:?} are available, and {:?}", state.unallocated)
    }

    /// What a commit can take at worst that makes these changes, in bytes.
    pub(crate) fn price_of_commit_bytes(&self, changes: Charge) -> u64 {
        let mut state = self.state.lock();
        state.note_sizes();
        state.promises.price_bytes(&changes).saturating_add(state.promises.commit_bytes())
    }

    /// How large the trees are.
    pub(crate) fn sizes(&self) -> TreeSizes {
        let mut state = self.state.lock();
        state.note_sizes();
        *state.promises.sizes_mut()
    }

    /// What changes can take at worst, in bytes.
    pub(crate) fn price_bytes(&self, changes: Charge) -> u64 {
        self.state.lock().promises.price_bytes(&changes)
    }

    /// A promise was used or is not needed.
    pub(crate) fn unpromise(&self, changes: Charge) {
        self.state.lock().promises.remove_handle(changes);
    }

    /// Whether data and metadata come out of the same groups.
    pub(crate) fn is_mixed(&self) -> bool {
        self.state.lock().is_mixed
    }

    /// Promises space to data that were accepted before, whatever there is.
    pub(crate) fn promise_accepted_data(&self, data: PromisedData) {
        self.state.lock().promises.add_data(data);
    }

    /// A promise of data was used or is not needed; of them, `placed` had their space.
    pub(crate) fn unpromise_data(&self, data: PromisedData, placed: u64) {
        let mut state = self.state.lock();
        state.promises.displace(placed);
        state.promises.remove_data(data);
    }

    /// Promised data were taken from a group, and count as such from now on.
    pub(crate) fn place_data(&self, bytes: u64) {
        self.state.lock().promises.place(bytes);
    }

    /// Placed data gave their space back, and are promised some as before.
    pub(crate) fn displace_data(&self, bytes: u64) {
        self.state.lock().promises.displace(bytes);
    }

    /// What promises and `waiting` changes, and so much metadata beside them, need of new chunks beyond what the groups have.
    pub(crate) fn lacking(&self, draw: Draw, waiting: Charge, metadata: u64) -> Room {
        let mut state = self.state.lock();
        state.note_sizes();
        let mut needs = state.promises.needs(draw, waiting, Wanted::default());
        needs.metadata = needs.metadata.saturating_add(metadata);
        state.lacking(needs)
    }

    pub(crate) fn available(&self, purpose: Purpose) -> u64 {
        self.state.lock().groups.available(purpose)
    }

    /// Places, as addresses, where tree blocks lie or may come to lie; in order, neighbours as one.
    pub(crate) fn places_of_blocks(&self) -> Vec<Range<u64>> {
        let state = self.state.lock();
        let holds_blocks = |group: &&Group| {
            group.flags.has(BlockGroupFlags::METADATA) || group.flags.has(BlockGroupFlags::SYSTEM)
        };
        let mut places: Vec<Range<u64>> = Vec::new();
        for group in state.groups.iter().filter(holds_blocks) {
            let place = group.range.start.0..group.range.end();
            match places.last_mut().filter(|last| last.end == place.start) {
                Some(last) => last.end = place.end,
                None => places.push(place),
            }
        }
        places
    }

    /// How many groups there are.
    pub(crate) fn group_count(&self) -> usize {
        self.state.lock().groups.iter().count()
    }

    /// Sums by content and profile.
    pub(crate) fn kinds(&self) -> Vec<KindReport> {
        let state = self.state.lock();
        let mut kinds: Vec<KindReport> = Vec::new();
        for group in state.groups.iter() {
            let used = group.used + group.reserved + group.pinned;
            match kinds.iter_mut().find(|kind| kind.flags == group.flags) {
                Some(kind) => {
                    kind.total_bytes += group.range.length;
                    kind.used_bytes += used;
                    kind.pinned_bytes += group.pinned;
                    kind.reserved_bytes += group.reserved;
                }
                None => kinds.push(KindReport {
                    flags: group.flags,
                    total_bytes: group.range.length,
                    used_bytes: used,
                    pinned_bytes: group.pinned,
                    reserved_bytes: group.reserved,
                }),
            }
        }
        kinds
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const BLOCK: u64 = 16 << 10;
    const GROUP: GroupRange = GroupRange { start: Logical(1 << 20), length: 64 * BLOCK };

    #[test]
    fn a_group_that_is_loaded_while_its_space_is_unpinned_gets_all_of_it() {
        let flags = BlockGroupFlags::METADATA;
        for loaded_after in 0..=2 {
            let space = SpaceManager::new(BLOCK as u32);
            space.add_group(Group::existing(GROUP, flags, 8 * BLOCK, 0, false));
            for block in [1, 4] {
                space.pin_used(Logical(GROUP.start.0 + block * BLOCK), BLOCK, None).unwrap();
            }
            space.freeze_pinned();
            // On disk, the 8 blocks at the start were used; two of them are free from this transaction on.
            let mut free = FreeRanges::default();
            for (block, count) in [(1, 1), (4, 1), (8, 56)] {
                free.add(GROUP.start.0 + block * BLOCK, count * BLOCK);
            }
            for _ in 0..loaded_after {
                assert!(space.unpin_one(Waiting::Committing));
            }
            space.loaded(GROUP, Some(free), &[]);
            space.unpin(Waiting::Committing);
            let mut taken = Vec::new();
            let available = space.available(Purpose::Metadata);
            assert_eq!(available, 58 * BLOCK);
            assert_eq!(space.take_blocks(Purpose::Metadata, 58, BLOCK, &mut taken), Taken::Done);
            assert_eq!(space.available(Purpose::Metadata), 0);
        }
    }
}
