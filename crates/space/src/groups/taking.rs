//! Taking space of block groups: which group, which of its free ranges, and which of them first.

use std::borrow::Cow;
use std::cmp::Reverse;
use std::ops::{Bound, Range};

use vlinder_format::Logical;
use vlinder_format::chunk::BlockGroupFlags;

use super::{Free, Group, Groups, Purpose, Taken, TakenPlace, list, serves};
use crate::chosen::ChosenPlaces;
use crate::free_ranges::FreeRanges;
use crate::group_range::GroupRange;

/// A group is nearly empty up to this part of it.
const NEARLY_EMPTY: u64 = 16;
/// A group has room for many blocks from this part of it on.
const ROOM_FOR_MANY: u64 = 4;

impl Groups {
    /// Takes `count` blocks of `size` bytes.
    pub fn take_blocks(
        &mut self,
        purpose: Purpose,
        count: usize,
        size: u64,
        into: &mut Vec<Logical>,
    ) -> Taken {
        let hint = self.hints[purpose as usize];
        let mut wanted = count;
        while wanted > 0
            && purpose == Purpose::Metadata
            && let Some(block) = self.chosen.next(size)
        {
            self.take_free(Logical(block), size);
            into.push(Logical(block));
            wanted -= 1;
        }
        if wanted == 0 {
            return Taken::Done;
        }
        let mut unknown = None;
        let mut loading = false;
        let first = self.groups.range(..=Logical(hint)).next_back().map_or(Logical(0), |(start, _)| *start);
        let mut last = None;
        while let Some(start) = self.next_open(purpose, first, last) {
            last = Some(start);
            let Some(group) = self.groups.get_mut(&start) else { continue };
            let available = group.available();
            self.sums.leave(group);
            match &mut group.free {
                Free::Known(free) => {
                    while wanted > 0
                        && let Some(block) = free.take_first(size, hint)
                    {
                        group.reserved += size;
                        self.hints[purpose as usize] = block;
                        self.chosen.taken(block, size);
                        into.push(Logical(block));
                        wanted -= 1;
                    }
                }
                Free::Unknown if available >= size => unknown = unknown.or(Some(group.range)),
                Free::Loading => loading = true,
                Free::Unknown => {}
            }
            self.sums.enter(group);
            list(&mut self.open, group);
            if wanted == 0 {
                return Taken::Done;
            }
        }
        self.unfinished(unknown, loading)
    }

    /// Has the next tree blocks taken from the fullest of the groups before the one that they come from,
    /// where that is nearly empty: what lies there moves by and by, and its chunk can go. What never changes
    /// lies in the first groups for the most part.
    pub fn gather_blocks(&mut self) {
        let purpose = Purpose::Metadata;
        let hint = Logical(self.hints[purpose as usize]);
        let Some((start, current)) = self.groups.range(..=hint).next_back() else { return };
        if hint.0 >= current.range.end() || current.used > current.range.length / NEARLY_EMPTY {
            return;
        }
        // What is pinned is free at the next commit.
        let has_room = |group: &&Group| {
            let most = group.range.length.saturating_sub(group.range.length / ROOM_FOR_MANY);
            !group.closed && (1..=most).contains(&group.used)
        };
        let before = self.groups.range(..start).map(|(_, group)| group);
        let before = before.filter(|group| serves(group, purpose)).filter(has_room);
        if let Some(fullest) = before.max_by_key(|group| (group.used, Reverse(group.range.start))) {
            self.hints[purpose as usize] = fullest.range.start.0;
        }
    }

    /// Takes what is known to be free.
    fn take_free(&mut self, start: Logical, length: u64) {
        self.chosen.taken(start.0, length);
        self.change(start, |group| {
            if let Free::Known(free) = &mut group.free {
                free.remove(start.0, length);
            }
            group.reserved += length;
        });
    }

    /// Takes up to `most` bytes in one piece, at least `least`; chosen places only where there are no others.
    pub fn take_data(&mut self, least: u64, most: u64) -> Result<(Logical, u64), Taken> {
        match self.take_unchosen_data(least, most) {
            Err(Taken::Chunk) if self.chosen.bytes() > 0 => {
                self.chosen.choose(Vec::new());
                self.take_unchosen_data(least, most)
            }
            other => other,
        }
    }

