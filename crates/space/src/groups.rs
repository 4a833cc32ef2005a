//! Block groups in memory: what of each is used, reserved, pinned and free.
//!
//! Of every group: length = used + reserved + pinned + free + bytes under superblock copies, where
//! - *used* has an item in the extent tree,
//! - *reserved* was taken and has no item yet,
//! - *pinned* lost its item in a transaction that is not durable yet: a power cut would bring it back,
//! - *free* may be taken. Which ranges are free is read from the free-space tree when the group is first
//!   used.
//!
//! [`Groups::assert_sums`] looks after that for every group of which the disk told the same twice: in its
//! item and in the free-space tree.
//!
//! An extent moves reserved → used → pinned → free; a tree block that was never written goes reserved → free.

mod taking;

use std::collections::{BTreeMap, BTreeSet};

use vlinder_format::block_group::BlockGroupFault;
use vlinder_format::chunk::BlockGroupFlags;
use vlinder_format::free_space::FreeSpaceFault;
use vlinder_format::{Fault, Logical};

use crate::charge::given_back;
use crate::chosen::ChosenPlaces;
use crate::free_ranges::FreeRanges;
use crate::group_range::GroupRange;

/// What space is asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Purpose {
    /// File data.
    Data,
    /// Blocks of every tree but the chunk tree.
    Metadata,
    /// Blocks of the chunk tree.
    System,
}

impl Purpose {
    /// The content flag of groups that serve it.
    pub fn flag(self) -> BlockGroupFlags {
        match self {
            Self::Data => BlockGroupFlags::DATA,
            Self::Metadata => BlockGroupFlags::METADATA,
            Self::System => BlockGroupFlags::SYSTEM,
        }
    }
}

/// What is known of a group's free ranges.
#[derive(Debug)]
enum Free {
    Unknown,
    Loading,
    Known(FreeRanges),
}

/// One block group.
#[derive(Debug)]
pub struct Group {
    /// Where it lies.
    pub range: GroupRange,
    /// What it is for, and its profile.
    pub flags: BlockGroupFlags,
    /// Bytes that have an item in the extent tree.
    pub used: u64,
    /// `used` as the last transaction left its item; none while the group has none there.
    pub committed_used: Option<u64>,
    /// `used` as its item says now, in the running transaction.
    pub item_used: Option<u64>,
    /// Extents of it came or went since its item was written, whether `used` came to differ or not.
    pub touched: bool,
    /// The block with its item was copied by the running transaction: the item can change without moving
    /// anything.
    pub item_is_ready: bool,
    /// Bytes that were taken and have no item yet.
    pub reserved: u64,
    /// Bytes that lost their item and may not be taken yet.
    pub pinned: u64,
    /// Bytes under superblock copies.
    pub excluded: u64,
    /// Nothing more is taken from it: its profile cannot be written, or it is about to be removed.
    pub closed: bool,
    /// It is among the [`Groups`] of which something may be taken.
    is_open: bool,
    /// When its free ranges became known, they were as many bytes as the sum leaves free. On a damaged disk
    /// they may not be.
    has_agreed: bool,
    free: Free,
}

impl Group {
    /// A group as its item tells.
    pub fn existing(
        range: GroupRange,
        flags: BlockGroupFlags,
        used: u64,
        excluded: u64,
        closed: bool,
    ) -> Self {
        let free = Free::Unknown;
        Self {
            range,
            flags,
            used,
            committed_used: Some(used),
            item_used: Some(used),
            touched: false,
            item_is_ready: false,
            reserved: 0,
            pinned: 0,
            excluded,
            closed,
            is_open: false,
            has_agreed: false,
            free,
        }
    }

    /// A group just made, all free.
    pub fn fresh(range: GroupRange, flags: BlockGroupFlags, excluded: &[std::ops::Range<Logical>]) -> Self {
        let mut free = FreeRanges::default();
        free.add(range.start.0, range.length);
        let mut bytes = 0;
        for hole in excluded {
            bytes += free.remove(hole.start.0, hole.end.0 - hole.start.0);
        }
        Self {
            range,
            flags,
            used: 0,
            committed_used: None,
            item_used: None,
            touched: false,
            item_is_ready: false,
            reserved: 0,
            pinned: 0,
            excluded: bytes,
            closed: false,
            is_open: false,
            has_agreed: true,
            free: Free::Known(free),
        }
    }

    /// Bytes that may still be taken, whether their place is known or not.
    pub fn available(&self) -> u64 {
        match &self.free {
            _ if self.closed => 0,
            // Fewer where the group's item says too little of what is used.
            Free::Known(free) => self.left().min(free.total()),
            _ => self.left(),
        }
    }

