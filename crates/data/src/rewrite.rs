//! What a change of a file's runs means for its EXTENT_DATA items, the references of extents and the inode's
//! count of bytes: worked out on a list of items, without any I/O.

use std::collections::BTreeMap;

use vlinder_extent_state::ByteRange;
use vlinder_format::Generation;

use crate::extent::{Extent, StoredExtent};

/// Part of an inline extent was to be dropped: it has no parts, so its bytes must be written elsewhere first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct InlineHasNoParts;

/// A change of the references that an inode holds of an extent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReferenceChange {
    /// The extent, whole.
    pub extent: StoredExtent,
    /// File offset of the extent's first byte, wrapping.
    pub offset: u64,
    /// How many references come (or, if negative, go).
    pub change: i64,
}

/// What has to be done to the tree and the inode.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct ItemChanges {
    /// Items in key order: their data, or none where the item goes.
    pub items: Vec<(u64, Option<Vec<u8>>)>,
    /// References that change: those that come before those that go, so that none is lost in between.
    pub references: Vec<ReferenceChange>,
    /// Change of the inode's allocated bytes.
    pub allocated_bytes: i64,
    /// The parts of the file that lie elsewhere now, or in another way: what an fsync has to log.
    pub touched: Vec<ByteRange>,
}

/// The items of a part of a file before and after changes of its runs.
#[derive(Debug)]
pub struct Rewrite {
    sector_size: u64,
    before: BTreeMap<u64, Extent>,
    after: BTreeMap<u64, Extent>,
}

impl Rewrite {
    /// Starts from the items as they are: all that overlap what will be changed, and the neighbours that may
    /// be joined.
    pub fn new(sector_size: u64, items: impl IntoIterator<Item = Extent>) -> Self {
        let before: BTreeMap<u64, Extent> = items.into_iter().map(|item| (item.offset, item)).collect();
        Self { sector_size, after: before.clone(), before }
    }

    /// The runs that have bytes of the range, whole.
    pub(crate) fn overlapping(&self, range: ByteRange) -> Vec<Extent> {
        let before = self.after.range(..range.start()).next_back().map(|(_, extent)| extent);
        let inside = self.after.range(range.start()..range.end()).map(|(_, extent)| extent);
        before
            .into_iter()
            .chain(inside)
            .filter(|extent| extent.file_range(self.sector_size).overlaps(range))
            .cloned()
            .collect()
    }

    /// The parts of the range that no item speaks for.
    pub(crate) fn gaps(&self, range: ByteRange) -> Vec<ByteRange> {
        let mut at = range.start();
        let mut gaps = Vec::new();
        for extent in self.overlapping(range) {
            let run = extent.file_range(self.sector_size);
            gaps.extend(ByteRange::new(at, run.start()).filter(|gap| !gap.is_empty()));
            at = at.max(run.end());
        }
        gaps.extend(ByteRange::new(at, range.end()).filter(|gap| !gap.is_empty()));
        gaps
    }

    /// Takes the bytes of the range, whole sectors, out of every run.
    ///
    /// # Errors
    /// An inline extent of which only a part lies in the range; nothing is changed then.
    pub fn drop_range(&mut self, range: ByteRange) -> Result<(), InlineHasNoParts> {
        let overlapping = self.overlapping(range);
        let inside = |extent: &Extent| {
            let run = extent.file_range(self.sector_size);
            run.start() >= range.start() && run.end() <= range.end()
        };
        if overlapping.iter().any(|extent| extent.range().is_none() && !inside(extent)) {
            return Err(InlineHasNoParts);
        }
        for extent in overlapping {
            self.after.remove(&extent.offset);
            let run = extent.file_range(self.sector_size);
            let left = ByteRange::new(run.start(), range.start()).and_then(|left| extent.part(left));
            let right = ByteRange::new(range.end(), run.end()).and_then(|right| extent.part(right));
            for part in left.into_iter().chain(right) {
                self.after.insert(part.offset, part);
            }
        }
        Ok(())
    }

