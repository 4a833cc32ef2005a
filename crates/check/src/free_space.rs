//! The free-space tree against what the extents leave.

use std::collections::BTreeMap;

use vlinder_format::free_space::{FreeSpaceInfo, bitmap_runs};
use vlinder_format::{ItemType, Logical, Place, RootId};

use crate::chunks::Layout;
use crate::context::{Context, at};
use crate::data::Ranges;
use crate::finding::FindingKind;
use crate::walk::{Item, ItemVisitor};

/// What extents take, by block group.
#[derive(Default)]
pub(crate) struct Used(BTreeMap<Logical, Ranges>);

impl Used {
    /// Adds an extent, behind those before.
    pub(crate) fn add(&mut self, group: Logical, start: u64, end: u64) {
        self.0.entry(group).or_default().add(start, end);
    }

    /// How many bytes of a range within one group are taken.
    pub(crate) fn bytes_in(&self, start: u64, end: u64) -> u64 {
        let group = self.0.range(..=Logical(start)).next_back();
        group.map_or(0, |(_, ranges)| ranges.covered(start, end))
    }
}

/// A group's record.
struct Record {
    info: FreeSpaceInfo,
    length: u64,
    free: Ranges,
    /// Ranges as they are recorded, neighbouring ones in different bitmaps as one.
    count: u64,
    place: Place,
}

/// What the free-space tree says.
#[derive(Default)]
pub(crate) struct FreeSpaceTree {
    records: BTreeMap<Logical, Record>,
    /// The group whose record is being read.
    current: Option<Logical>,
}

impl FreeSpaceTree {
    fn add_range(&mut self, context: &mut Context<'_>, item: &Item<'_>) {
        let (start, length) = (item.key.objectid.0, item.key.offset);
        let current = self.current.and_then(|group| Some((group, self.records.get_mut(&group)?)));
        let Some((group, record)) = current else {
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
            record.free.add(start, end);
            record.count = record.count.saturating_add(1);
            return;
        }
        let sector = u64::from(context.judge.rules.sector_size.max(1));
        for (first, sectors) in bitmap_runs(item.data, length.checked_div(sector).unwrap_or(0)) {
            let from = start.saturating_add(first.saturating_mul(sector));
            let to = from.saturating_add(sectors.saturating_mul(sector));
            record.free.add(from, to);
        }
        record.count = u64::try_from(record.free.iter().count()).unwrap_or(u64::MAX);
    }

    /// Compares with what the extents take.
    pub(crate) fn judge(&self, context: &mut Context<'_>, layout: &Layout, used: &Used) {
        let empty = Ranges::default();
        for (group, found) in &layout.groups {
            let place = at(RootId::FREE_SPACE_TREE, FreeSpaceInfo::key(*group, found.length));
            let Some(record) = self.records.get(group).filter(|record| record.length == found.length) else {
                context.find(FindingKind::FreeSpaceGroup { group: *group }, place);
                continue;
            };
            let taken = used.0.get(group).unwrap_or(&empty);
            let holes = superblock_holes(context, *group);
            let end = group.0.saturating_add(found.length);
            if let Some((logical, called_free)) = first_difference(&record.free, taken, &holes, group.0, end)
            {
                let logical = Logical(logical);
                context.find(FindingKind::FreeSpace { group: *group, logical, called_free }, record.place);
            } else if u64::from(record.info.extent_count) != record.count {
                let found = u64::from(record.info.extent_count);
                let kind = FindingKind::FreeSpaceCount { group: *group, found, expected: record.count };
                context.find(kind, record.place);
            }
        }
        for (group, record) in &self.records {
            if layout.groups.contains_key(group) {
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
    fn item(&mut self, context: &mut Context<'_>, item: &Item<'_>) {
        match item.key.item_type {
            ItemType::FREE_SPACE_INFO => {
                let group = Logical(item.key.objectid.0);
                self.current = Some(group);
                if let Ok(info) = FreeSpaceInfo::decode(item.data) {
                    let (length, free) = (item.key.offset, Ranges::default());
                    let record = Record { info, length, free, count: 0, place: item.place() };
                    self.records.insert(group, record);
                }
            }
            ItemType::FREE_SPACE_EXTENT | ItemType::FREE_SPACE_BITMAP => self.add_range(context, item),
            _ => {}
        }
    }
}

/// What lies under superblock copies in a chunk: Linux calls it free, and never uses it.
fn superblock_holes(context: &Context<'_>, group: Logical) -> Ranges {
    let mut holes = Ranges::default();
    if let Some(chunk) = context.judge.volume.chunks().get(group) {
        for hole in chunk.superblock_ranges() {
            holes.add(hole.start.0, hole.end.0);
        }
    }
    holes
}

/// The first byte that is called free and is taken, or the other way round; and what it is called.
fn first_difference(
    free: &Ranges,
    taken: &Ranges,
    holes: &Ranges,
    start: u64,
    end: u64,
) -> Option<(u64, bool)> {
    // What is not a hole is either free or taken.
    let mut edges: Vec<u64> = [free, taken, holes]
        .into_iter()
        .flat_map(|ranges| ranges.iter().flat_map(|(from, to)| [from, to]))
        .chain([start, end])
        .filter(|edge| (start..=end).contains(edge))
        .collect();
    edges.sort_unstable();
    edges.dedup();
    let mut cursors = [free, taken, holes].map(|ranges| ranges.iter().peekable());
    for (from, to) in edges.iter().zip(edges.iter().skip(1)) {
        let mut is_in = cursors.iter_mut().map(|cursor| {
            while cursor.next_if(|(_, range_end)| range_end <= from).is_some() {}
            cursor.peek().is_some_and(|(range_start, range_end)| range_start <= from && range_end >= to)
        });
        let (is_free, is_taken, is_hole) =
            (is_in.next().unwrap_or(false), is_in.next().unwrap_or(false), is_in.next().unwrap_or(false));
        if is_free == is_taken && !is_hole {
            return Some((*from, is_free));
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ranges(list: &[(u64, u64)]) -> Ranges {
        let mut ranges = Ranges::default();
        for (start, end) in list {
            ranges.add(*start, *end);
        }
        ranges
    }

    #[test]
    fn free_and_taken_must_complete_each_other() {
        let taken = ranges(&[(10, 20), (30, 40)]);
        let holes = ranges(&[(20, 25)]);
        let difference = |free: &[(u64, u64)]| first_difference(&ranges(free), &taken, &holes, 0, 50);
        assert_eq!(difference(&[(0, 10), (25, 30), (40, 50)]), None);
        assert_eq!(difference(&[(0, 10), (20, 30), (40, 50)]), None);
        assert_eq!(difference(&[(0, 10), (25, 30)]), Some((40, false)));
        assert_eq!(difference(&[(0, 12), (25, 30), (40, 50)]), Some((10, true)));
    }
}