    /// Bytes that are neither used, reserved, pinned nor under superblock copies.
    fn left(&self) -> u64 {
        self.range.length.saturating_sub(self.used + self.reserved + self.pinned + self.excluded)
    }

    /// Nothing of it is in use, by anyone, in any way.
    pub fn is_idle(&self) -> bool {
        self.used == 0 && self.reserved == 0 && self.pinned == 0
    }
}

/// How an attempt to take space ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Taken {
    /// As much as was asked for, or for data at least the least.
    Done,
    /// A group's free ranges have to be read first.
    Load(GroupRange),
    /// Another thread is reading them.
    Wait,
    /// No group has it: a new chunk is needed.
    Chunk,
}

/// How an attempt to take a certain place ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TakenPlace {
    /// It is reserved now.
    Done,
    /// The group's free ranges have to be read first.
    Load(GroupRange),
    /// Another thread is reading them.
    Wait,
    /// Not all of it is free, or it is no place for this.
    NotFree,
}

/// All block groups.
#[derive(Debug, Default)]
pub struct Groups {
    groups: BTreeMap<Logical, Group>,
    /// Where those begin of which something may be taken, by purpose: of many groups most are full.
    open: [BTreeSet<Logical>; 3],
    /// Where the last block of each purpose was taken, so that a transaction's blocks lie together.
    hints: [u64; 3],
    /// Places that new tree blocks take before all others, if any were chosen.
    chosen: ChosenPlaces,
    sums: Sums,
}

/// Sums over all groups.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Sums {
    /// Bytes that may still be taken, by purpose; groups of mixed content count for each.
    available: [u64; 3],
    /// Bytes of groups of metadata that are used or reserved.
    metadata_taken: u64,
}

/// All purposes.
pub const PURPOSES: [Purpose; 3] = [Purpose::Data, Purpose::Metadata, Purpose::System];

impl Groups {
    pub fn insert(&mut self, mut group: Group) {
        // One that is read again after an error must not count twice.
        self.remove(group.range.start);
        self.sums.enter(&group);
        list(&mut self.open, &mut group);
        self.groups.insert(group.range.start, group);
    }

    pub fn remove(&mut self, start: Logical) -> Option<Group> {
        let group = self.groups.remove(&start)?;
        self.sums.leave(&group);
        for open in &mut self.open {
            open.remove(&start);
        }
        Some(group)
    }

    /// Nothing more is taken from a group.
    pub fn close(&mut self, start: Logical) {
        self.chosen.choose(Vec::new());
        self.change(start, |group| group.closed = true);
    }

    /// Bytes that may still be taken for a purpose.
    pub fn available(&self, purpose: Purpose) -> u64 {
        self.sums.available[purpose as usize]
    }

    /// Bytes of groups of metadata that are used or reserved.
    pub fn metadata_taken(&self) -> u64 {
        self.sums.metadata_taken
    }

    /// Changes the group that holds an address, keeping the sums right.
    fn change<R>(&mut self, logical: Logical, change: impl FnOnce(&mut Group) -> R) -> Option<R> {
        let (_, group) = self.groups.range_mut(..=logical).next_back()?;
        if logical.0 >= group.range.end() {
            return None;
        }
        self.sums.leave(group);
        let result = change(group);
        self.sums.enter(group);
        list(&mut self.open, group);
        Some(result)
    }

    pub fn iter(&self) -> impl Iterator<Item = &Group> {
        self.groups.values()
    }

    pub fn iter_mut(&mut self) -> impl Iterator<Item = &mut Group> {
        self.groups.values_mut()
    }

    pub fn get_mut(&mut self, start: Logical) -> Option<&mut Group> {
        self.groups.get_mut(&start)
    }

    /// The place of the group that holds an address.
    pub fn range_of(&self, logical: Logical) -> Option<GroupRange> {
        let (_, group) = self.groups.range(..=logical).next_back()?;
        (logical.0 < group.range.end()).then_some(group.range)
    }

    /// Of a range that is pinned, how many bytes lie in the group of its first: ranges of neighbouring groups
    /// are kept as one.
    pub fn part_within(&self, start: Logical, length: u64) -> u64 {
        let group = self.range_of(start);
        let left = group.map(|group| group.end() - start.0);
        length.min(left.unwrap_or_else(|| panic!("{length} bytes at {start} are pinned and in no group")))
    }

    /// The lists of open groups hold those of which something may be taken, and no others.
    pub fn assert_lists(&self) {
        for purpose in PURPOSES {
            let open = self.groups.values().filter(|group| serves(group, purpose) && group.available() > 0);
            let starts = open.map(|group| &group.range.start);
            assert!(starts.eq(&self.open[purpose as usize]), "the list of groups with space for {purpose:?}");
        }
    }

