//! Space as one whole, under one short lock: groups, pinned ranges, and what was promised to handles.

use std::ops::Range;

use vlinder_format::chunk::BlockGroupFlags;
use vlinder_format::{ItemType, Key, Logical, ObjectId};

use crate::free_ranges::FreeRanges;
use crate::group_range::GroupRange;
use crate::groups::{Group, Purpose, Taken, TakenPlace};
use crate::ledger::Ledger;
use crate::pins::Pins;
use crate::report::KindReport;
use crate::reservations::Reservations;

/// A group whose item a commit has to write.
#[derive(Clone, Copy, Debug)]
pub struct ChangedGroup {
    /// Where it lies.
    pub range: GroupRange,
    /// What it is for, and its profile.
    pub flags: BlockGroupFlags,
    /// What its item is to say.
    pub used: u64,
    /// The block with its item is the running transaction's.
    pub item_is_ready: bool,
}

/// The block groups of a file system, with what is promised of them.
///
/// Invariants, and the function that keeps each:
/// 1. A byte of a group is used, reserved, pinned or free, and only one of these. It goes from one to the
///    next under the lock of the ledger ([`take_blocks`](Self::take_blocks), [`take_data`](Self::take_data),
///    [`take_place`](Self::take_place), [`use_reserved`](Self::use_reserved), [`unreserve`](Self::unreserve),
///    [`Pins`]).
/// 2. Nothing that the last superblock or a lease reaches is free: what a transaction frees is pinned until
///    its superblock is durable and no lease needs it ([`Pins::freeze_pinned`], [`Pins::hold_leased`],
///    [`Pins::unpin`]).
/// 3. The free ranges of a group that is loaded leave out what is pinned of them, in the same moment
///    ([`loaded`](Self::loaded)).
/// 4. Promises of a purpose are covered by what its groups have available and by what new chunks can take
///    ([`Reservations`]). While a chunk is made no promise is given ([`begin_chunk`](Self::begin_chunk)).
/// 5. `used` of a group's item is what the group uses when the commit ends
///    ([`changed_groups`](Self::changed_groups), [`wrote_groups`](Self::wrote_groups)).
#[derive(Debug)]
pub struct SpaceManager {
    ledger: Ledger,
}

/// While it lives, nothing is promised: what a chunk leaves to other purposes stays true until its group is
/// added. The holder must not wait for a thread that asks for a promise.
pub struct ChunkBeingMade<'a> {
    ledger: &'a Ledger,
}

impl Drop for ChunkBeingMade<'_> {
    fn drop(&mut self) {
        self.ledger.state.lock().is_making_chunk = false;
        self.ledger.chunk_made.notify_all();
    }
}

impl SpaceManager {
    /// No groups, no promises; tree blocks of so many bytes.
    pub fn new(block_bytes: u32) -> Self {
        Self { ledger: Ledger::new(block_bytes) }
    }

    pub(crate) fn ledger(&self) -> &Ledger {
        &self.ledger
    }

