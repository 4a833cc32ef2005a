//! The free-space tree against what the extents leave.

use std::collections::{BTreeMap, BTreeSet};

use vlinder_format::free_space::{FreeSpaceInfo, bitmap_runs};
use vlinder_format::{ItemType, Logical, Place, RootId};

use crate::check_state::{CheckState, at};
use crate::chunks::Layout;
use crate::finding::FindingKind;
use crate::item::Item;
use crate::ranges::{Gathering, Ranges};
use crate::store::Store;
use crate::walk::ItemVisitor;

/// A group's record.
struct Record {
    info: FreeSpaceInfo,
    length: u64,
    /// Ranges as they are recorded, neighbouring ones in different bitmaps as one.
    count: u64,
    /// Where the last range of a bitmap ends.
    end: Option<u64>,
    place: Place,
}

/// What the free-space tree says, while it is read.
pub(crate) struct FreeSpaceTree {
    records: BTreeMap<Logical, Record>,
    free: Gathering,
    /// Groups of which something could not be used.
    faulty: BTreeSet<Logical>,
    /// The group whose record is being read.
    current: Option<Logical>,
}

/// What the free-space tree says.
pub(crate) struct FreeSpace {
    records: BTreeMap<Logical, Record>,
    free: Ranges,
    faulty: BTreeSet<Logical>,
}

impl FreeSpaceTree {
    pub(crate) fn new(context: &CheckState<'_>) -> Self {
        Self { records: BTreeMap::new(), free: context.gathering(), faulty: BTreeSet::new(), current: None }
    }

    /// All of it was read.
    pub(crate) fn finish(self) -> FreeSpace {
        FreeSpace { records: self.records, free: self.free.finish(), faulty: self.faulty }
    }

    fn add_range(&mut self, context: &mut CheckState<'_>, item: &Item<'_>) {
        let (start, length) = (item.key.objectid.0, item.key.offset);
        let current = self.current.and_then(|group| Some((group, self.records.get_mut(&group)?)));
        let Some((group, record)) = current else {
            if self.current.is_some_and(|group| self.faulty.contains(&group)) {
                return;
            }
            context.find(FindingKind::FreeSpacePlace { group: Logical(start) }, item.place());
            return;
        };
        let is_bitmap = item.key.item_type == ItemType::FREE_SPACE_BITMAP;
        let end = start.saturating_add(length);
        let is_inside = start >= group.0 && end <= group.0.saturating_add(record.length);
        if !is_inside || is_bitmap != record.info.uses_bitmaps() {
            context.find(FindingKind::FreeSpacePlace { group }, item.place());
            return;
        }
        if !is_bitmap {
            self.free.add(start, end);
            record.count = record.count.saturating_add(1);
            return;
        }
        let sector = u64::from(context.judge.rules.sector_size.max(1));
        for (first, sectors) in bitmap_runs(item.data, length.checked_div(sector).unwrap_or(0)) {
            let from = start.saturating_add(first.saturating_mul(sector));
            let to = from.saturating_add(sectors.saturating_mul(sector));
            self.free.add(from, to);
            if record.end.is_none_or(|end| end < from) {
                record.count = record.count.saturating_add(1);
            }
            record.end = Some(to);
        }
    }
}

impl FreeSpace {
    /// Compares with what the extents take.
    pub(crate) fn judge(&self, context: &mut CheckState<'_>, layout: &Layout, used: &Ranges) {
        for (group, found) in layout.groups.iter().filter(|(group, _)| !self.faulty.contains(group)) {
            let place = at(RootId::FREE_SPACE_TREE, FreeSpaceInfo::key(*group, found.length));
            let Some(record) = self.records.get(group).filter(|record| record.length == found.length) else {
                context.find(FindingKind::FreeSpaceGroup { group: *group }, place);
                continue;
            };
            let holes = superblock_holes(context, *group);
            let end = group.0.saturating_add(found.length);
            if let Some((logical, called_free)) = first_difference([&self.free, used, &holes], group.0, end) {
                let logical = Logical(logical);
                context.find(FindingKind::FreeSpace { group: *group, logical, called_free }, record.place);
            } else if u64::from(record.info.extent_count) != record.count {
                let found = u64::from(record.info.extent_count);
                let kind = FindingKind::FreeSpaceCount { group: *group, found, expected: record.count };
                context.find(kind, record.place);
            }
        }
        for (group, record) in &self.records {
            if layout.groups.contains_key(group) || layout.is_faulty_group(*group) {
                continue;
            }
            let end = Logical(group.0.saturating_add(record.length));
            let before = layout.groups.range(..end).next_back();
            let overlaps =
                before.is_some_and(|(start, found)| start.0.saturating_add(found.length) > group.0);
            let kind = if overlaps {
                FindingKind::FreeSpaceGroup { group: *group }
            } else {
                FindingKind::FreeSpaceLeftover { group: *group }
            };
            context.find(kind, record.place);
        }
    }
}