    /// Puts a run in; nothing may be in its place any more.
    pub fn insert(&mut self, extent: Extent) {
        debug_assert!(self.overlapping(extent.file_range(self.sector_size)).is_empty(), "{extent:?}");
        self.after.insert(extent.offset, extent);
    }

    /// Drops the range and puts a run in its place.
    ///
    /// # Errors
    /// As [`Self::drop_range`].
    pub(crate) fn replace(&mut self, extent: Extent) -> Result<(), InlineHasNoParts> {
        self.drop_range(extent.file_range(self.sector_size))?;
        self.insert(extent);
        Ok(())
    }

    /// Puts hole items where the range has none.
    pub fn fill_holes(&mut self, range: ByteRange, generation: Generation) {
        for gap in self.gaps(range) {
            self.insert(Extent::hole(gap, generation));
        }
    }

    /// Makes the preallocated runs of the range regular: their bytes have been written in place.
    pub(crate) fn mark_written(&mut self, range: ByteRange, generation: Generation) {
        for extent in self.overlapping(range) {
            let Some(middle) = extent.part(range).filter(Extent::is_preallocated) else { continue };
            let cut = middle.file_range(self.sector_size);
            if self.drop_range(cut).is_ok() {
                self.insert(middle.written(generation));
            }
        }
    }

    /// Whether a part of the range is preallocated space that the tree's snapshot of `last_snapshot` may
    /// share.
    pub(crate) fn shares_preallocated(&self, range: ByteRange, last_snapshot: Generation) -> bool {
        let overlapping = self.overlapping(range);
        overlapping.iter().any(|extent| extent.is_preallocated() && extent.generation <= last_snapshot)
    }

    /// Joins neighbours that are parts of one extent in a row, or holes, where one of them was changed.
    pub(crate) fn join_neighbours(&mut self) {
        let mut joined: BTreeMap<u64, Extent> = BTreeMap::new();
        let mut last: Option<Extent> = None;
        for (offset, extent) in std::mem::take(&mut self.after) {
            let is_new = self.before.get(&offset) != Some(&extent);
            let whole = last.as_ref().and_then(|last| {
                let last_is_new = self.before.get(&last.offset) != Some(last);
                if is_new || last_is_new { last.joined(&extent) } else { None }
            });
            match whole {
                Some(whole) => last = Some(whole),
                None => joined.extend(last.replace(extent).map(|last| (last.offset, last))),
            }
        }
        joined.extend(last.map(|last| (last.offset, last)));
        self.after = joined;
    }

    /// The difference between the items before and after.
    pub fn finish(self) -> ItemChanges {
        let Self { before, after, sector_size } = self;
        let (old, new) = (differing(&before, &after), differing(&after, &before));
        let stays = |extent: &Extent| new.binary_search_by_key(&extent.offset, |new| new.offset).is_ok();
        let gone = old.iter().filter(|extent| !stays(extent)).map(|extent| (extent.offset, None));
        let mut items: Vec<(u64, Option<Vec<u8>>)> = gone.collect();
        items.extend(new.iter().map(|extent| (extent.offset, Some(extent.encode()))));
        items.sort_unstable_by_key(|(offset, _)| *offset);
        let allocated_bytes = counted_bytes(&new).saturating_sub(counted_bytes(&old));
        let touched = touched(sector_size, &old, &new);
        ItemChanges { items, references: reference_changes(&old, &new), allocated_bytes, touched }
    }
}

/// Those runs that the others do not have, just so.
fn differing<'a>(these: &'a BTreeMap<u64, Extent>, others: &BTreeMap<u64, Extent>) -> Vec<&'a Extent> {
    let mut others = others.iter().peekable();
    let differs = |(offset, extent): &(&u64, &Extent)| {
        while others.next_if(|(other, _)| other < offset).is_some() {}
        others.peek() != Some(&(*offset, *extent))
    };
    these.iter().filter(differs).map(|(_, extent)| extent).collect()
}