    /// What is used, reserved, pinned, free and under superblock copies is all of a group.
    pub fn assert_sums(&self) {
        for group in self.groups.values().filter(|group| group.has_agreed) {
            if let Free::Known(free) = &group.free {
                assert_eq!(
                    free.total(),
                    group.left(),
                    "the free ranges of the group at {}",
                    group.range.start
                );
            }
        }
    }

    /// What was read of a group's free ranges; none if reading failed, so that it may be tried again.
    pub fn loaded(&mut self, start: Logical, free: Option<FreeRanges>) {
        self.change(start, |group| {
            group.has_agreed = free.as_ref().is_some_and(|free| free.total() == group.left());
            group.free = free.map_or(Free::Unknown, Free::Known);
        });
    }

    /// The first free piece of a group at or behind `from`, cut to `most` bytes. A closed group has none: it
    /// may be about to go.
    pub fn free_piece(
        &mut self,
        group: GroupRange,
        from: u64,
        most: u64,
    ) -> Result<Option<(u64, u64)>, Taken> {
        let Some(found) = self.groups.get_mut(&group.start).filter(|found| !found.closed) else {
            return Ok(None);
        };
        match &mut found.free {
            free @ Free::Unknown => {
                *free = Free::Loading;
                Err(Taken::Load(found.range))
            }
            Free::Loading => Err(Taken::Wait),
            Free::Known(free) => Ok(free.within(from, found.range.end()).next().map(|(start, length)| {
                let first = start.max(from);
                (first, (start + length - first).min(most))
            })),
        }
    }

    /// Reserved space goes back.
    pub fn unreserve(&mut self, logical: Logical, length: u64) {
        self.change(logical, |group| {
            group.reserved = given_back(group.reserved, length);
            group.add_free(logical, length);
        });
        self.chosen.given_back(logical.0, length);
    }

    /// Reserved space got its item.
    pub fn use_reserved(&mut self, logical: Logical, length: u64) {
        self.change(logical, |group| {
            group.reserved = given_back(group.reserved, length);
            group.used += length;
            group.touched = true;
        });
    }

    /// Used space lost its item.
    ///
    /// # Errors
    /// Where the group's item or its free ranges, as the disk has them, contradict that it was in use.
    pub fn pin_used(&mut self, logical: Logical, length: u64) -> Result<(), Fault> {
        let pinned = self.change(logical, |group| {
            if group.is_free(logical, length) {
                return Err(FreeSpaceFault::FreedTwice { start: logical, length }.into());
            }
            // An extent that reaches beyond its group would pin what is another's.
            let used = group.used.min(group.range.end() - logical.0);
            if length > used {
                return Err(BlockGroupFault::Freed { used, freed: length }.into());
            }
            group.used -= length;
            group.touched = true;
            group.pinned += length;
            Ok(())
        });
        // Outside of every group nothing is in use.
        pinned.unwrap_or(Err(BlockGroupFault::Freed { used: 0, freed: length }.into()))
    }

    /// Reserved space that may have been written is not needed.
    pub fn pin_reserved(&mut self, logical: Logical, length: u64) {
        self.change(logical, |group| {
            group.reserved = given_back(group.reserved, length);
            group.pinned += length;
        });
    }

    /// Pinned space is free: the transaction that freed it is durable.
    pub fn unpin(&mut self, logical: Logical, length: u64) {
        self.change(logical, |group| {
            group.pinned = given_back(group.pinned, length);
            group.add_free(logical, length);
        });
    }
}

impl Group {
    fn is_free(&self, logical: Logical, length: u64) -> bool {
        matches!(&self.free, Free::Known(free) if free.overlaps(logical.0, length))
    }

    fn add_free(&mut self, logical: Logical, length: u64) {
        if let Free::Known(free) = &mut self.free {
            free.add(logical.0, length);
        }
    }
}

/// Notes whether anything may be taken of a group.
fn list(open: &mut [BTreeSet<Logical>; 3], group: &mut Group) {
    let is_open = group.available() > 0;
    if is_open == group.is_open {
        return;
    }
    group.is_open = is_open;
    for purpose in PURPOSES.into_iter().filter(|purpose| group.flags.has(purpose.flag())) {
        let open = &mut open[purpose as usize];
        if is_open {
            open.insert(group.range.start)
        } else {
            open.remove(&group.range.start)
        };
    }
}

fn serves(group: &Group, purpose: Purpose) -> bool {
    !group.closed && group.flags.has(purpose.flag())
}

impl Sums {
    fn enter(&mut self, group: &Group) {
        for purpose in PURPOSES.into_iter().filter(|purpose| serves(group, *purpose)) {
            self.available[purpose as usize] += group.available();
        }
        self.metadata_taken += metadata_taken(group);
    }