    /// What is free of a group for data: chosen places are not.
    fn free_for_data<'a>(chosen: &ChosenPlaces, group: &Group, free: &'a FreeRanges) -> Cow<'a, FreeRanges> {
        if chosen.bytes() == 0 || !group.flags.has(BlockGroupFlags::METADATA) {
            return Cow::Borrowed(free);
        }
        let mut rest = free.clone();
        for (start, length) in chosen.left() {
            rest.remove(start, length);
        }
        Cow::Owned(rest)
    }

    /// New tree blocks take these places first, those that are free still, in whole.
    pub fn choose_free(&mut self, places: &[Range<u64>]) {
        let is_free = |place: &&Range<u64>| {
            let group = self.groups.range(..=Logical(place.start)).next_back();
            let Some(Free::Known(free)) = group.map(|(_, group)| &group.free) else { return false };
            free.within(place.start, place.end)
                .next()
                .is_some_and(|(start, length)| start <= place.start && start + length >= place.end)
        };
        self.chosen.choose(places.iter().filter(is_free).cloned().collect());
    }

    /// Bytes of chosen places that are left.
    pub fn chosen_bytes(&self) -> u64 {
        self.chosen.bytes()
    }

    /// The longest free places for tree blocks, in whole blocks, of so many blocks in all if there are as
    /// many.
    pub fn longest_free_places(&self, blocks: u64, block_bytes: u64) -> Vec<Range<u64>> {
        let open = self.open[Purpose::Metadata as usize].iter().filter_map(|start| self.groups.get(start));
        let ranges = open.filter_map(|group| match &group.free {
            Free::Known(free) => Some(free.iter()),
            Free::Unknown | Free::Loading => None,
        });
        let mut longest: Vec<(u64, u64)> =
            ranges.flatten().map(|(start, length)| (length / block_bytes, start)).collect();
        longest.sort_unstable_by(|one, other| other.cmp(one));
        let mut wanted = blocks;
        let mut places = Vec::new();
        for (count, start) in longest {
            let count = count.min(wanted);
            wanted -= count;
            if count > 0 {
                places.push(start..start + count * block_bytes);
            }
        }
        places
    }

    fn take_unchosen_data(&mut self, least: u64, most: u64) -> Result<(Logical, u64), Taken> {
        let mut unknown = None;
        let mut loading = false;
        let mut best: Option<(u64, Logical)> = None;
        let open = self.open[Purpose::Data as usize].iter();
        for group in open.filter_map(|start| self.groups.get(start)) {
            match &group.free {
                Free::Known(free) => {
                    let largest = Self::free_for_data(&self.chosen, group, free).largest();
                    if largest >= most {
                        best = Some((largest, group.range.start));
                        break;
                    }
                    if largest >= least && best.is_none_or(|(length, _)| largest > length) {
                        best = Some((largest, group.range.start));
                    }
                }
                Free::Unknown if group.available() >= least => unknown = unknown.or(Some(group.range)),
                Free::Loading => loading = true,
                Free::Unknown => {}
            }
        }
        // A whole piece elsewhere is better than a part here.
        let whole = best.is_some_and(|(length, _)| length >= most);
        if !whole && (unknown.is_some() || loading) {
            return Err(self.unfinished(unknown, loading));
        }
        let (_, start) = best.ok_or(Taken::Chunk)?;
        let group = self.groups.get(&start);
        let place = group.and_then(|group| match &group.free {
            Free::Known(free) => Self::free_for_data(&self.chosen, group, free).best(least, most),
            Free::Unknown | Free::Loading => None,
        });
        let (start, length) = place.ok_or(Taken::Chunk)?;
        self.take_free(Logical(start), length);
        Ok((Logical(start), length))
    }

    /// Takes all bytes of a place that is known from elsewhere.
    pub fn take_place(&mut self, purpose: Purpose, start: Logical, length: u64) -> TakenPlace {
        let mut chosen = std::mem::take(&mut self.chosen);
        let taken = self.change(start, |group| {
            let fits = start.checked_add(length).is_some_and(|end| end.0 <= group.range.end());
            if length == 0 || !fits || !group.flags.has(purpose.flag()) {
                return TakenPlace::NotFree;
            }
            match &mut group.free {
                Free::Known(free) => {
                    let is_free = free
                        .within(start.0, start.0 + length)
                        .next()
                        .is_some_and(|(free, bytes)| free <= start.0 && free + bytes >= start.0 + length);
                    if !is_free {
                        return TakenPlace::NotFree;
                    }
                    free.remove(start.0, length);
                    group.reserved += length;
                    chosen.taken(start.0, length);
                    TakenPlace::Done
                }
                Free::Loading => TakenPlace::Wait,
                Free::Unknown => {
                    group.free = Free::Loading;
                    TakenPlace::Load(group.range)
                }
            }
        });
        self.chosen = chosen;
        taken.unwrap_or(TakenPlace::NotFree)
    }

    fn unfinished(&mut self, unknown: Option<GroupRange>, loading: bool) -> Taken {
        match unknown.and_then(|range| self.groups.get_mut(&range.start)) {
            Some(group) => {
                group.free = Free::Loading;
                Taken::Load(group.range)
            }
            None if loading => Taken::Wait,
            None => Taken::Chunk,
        }
    }

    /// A group of tree blocks whose free ranges are not known; the caller reads them.
    pub fn begin_loading(&mut self) -> Option<GroupRange> {
        let is_unknown = |group: &&mut Group| {
            group.flags.has(BlockGroupFlags::METADATA) && matches!(group.free, Free::Unknown)
        };
        let group = self.groups.values_mut().filter(|group| !group.closed).find(is_unknown)?;
        group.free = Free::Loading;
        Some(group.range)
    }

    /// Of the groups of a purpose of which something may be taken, the one after `last`, beginning with
    /// `first` and going round to it by address.
    pub(crate) fn next_open(
        &self,
        purpose: Purpose,
        first: Logical,
        last: Option<Logical>,
    ) -> Option<Logical> {
        let open = &self.open[purpose as usize];
        let round = |from| open.range((from, Bound::Excluded(first))).next();
        let next = match last {
            Some(last) if last < first => round(Bound::Excluded(last)),
            Some(last) => {
                let behind = open.range((Bound::Excluded(last), Bound::Unbounded)).next();
                behind.or_else(|| round(Bound::Unbounded))
            }
            None => open.range(first..).next().or_else(|| round(Bound::Unbounded)),
        };
        next.copied()
    }
}