    /// What is promised.
    pub fn reservations(&self) -> Reservations<'_> {
        Reservations::new(&self.ledger)
    }

    /// What is pinned.
    pub fn pins(&self) -> Pins<'_> {
        Pins::new(&self.ledger)
    }

    /// To be held from the look at what a chunk may take until its group is added; by one thread at a time.
    pub fn begin_chunk(&self) -> ChunkBeingMade<'_> {
        let was_making = std::mem::replace(&mut self.ledger.state.lock().is_making_chunk, true);
        assert!(!was_making, "two chunks are made at once");
        ChunkBeingMade { ledger: &self.ledger }
    }

    /// A group is there: one that was read, or a new one.
    pub fn add_group(&self, group: Group) {
        let mut state = self.ledger.state.lock();
        state.is_mixed |=
            group.flags.has(BlockGroupFlags::DATA) && group.flags.has(BlockGroupFlags::METADATA);
        state.groups.insert(group);
        state.forget_unallocated();
    }

    /// Chunks were removed, and their space on the devices is free.
    pub fn forget_unallocated(&self) {
        self.ledger.state.lock().forget_unallocated();
    }

    /// Has the next tree blocks gathered where others lie, if few lie where they come from.
    pub fn gather_blocks(&self) {
        self.ledger().state.lock().groups.gather_blocks();
    }

    /// Takes up to `count` tree blocks; waits where a group's free ranges are being read by another thread.
    pub fn take_blocks(&self, purpose: Purpose, count: usize, size: u64, into: &mut Vec<Logical>) -> Taken {
        let mut state = self.ledger.state.lock();
        loop {
            let had = into.len();
            let wanted = count - had.min(count);
            match state.groups.take_blocks(purpose, wanted, size, into) {
                Taken::Wait => self.ledger.loaded.wait(&mut state),
                other => return other,
            }
        }
    }

    /// Takes one range of data of `least` to `most` bytes; waits as [`take_blocks`](Self::take_blocks).
    ///
    /// # Errors
    /// What the caller has to do first: load a group, or make a chunk.
    pub fn take_data(&self, least: u64, most: u64) -> Result<(Logical, u64), Taken> {
        let mut state = self.ledger.state.lock();
        loop {
            match state.groups.take_data(least, most) {
                Err(Taken::Wait) => self.ledger.loaded.wait(&mut state),
                other => return other,
            }
        }
    }

    /// Takes all bytes of a place that is known from elsewhere; [`TakenPlace::Wait`] is waited for here.
    pub fn take_place(&self, purpose: Purpose, start: Logical, length: u64) -> TakenPlace {
        let mut state = self.ledger.state.lock();
        loop {
            match state.groups.take_place(purpose, start, length) {
                TakenPlace::Wait => self.ledger.loaded.wait(&mut state),
                other => return other,
            }
        }
    }

    /// The free ranges of a group were read (or could not be). What is pinned of them is left out, in the
    /// same moment.
    pub fn loaded(&self, group: GroupRange, free: Option<FreeRanges>, excluded: &[Range<Logical>]) {
        let mut state = self.ledger.state.lock();
        let pinned = &state.pinned;
        let free = free.map(|mut free| {
            for hole in excluded {
                free.remove(hole.start.0, hole.end.0 - hole.start.0);
            }
            for ranges in [&pinned.running, &pinned.committing, &pinned.released] {
                for (start, length) in ranges.within(group.start.0, group.end()) {
                    free.remove(start, length);
                }
            }
            for (start, length) in pinned.held.within(group.start.0, group.end()) {
                free.remove(start, length);
            }
            free
        });
        state.groups.loaded(group.start, free);
        self.ledger.loaded.notify_all();
    }

    /// Lets `with` have the first free piece of a group at or behind `from`, of at most `most` bytes; no
    /// thread can take it meanwhile, nor anything else. Gives where it ends, and what `with` said; none where
    /// nothing more of the group is free.
    ///
    /// # Errors
    /// [`Taken::Load`]: the group's free ranges have to be read first.
    pub fn with_free_piece<R>(
        &self,
        group: GroupRange,
        from: u64,
        most: u64,
        with: impl FnOnce(Logical, u64) -> R,
    ) -> Result<Option<(u64, R)>, Taken> {
        let mut state = self.ledger.state.lock();
        loop {
            match state.groups.free_piece(group, from, most) {
                Err(Taken::Wait) => self.ledger.loaded.wait(&mut state),
                Err(other) => return Err(other),
                Ok(None) => return Ok(None),
                Ok(Some((start, length))) => {
                    return Ok(Some((start.saturating_add(length), with(Logical(start), length))));
                }
            }
        }
    }

    /// What was taken and never written is free again.
    pub fn unreserve(&self, logical: Logical, length: u64) {
        self.ledger.state.lock().groups.unreserve(logical, length);
    }

    /// What was taken has its item now.
    pub fn use_reserved(&self, logical: Logical, length: u64) {
        self.ledger.state.lock().groups.use_reserved(logical, length);
    }

    /// The group in which an address lies.
    pub fn range_of(&self, logical: Logical) -> Option<GroupRange> {
        self.ledger.state.lock().groups.range_of(logical)
    }

    /// The groups whose item differs from what is used, and those that have none yet; with `all_touched` also
    /// those whose extents came and went in equal parts since their item was written (the mechanism switched
    /// off).
    pub fn changed_groups(&self, all_touched: bool) -> Vec<ChangedGroup> {
        let state = self.ledger.state.lock();
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
    pub fn wrote_groups(&self, written: &[ChangedGroup]) {
        let mut state = self.ledger.state.lock();
        for changed in written {
            if let Some(group) = state.groups.get_mut(changed.range.start) {
                group.item_used = Some(changed.used);
                (group.touched, group.item_is_ready) = (false, true);
            }
        }
    }

    /// Every item says what its group uses; until the next transaction all of them rest. Gives how many
    /// differ from what they were in the last one.
    pub fn settle_groups(&self) -> u64 {
        let mut changed = 0;
        let mut state = self.ledger.state.lock();
        state.groups.assert_lists();
        if cfg!(debug_assertions) {
            state.groups.assert_sums();
        }
        for group in state.groups.iter_mut() {
            changed += u64::from(group.committed_used != group.item_used);
            group.committed_used = group.item_used;
            (group.touched, group.item_is_ready) = (false, false);
        }
        changed
    }

    /// Bytes that all groups use: the superblock's `bytes_used`.
    pub fn used_bytes(&self) -> u64 {
        self.ledger.state.lock().groups.iter().map(|group| group.used).sum()
    }

    /// Bytes of the global reserve.
    pub fn global_reserve(&self) -> u64 {
        self.ledger.state.lock().promises.global_reserve()
    }

    /// What metadata may grow by when data that are there already are changed.
    pub fn growth_bytes(&self) -> u64 {
        self.ledger.state.lock().promises.growth_bytes()
    }

    /// Whether data and metadata come out of the same groups.
    pub fn is_mixed(&self) -> bool {
        self.ledger.state.lock().is_mixed
    }

    /// Bytes that the groups of a purpose have left: neither used, reserved nor pinned.
    pub fn available(&self, purpose: Purpose) -> u64 {
        self.ledger.state.lock().groups.available(purpose)
    }

    /// Places, as addresses, where tree blocks lie or may come to lie; in order, neighbours as one.
    pub fn places_of_blocks(&self) -> Vec<Range<u64>> {
        let state = self.ledger.state.lock();
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

    /// A group of tree blocks whose free ranges are not known, to be read by the caller, who tells
    /// [`loaded`](Self::loaded).
    pub fn begin_loading(&self) -> Option<GroupRange> {
        self.ledger.state.lock().groups.begin_loading()
    }

    /// The longest free places for tree blocks, as addresses in whole blocks, of so many blocks in all if
    /// there are as many.
    pub fn longest_free_places(&self, blocks: u64) -> Vec<Range<u64>> {
        let state = self.ledger.state.lock();
        state.groups.longest_free_places(blocks, state.promises.block_bytes())
    }

    /// New tree blocks take these places first, those that are free still.
    pub fn choose_places(&self, places: &[Range<u64>]) {
        self.ledger.state.lock().groups.choose_free(places);
    }

    /// The keys of all groups' items.
    pub fn group_keys(&self) -> Vec<Key> {
        let state = self.ledger.state.lock();
        let key =
            |range: GroupRange| Key::new(ObjectId(range.start.0), ItemType::BLOCK_GROUP_ITEM, range.length);
        state.groups.iter().map(|group| key(group.range)).collect()
    }

    /// How many groups there are.
    pub fn group_count(&self) -> usize {
        self.ledger.state.lock().groups.iter().count()
    }

    /// Sums by content and profile. `is_on_seed` says of which groups the devices are a seed's.
    pub fn kinds(&self, is_on_seed: impl Fn(GroupRange) -> bool) -> Vec<KindReport> {
        let state = self.ledger.state.lock();
        let mut kinds: Vec<KindReport> = Vec::new();
        for group in state.groups.iter() {
            let used = group.used + group.reserved + group.pinned;
            let unused = group.range.length.saturating_sub(group.used);
            let seed_free_bytes = if is_on_seed(group.range) { unused } else { 0 };
            match kinds.iter_mut().find(|kind| kind.flags == group.flags) {
                Some(kind) => {
                    kind.total_bytes += group.range.length;
                    kind.used_bytes += used;
                    kind.pinned_bytes += group.pinned;
                    kind.reserved_bytes += group.reserved;
                    kind.seed_free_bytes += seed_free_bytes;
                }
                None => kinds.push(KindReport {
                    flags: group.flags,
                    total_bytes: group.range.length,
                    used_bytes: used,
                    pinned_bytes: group.pinned,
                    reserved_bytes: group.reserved,
                    seed_free_bytes,
                }),
            }
        }
        kinds
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::neighbours::{BLOCK, BLOCKS, GROUP, neighbours, place};
    use crate::pinned::PinStage;

    #[test]
    fn a_group_loaded_during_an_unpin_gets_all_of_its_space() {
        let flags = BlockGroupFlags::METADATA;
        for loaded_after in 0..=2 {
            let space = SpaceManager::new(BLOCK as u32);
            space.add_group(Group::existing(GROUP, flags, 8 * BLOCK, 0, false));
            for block in [1, 4] {
                space.pins().pin_used(Logical(GROUP.start.0 + block * BLOCK), BLOCK, None).unwrap();
            }
            space.pins().freeze_pinned();
            // On disk, the 8 blocks at the start were used; two of them are free from this transaction on.
            let mut free = FreeRanges::default();
            for (block, count) in [(1, 1), (4, 1), (8, 56)] {
                free.add(GROUP.start.0 + block * BLOCK, count * BLOCK);
            }
            assert_eq!((space.pins().pinned_bytes(), space.pins().committing_bytes()), (0, 2 * BLOCK));
            for _ in 0..loaded_after {
                assert!(space.pins().unpin_one(PinStage::Committing));
            }
            space.loaded(GROUP, Some(free), &[]);
            space.pins().unpin(PinStage::Committing);
            assert_eq!(space.pins().committing_bytes(), 0);
            let mut taken = Vec::new();
            let available = space.available(Purpose::Metadata);
            assert_eq!(available, 58 * BLOCK);
            assert_eq!(space.take_blocks(Purpose::Metadata, 58, BLOCK, &mut taken), Taken::Done);
            assert_eq!(space.available(Purpose::Metadata), 0);
        }
    }

    #[test]
    fn what_is_pinned_across_groups_goes_to_each_its_own() {
        let space = neighbours(&[(BlockGroupFlags::DATA, BLOCKS), (BlockGroupFlags::DATA, BLOCKS)]);
        let border = place(1);
        let last = Logical(border.0 - BLOCK);
        for (start, blocks) in [(border, 2), (last, 1)] {
            space.pins().pin_used(start, blocks * BLOCK, None).unwrap();
        }
        space.pins().freeze_pinned();
        let parts = vec![(last, BLOCK), (border, 2 * BLOCK)];
        assert_eq!(space.pins().waiting_ranges(PinStage::Committing), parts);
        space.pins().unpin(PinStage::Committing);
        let state = space.ledger.state.lock();
        let found: Vec<(u64, u64)> = state.groups.iter().map(|group| (group.pinned, group.used)).collect();
        assert_eq!(found, [(0, (BLOCKS - 1) * BLOCK), (0, (BLOCKS - 2) * BLOCK)]);
        state.groups.assert_lists();
        state.groups.assert_sums();
    }

    /// As a forged extent would.
    #[test]
    fn an_extent_that_reaches_beyond_its_group_is_not_freed() {
        for behind in [BLOCKS, 0] {
            let space = neighbours(&[(BlockGroupFlags::DATA, BLOCKS), (BlockGroupFlags::DATA, behind)]);
            let start = Logical(place(1).0 - BLOCK);
            for length in [2 * BLOCK, GROUP.length, u64::MAX - BLOCK + 1] {
                let fault = space.pins().pin_used(start, length, None).unwrap_err().to_string();
                assert!(fault.contains(&format!("only {BLOCK} are in use")), "{fault}");
            }
            assert_eq!(space.pins().pinned_bytes(), 0);
        }
    }
}