fn counted_bytes(extents: &[&Extent]) -> i64 {
    let bytes = extents.iter().fold(0_u64, |sum, extent| sum.saturating_add(extent.counted_bytes()));
    i64::try_from(bytes).unwrap_or(i64::MAX)
}

/// Those that come before those that go; of each kind by extent.
fn reference_changes(old: &[&Extent], new: &[&Extent]) -> Vec<ReferenceChange> {
    let mut all: Vec<((StoredExtent, u64), i64)> = Vec::new();
    for (extents, sign) in [(old, -1), (new, 1)] {
        all.extend(extents.iter().filter_map(|extent| Some((extent.reference()?, sign))));
    }
    all.sort_unstable();
    let sums = all.chunk_by(|left, right| left.0 == right.0).filter_map(|equal| {
        let ((extent, offset), _) = *equal.first()?;
        Some(ReferenceChange { extent, offset, change: equal.iter().map(|(_, change)| change).sum() })
    });
    let mut references: Vec<ReferenceChange> = sums.filter(|reference| reference.change != 0).collect();
    references.sort_by_key(|reference| reference.change < 0);
    references
}

/// The parts of a file that its old and its new runs show differently; that an item was only split or joined
/// is no difference.
fn touched(sector_size: u64, old: &[&Extent], new: &[&Extent]) -> Vec<ByteRange> {
    let mut parts = Vec::new();
    for (these, others) in [(old, new), (new, old)] {
        for extent in these {
            let run = extent.file_range(sector_size);
            let first = others.partition_point(|other| other.file_range(sector_size).end() <= run.start());
            let mut at = run.start();
            for other in others.iter().skip(first).take_while(|other| other.offset < run.end()) {
                let same = other.file_range(sector_size).intersection(run);
                let Some(same) = same.filter(|_| extent.shows_the_same(other)) else { continue };
                parts.extend(ByteRange::new(at, same.start()).filter(|part| !part.is_empty()));
                at = same.end();
            }
            parts.extend(ByteRange::new(at, run.end()).filter(|part| !part.is_empty()));
        }
    }
    parts
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use vlinder_format::Logical;
    use vlinder_format::file_extent::{CompressionId, ExtentRange, FileExtent};

    use crate::extent::Content;

    const SECTOR: u64 = 4096;
    const SECTORS: u64 = 48;
    const NOW: Generation = Generation(9);

    /// What a sector of the file shows: nothing, or the sector of an extent, written or preallocated.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    enum Shown {
        Nothing,
        Hole,
        Inline,
        Written(u64, u64),
        Preallocated(u64, u64),
    }

    fn sectors(start: u64, length: u64) -> ByteRange {
        ByteRange::with_length(start * SECTOR, length * SECTOR).unwrap()
    }

    fn regular(start: u64, length: u64, address: u64, skipped: u64, whole: u64) -> Extent {
        let range = ExtentRange {
            address: Logical(address),
            disk_bytes: whole * SECTOR,
            offset_bytes: skipped * SECTOR,
            file_bytes: length * SECTOR,
        };
        let item = FileExtent::whole(Logical(address), whole * SECTOR, Generation(3)).with_range(range);
        Extent::new(start * SECTOR, &item)
    }

    fn preallocated(start: u64, length: u64, address: u64) -> Extent {
        Extent::new(
            start * SECTOR,
            &FileExtent::preallocated(Logical(address), length * SECTOR, Generation(3)),
        )
    }

    fn show(items: &BTreeMap<u64, Extent>) -> Vec<Shown> {
        let mut shown = vec![Shown::Nothing; SECTORS as usize];
        for extent in items.values() {
            let run = extent.file_range(SECTOR);
            for sector in run.start() / SECTOR..run.end() / SECTOR {
                assert_eq!(shown[sector as usize], Shown::Nothing, "two runs at sector {sector}");
                let place = |range: &ExtentRange| {
                    (range.address.0, (range.offset_bytes + sector * SECTOR - extent.offset) / SECTOR)
                };
                shown[sector as usize] = match &extent.content {
                    Content::Inline(_) => Shown::Inline,
                    Content::Regular(range) if range.is_hole() => Shown::Hole,
                    Content::Regular(range) => Shown::Written(place(range).0, place(range).1),
                    Content::Preallocated(range) => Shown::Preallocated(place(range).0, place(range).1),
                };
            }
        }
        shown
    }

    #[derive(Clone, Debug)]
    enum Step {
        Drop(u64, u64),
        Write(u64, u64),
        Preallocate(u64, u64),
        MarkWritten(u64, u64),
        FillHoles(u64, u64),
        Join,
        /// The changes so far are made, and the next ones start from there.
        Commit,
    }

    fn steps() -> impl Strategy<Value = Vec<Step>> {
        let range = (0..SECTORS - 8, 1_u64..8);
        let step = prop_oneof![
            2 => range.clone().prop_map(|(start, length)| Step::Drop(start, length)),
            4 => range.clone().prop_map(|(start, length)| Step::Write(start, length)),
            2 => range.clone().prop_map(|(start, length)| Step::Preallocate(start, length)),
            2 => range.clone().prop_map(|(start, length)| Step::MarkWritten(start, length)),
            1 => range.prop_map(|(start, length)| Step::FillHoles(start, length)),
            1 => Just(Step::Join),
            1 => Just(Step::Commit),
        ];
        prop::collection::vec(step, 1..40)
    }

    /// The tree's items and the references that the extent tree would count.
    #[derive(Default)]
    struct Disk {
        items: BTreeMap<u64, Extent>,
        references: BTreeMap<(StoredExtent, u64), i64>,
        allocated_bytes: i64,
    }

    impl Disk {
        fn make(&mut self, changes: ItemChanges) {
            let mut last_key = None;
            for (offset, data) in changes.items {
                assert!(last_key < Some(offset), "keys ascend");
                last_key = Some(offset);
                match data {
                    Some(data) => {
                        self.items.insert(offset, Extent::decode(offset, &data).unwrap());
                    }
                    None => assert!(self.items.remove(&offset).is_some(), "removed what is not there"),
                }
            }
            let mut went = false;
            for ReferenceChange { extent, offset, change } in changes.references {
                assert!(change < 0 || !went, "references that come are first");
                went |= change < 0;
                let count = self.references.entry((extent, offset)).or_default();
                *count += change;
                assert!(*count >= 0);
            }
            self.references.retain(|_, count| *count != 0);
            self.allocated_bytes += changes.allocated_bytes;
        }

        fn check(&self) {
            let mut references: BTreeMap<(StoredExtent, u64), i64> = BTreeMap::new();
            for reference in self.items.values().filter_map(Extent::reference) {
                *references.entry(reference).or_default() += 1;
            }
            assert_eq!(references, self.references);
            let bytes: u64 = self.items.values().map(Extent::counted_bytes).sum();
            assert_eq!(i64::try_from(bytes), Ok(self.allocated_bytes));
        }
    }

    proptest! {
        #[test]
        fn runs_references_and_bytes_follow_a_map_of_sectors(steps in steps()) {
            let mut disk = Disk::default();
            let mut rewrite = Rewrite::new(SECTOR, []);
            let mut model = vec![Shown::Nothing; SECTORS as usize];
            for (number, step) in steps.into_iter().enumerate() {
                let address = (number as u64 + 1) << 20;
                match step {
                    Step::Drop(start, length) => {
                        rewrite.drop_range(sectors(start, length)).unwrap();
                        model[start as usize..(start + length) as usize].fill(Shown::Nothing);
                    }
                    Step::Write(start, length) => {
                        // A part of a larger extent, as a clone makes it.
                        rewrite.replace(regular(start, length, address, 2, length + 3)).unwrap();
                        for at in 0..length {
                            model[(start + at) as usize] = Shown::Written(address, at + 2);
                        }
                    }
                    Step::Preallocate(start, length) => {
                        rewrite.replace(preallocated(start, length, address)).unwrap();
                        for at in 0..length {
                            model[(start + at) as usize] = Shown::Preallocated(address, at);
                        }
                    }
                    Step::MarkWritten(start, length) => {
                        rewrite.mark_written(sectors(start, length), NOW);
                        for sector in &mut model[start as usize..(start + length) as usize] {
                            if let Shown::Preallocated(address, at) = *sector {
                                *sector = Shown::Written(address, at);
                            }
                        }
                    }
                    Step::FillHoles(start, length) => {
                        rewrite.fill_holes(sectors(start, length), NOW);
                        for sector in &mut model[start as usize..(start + length) as usize] {
                            if *sector == Shown::Nothing {
                                *sector = Shown::Hole;
                            }
                        }
                    }
                    Step::Join => rewrite.join_neighbours(),
                    Step::Commit => {
                        disk.make(rewrite.finish());
                        disk.check();
                        rewrite = Rewrite::new(SECTOR, disk.items.values().cloned());
                    }
                }
                prop_assert_eq!(&show(&rewrite.after), &model);
            }
            disk.make(rewrite.finish());
            disk.check();
            prop_assert_eq!(&show(&disk.items), &model);
        }
    }

    #[test]
    fn a_hole_in_the_middle_keeps_two_references_and_the_ends_one() {
        let whole = regular(0, 10, 1 << 20, 0, 10);
        let mut rewrite = Rewrite::new(SECTOR, [whole.clone()]);
        rewrite.drop_range(sectors(3, 2)).unwrap();
        let changes = rewrite.finish();
        let extent = StoredExtent { address: Logical(1 << 20), bytes: 10 * SECTOR };
        assert_eq!(changes.references, [ReferenceChange { extent, offset: 0, change: 1 }]);
        assert_eq!(changes.allocated_bytes, -2 * SECTOR as i64);
        assert_eq!(changes.items.len(), 2);
        for range in [sectors(0, 4), sectors(6, 4)] {
            let mut rewrite = Rewrite::new(SECTOR, [whole.clone()]);
            rewrite.drop_range(range).unwrap();
            assert_eq!(rewrite.finish().references, []);
        }
    }

    #[test]
    fn filling_preallocated_space_in_bits_ends_with_one_item() {
        let mut items = vec![preallocated(4, 8, 1 << 20)];
        let mut count = 1;
        for sector in [6, 4, 5, 11, 7, 10, 8, 9] {
            let mut rewrite = Rewrite::new(SECTOR, items.iter().cloned());
            rewrite.mark_written(sectors(sector, 1), NOW);
            rewrite.join_neighbours();
            items = rewrite.after.values().cloned().collect();
            count += rewrite.finish().references.iter().map(|reference| reference.change).sum::<i64>();
            assert_eq!(count, items.len() as i64);
        }
        assert_eq!(items.len(), 1);
        assert!(!items[0].is_preallocated());
        assert_eq!(items[0].file_range(SECTOR), sectors(4, 8));
    }

    #[test]
    fn an_inline_extent_goes_whole_or_not_at_all() {
        let inline = Extent::new(0, &FileExtent::inline(&[7; 100], NOW));
        let mut rewrite = Rewrite::new(SECTOR, [inline.clone()]);
        rewrite.replace(regular(0, 2, 1 << 20, 0, 2)).unwrap();
        assert_eq!(rewrite.finish().allocated_bytes, 2 * SECTOR as i64 - 100);
        let mut large = inline;
        large.compression = CompressionId::ZLIB;
        large.ram_bytes = 2 * SECTOR;
        let mut rewrite = Rewrite::new(SECTOR, [large]);
        assert_eq!(rewrite.drop_range(sectors(0, 1)), Err(InlineHasNoParts));
        assert_eq!(rewrite.finish(), ItemChanges::default());
    }

    #[test]
    fn a_run_that_leaves_its_extent_is_damage() {
        let good = regular(0, 4, 1 << 20, 1, 5);
        Extent::decode(0, &good.encode()).unwrap();
        for bad in [regular(0, 4, 1 << 20, 2, 5), regular(0, 0, 1 << 20, 0, 5)] {
            Extent::decode(0, &bad.encode()).unwrap_err();
        }
    }
}