    fn leave(&mut self, group: &Group) {
        for purpose in PURPOSES.into_iter().filter(|purpose| serves(group, *purpose)) {
            self.available[purpose as usize] -= group.available();
        }
        self.metadata_taken -= metadata_taken(group);
    }
}

fn metadata_taken(group: &Group) -> u64 {
    if group.flags.has(BlockGroupFlags::METADATA) { group.used + group.reserved } else { 0 }
}

#[cfg(test)]
mod tests {
    use super::*;

    const GROUP_BYTES: u64 = 1 << 20;
    const BLOCK_BYTES: u64 = 1 << 16;
    const BLOCKS: usize = (GROUP_BYTES / BLOCK_BYTES) as usize;

    /// Groups of metadata that begin at these multiples of their length.
    fn metadata(numbers: impl IntoIterator<Item = u64>) -> Groups {
        let mut groups = Groups::default();
        for number in numbers {
            let range = GroupRange { start: Logical(number * GROUP_BYTES), length: GROUP_BYTES };
            groups.insert(Group::fresh(range, BlockGroupFlags::METADATA, &[]));
        }
        groups
    }

    fn take(groups: &mut Groups, count: usize) -> Vec<u64> {
        let mut taken = Vec::new();
        let ended = groups.take_blocks(Purpose::Metadata, count, BLOCK_BYTES, &mut taken);
        assert!(matches!(ended, Taken::Done) == (taken.len() == count));
        groups.assert_lists();
        groups.assert_sums();
        taken.into_iter().map(|block| block.0 / GROUP_BYTES).collect()
    }

    #[test]
    #[should_panic(expected = "the free ranges of the group")]
    fn space_that_is_lost_is_found_out() {
        let mut groups = metadata([1]);
        groups.get_mut(Logical(GROUP_BYTES)).unwrap().pinned += BLOCK_BYTES;
        groups.assert_sums();
    }

    #[test]
    fn what_is_taken_goes_on_behind_the_last_then_from_the_first() {
        let mut groups = metadata([1, 3, 7]);
        groups.hints[Purpose::Metadata as usize] = 3 * GROUP_BYTES;
        let taken = take(&mut groups, 3 * BLOCKS);
        let expected = [3, 7, 1].map(|number| [number; BLOCKS]).concat();
        assert_eq!(taken, expected);
        assert_eq!(take(&mut groups, 1), []);
    }

    #[test]
    fn blocks_of_a_nearly_empty_group_are_gathered_before_it() {
        let gathered = |used: [u64; 4], hint: u64| {
            let mut groups = metadata([1, 3, 7, 9]);
            for (number, blocks) in [1, 3, 7, 9].into_iter().zip(used) {
                groups.get_mut(Logical(number * GROUP_BYTES)).unwrap().used = blocks * BLOCK_BYTES;
            }
            groups.hints[Purpose::Metadata as usize] = hint * GROUP_BYTES;
            groups.gather_blocks();
            groups.hints[Purpose::Metadata as usize] / GROUP_BYTES
        };
        assert_eq!([1, 3, 7, 9].map(|hint| gathered([1, 2, 1, 0], hint)), [1, 3, 3, 3]);
        assert_eq!([1, 3, 7, 9].map(|hint| gathered([1, 1, 1, 1], hint)), [1; 4], "the first of equals");
        assert_eq!(gathered([1, 13, 0, 1], 9), 1, "where there is room");
        assert_eq!(gathered([5, 2, 1, 0], 3), 3, "not from where many lie");
        assert_eq!([0, 2].map(|hint| gathered([1, 2, 1, 0], hint)), [0, 2], "in no group");
    }

    #[test]
    fn full_and_closed_groups_are_not_looked_at() {
        let mut groups = metadata(0..1000);
        take(&mut groups, 999 * BLOCKS);
        groups.hints = [0; 3];
        let first = groups.next_open(Purpose::Metadata, Logical(0), None);
        assert_eq!(first, Some(Logical(999 * GROUP_BYTES)));
        assert_eq!(groups.next_open(Purpose::Metadata, Logical(0), first), None);
        groups.close(Logical(999 * GROUP_BYTES));
        assert_eq!(take(&mut groups, 1), []);
        groups.unreserve(Logical(5 * GROUP_BYTES), BLOCK_BYTES);
        assert_eq!(take(&mut groups, 2), [5]);
        groups.unreserve(Logical(6 * GROUP_BYTES), BLOCK_BYTES);
        groups.remove(Logical(6 * GROUP_BYTES));
        assert_eq!(take(&mut groups, 1), []);
    }
}