impl ItemVisitor for FreeSpaceTree {
    fn item(&mut self, context: &mut CheckState<'_>, item: &Item<'_>) {
        match item.key.item_type {
            ItemType::FREE_SPACE_INFO => {
                let group = Logical(item.key.objectid.0);
                self.current = Some(group);
                let (length, place) = (item.key.offset, item.place());
                self.records.extend(
                    FreeSpaceInfo::decode(item.data)
                        .map(|info| (group, Record { info, length, count: 0, end: None, place })),
                );
            }
            ItemType::FREE_SPACE_EXTENT | ItemType::FREE_SPACE_BITMAP => self.add_range(context, item),
            _ => {}
        }
    }

    fn faulty(&mut self, _: &mut CheckState<'_>, item: &Item<'_>) {
        if item.key.item_type == ItemType::FREE_SPACE_INFO {
            self.current = Some(Logical(item.key.objectid.0));
        }
        self.faulty.extend(self.current);
    }
}

/// What lies under superblock copies in a chunk: Linux calls it free, and never uses it.
fn superblock_holes(context: &CheckState<'_>, group: Logical) -> Ranges {
    let mut holes = Gathering::new(&Store::new(None), 0);
    if let Some(chunk) = context.judge.volume.chunks().get(group) {
        for hole in chunk.superblock_ranges() {
            holes.add(hole.start.0, hole.end.0);
        }
    }
    holes.finish()
}

/// The first byte from `start` to `end` that is both free and taken, or neither and in no hole; and whether
/// it is free.
fn first_difference([free, taken, holes]: [&Ranges; 3], start: u64, end: u64) -> Option<(u64, bool)> {
    let mut passes = [free, taken, holes].map(|ranges| ranges.from(start).peekable());
    let mut at = start;
    while at < end {
        // The same holds from here to where the next range begins or ends.
        let mut to = end;
        let [is_free, is_taken, is_hole] = passes.each_mut().map(|pass| {
            while pass.next_if(|range| range.end <= at).is_some() {}
            let range = pass.peek();
            let is_in = range.is_some_and(|range| range.start <= at);
            to = to.min(range.map_or(end, |range| if is_in { range.end } else { range.start }));
            is_in
        });
        if is_free == is_taken && !is_hole {
            return Some((at, is_free));
        }
        at = to;
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ranges(list: &[(u64, u64)]) -> Ranges {
        let mut ranges = Gathering::new(&Store::new(None), 0);
        list.iter().for_each(|(start, end)| ranges.add(*start, *end));
        ranges.finish()
    }

    #[test]
    fn free_and_taken_must_complete_each_other() {
        let taken = ranges(&[(10, 20), (30, 40)]);
        let holes = ranges(&[(20, 25)]);
        let difference = |free: &[(u64, u64)]| first_difference([&ranges(free), &taken, &holes], 0, 50);
        assert_eq!(difference(&[(0, 10), (25, 30), (40, 50)]), None);
        assert_eq!(difference(&[(0, 10), (20, 30), (40, 50)]), None);
        assert_eq!(difference(&[(0, 10), (25, 30)]), Some((40, false)));
        assert_eq!(difference(&[(0, 12), (25, 30), (40, 50)]), Some((10, true)));
    }
}
