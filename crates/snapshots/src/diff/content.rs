//! The ranges of two files in which the extents differ, cut into parts that are compared.

use vlinder_data::{Content, ContentSource, Extent, StoredRun, extents_in_tree};
use vlinder_extent_state::ByteRange;
use vlinder_forest::SubvolumeTree;
use vlinder_format::file_extent::CompressionId;
use vlinder_format::inode::{InodeFlags, InodeItem};
use vlinder_format::{Logical, ObjectId};

use super::parts::{Part, PartBytes, Parts, StoredForm};
use super::{ContentFault, DiffError};

/// Extents of a file that are held at once.
const MAX_EXTENTS: usize = 4096;
/// Bytes of one part. A longer run of an extent becomes several.
const MAX_PART_BYTES: u64 = 1 << 20;
/// No compressed extent has more bytes, on disk or decompressed; what claims more is damaged.
const MAX_COMPRESSED_BYTES: u64 = 128 << 10;
/// A range that differs is looked at when it has grown so long.
const MAX_PENDING_BYTES: u64 = 64 << 20;

/// A regular file in one of the states.
pub(super) struct FileSide<'t, 'a> {
    pub tree: &'t SubvolumeTree<'a>,
    pub inode: ObjectId,
    has_checksums: bool,
}

impl<'t, 'a> FileSide<'t, 'a> {
    pub fn new(tree: &'t SubvolumeTree<'a>, inode: ObjectId, item: &InodeItem) -> Self {
        Self { tree, inode, has_checksums: !item.flags.has(InodeFlags::NODATASUM) }
    }

    fn error(&self, offset: u64, fault: ContentFault) -> DiffError {
        DiffError::Content { subvolume: self.tree.root().id(), inode: self.inode, offset, fault }
    }

    /// What a part of an extent is made of; none where it reads as zeros.
    fn bytes(
        &self,
        extent: &Extent,
        part: ByteRange,
        sector_bytes: u64,
    ) -> Result<Option<PartBytes>, DiffError> {
        let skip = part.start().saturating_sub(extent.offset);
        let on_disk = match &extent.content {
            Content::Inline(stored) => {
                let form = match extent.compression {
                    CompressionId::NONE => StoredForm::Plain { skip },
                    compression => {
                        self.judge_length(extent.ram_bytes, part.start())?;
                        StoredForm::Compressed { compression, decompressed_bytes: extent.ram_bytes, skip }
                    }
                };
                return Ok(Some(PartBytes::Item { stored: stored.clone(), form }));
            }
            Content::Regular(on_disk) if !on_disk.is_hole() => on_disk,
            Content::Regular(_) | Content::Preallocated(_) => return Ok(None),
        };
        let has_checksums = self.has_checksums;
        let skip = on_disk.offset_bytes.saturating_add(skip);
        if extent.compression == CompressionId::NONE {
            let address = on_disk.address.0.saturating_add(skip);
            let skip = address % sector_bytes;
            let (start, length) = (Logical(address - skip), part.length_bytes().saturating_add(skip));
            let run = StoredRun { start, length, has_checksums };
            return Ok(Some(PartBytes::Disk { run, form: StoredForm::Plain { skip } }));
        }
        self.judge_length(on_disk.disk_bytes.max(extent.ram_bytes), part.start())?;
        let run = StoredRun { start: on_disk.address, length: on_disk.disk_bytes, has_checksums };
        let decompressed_bytes = extent.ram_bytes;
        let form = StoredForm::Compressed { compression: extent.compression, decompressed_bytes, skip };
        Ok(Some(PartBytes::Disk { run, form }))
    }

    fn judge_length(&self, bytes: u64, offset: u64) -> Result<(), DiffError> {
        if bytes > MAX_COMPRESSED_BYTES {
            return Err(self.error(offset, ContentFault::CompressedTooLong { bytes }));
        }
        Ok(())
    }
}

/// Where the items of one file differ, as far as they have come: in the order of their offsets.
#[derive(Default)]
pub(super) struct PendingRange {
    pending: Option<ByteRange>,
}

impl PendingRange {
    /// Takes in a range. Gives one that is to be compared: nothing before its end will come.
    pub fn note(&mut self, range: ByteRange) -> Option<ByteRange> {
        let Some(pending) = self.pending.take() else {
            self.pending = Some(range);
            return None;
        };
        if range.start() <= pending.end() && pending.length_bytes() < MAX_PENDING_BYTES {
            self.pending = ByteRange::new(pending.start(), pending.end().max(range.end()));
            return None;
        }
        // What came may reach into this range.
        let done = ByteRange::new(pending.start(), pending.end().min(range.start()));
        self.pending = ByteRange::new(range.start(), range.end().max(pending.end()));
        done
    }

    /// What is left.
    pub fn take(&mut self) -> Option<ByteRange> {
        self.pending.take()
    }
}

/// Compares a range of two files, and marks the sectors in which bytes differ. The range ends where the
/// shorter file does.
pub(super) fn compare_range(
    source: &ContentSource<'_>,
    (old, new): (&FileSide<'_, '_>, &FileSide<'_, '_>),
    range: ByteRange,
    parts: &mut Parts<'_, '_>,
) -> Result<(), DiffError> {
    let sector_bytes = u64::from(source.sector_bytes);
    let mut rest = range;
    while !rest.is_empty() {
        let before = extents_in_tree(old.tree, old.inode, rest, sector_bytes, MAX_EXTENTS)?;
        let after = extents_in_tree(new.tree, new.inode, rest, sector_bytes, MAX_EXTENTS)?;
        let known_to = known_to(&before, rest, sector_bytes).min(known_to(&after, rest, sector_bytes));
        let known = ByteRange::new(rest.start(), known_to).unwrap_or_default();
        let (mut before, mut after) =
            (ExtentWalk::new(&before, sector_bytes), ExtentWalk::new(&after, sector_bytes));
        let mut at = known.start();
        while at < known.end() {
            let (is, is_to) = before.at(at, known.end());
            let (becomes, becomes_to) = after.at(at, known.end());
            let end = is_to.min(becomes_to);
            if !is_same(is, becomes) {
                cut((old, is), (new, becomes), (at, end), sector_bytes, parts)?;
            }
            at = end;
        }
        rest = ByteRange::new(known_to, range.end()).unwrap_or_default();
    }
    Ok(())
}

/// Gives parts of a run in which neither side changes its extent.
fn cut(
    (old, is): (&FileSide<'_, '_>, Option<&Extent>),
    (new, becomes): (&FileSide<'_, '_>, Option<&Extent>),
    (start, end): (u64, u64),
    sector_bytes: u64,
    parts: &mut Parts<'_, '_>,
) -> Result<(), DiffError> {
    let mut at = start;
    while at < end {
        let part = ByteRange::new(at, end.min(at.saturating_add(MAX_PART_BYTES))).unwrap_or_default();
        let old_bytes = is.map(|extent| old.bytes(extent, part, sector_bytes)).transpose()?.flatten();
        let new_bytes = becomes.map(|extent| new.bytes(extent, part, sector_bytes)).transpose()?.flatten();
        if old_bytes.is_none() && new_bytes.is_none() {
            // Zeros in both, however long.
            return Ok(());
        }
        parts.add(Part { range: part, old: old_bytes, new: new_bytes })?;
        at = part.end();
    }
    Ok(())
}

/// Up to where a list of extents is whole.
fn known_to(extents: &[Extent], range: ByteRange, sector_bytes: u64) -> u64 {
    match extents.last() {
        // The list has extents that overlap the range, so this is behind its start.
        Some(last) if extents.len() >= MAX_EXTENTS => last.file_range(sector_bytes).end().min(range.end()),
        _ => range.end(),
    }
}

/// Extents, looked at in the order of their offsets.
struct ExtentWalk<'e> {
    extents: std::iter::Peekable<std::slice::Iter<'e, Extent>>,
    sector_bytes: u64,
}

impl<'e> ExtentWalk<'e> {
    fn new(extents: &'e [Extent], sector_bytes: u64) -> Self {
        Self { extents: extents.iter().peekable(), sector_bytes }
    }

    /// The extent at an offset, which only grows; none for a hole. With the end of either.
    fn at(&mut self, at: u64, limit: u64) -> (Option<&'e Extent>, u64) {
        while let Some(extent) = self.extents.peek() {
            let range = extent.file_range(self.sector_bytes);
            if range.start() > at {
                return (None, range.start().min(limit));
            }
            if range.end() > at {
                return (Some(extent), range.end().min(limit));
            }
            self.extents.next();
        }
        (None, limit)
    }
}

/// Whether two runs show the same bytes wherever both are: the same extent, at the same distance. Extents of
/// both states are allocated, so an address names one extent.
fn is_same(old: Option<&Extent>, new: Option<&Extent>) -> bool {
    let (Some(old), Some(new)) = (old, new) else { return old.is_none() && new.is_none() };
    let is_same_form =
        (old.compression, old.ram_bytes, old.generation) == (new.compression, new.ram_bytes, new.generation);
    match (&old.content, &new.content) {
        (Content::Inline(is), Content::Inline(becomes)) => {
            is == becomes && (old.compression, old.ram_bytes) == (new.compression, new.ram_bytes)
        }
        (Content::Regular(_), Content::Regular(_)) => is_same_form && old.reference() == new.reference(),
        (Content::Preallocated(_), Content::Preallocated(_)) => true,
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn what_is_given_is_what_came(steps in prop::collection::vec((0..6_u64, 1..9_u64), 1..40)) {
            let mut ranges = Vec::new();
            let mut start = 0;
            for (step, length) in steps {
                start += step << 24;
                ranges.push(ByteRange::new(start, start + (length << 24)).unwrap());
            }
            let mut pending = PendingRange::default();
            let mut given: Vec<ByteRange> =
                ranges.iter().filter_map(|range| pending.note(*range)).collect();
            given.extend(pending.take());
            prop_assert!(given.is_sorted_by(|one, next| one.end() <= next.start()), "{given:?}");
            for at in (0..start + (10 << 24)).step_by(1 << 24) {
                let has = |ranges: &[ByteRange]| ranges.iter().any(|range| range.start() <= at && at < range.end());
                prop_assert_eq!(has(&ranges), has(&given), "{} of {:?}: {:?}", at, &ranges, &given);
            }
        }
    }

    #[test]
    fn ranges_are_joined_and_never_given_twice() {
        let range = |start, end| ByteRange::new(start, end).unwrap();
        let mut pending = PendingRange::default();
        assert_eq!(pending.note(range(0, 4096)), None);
        assert_eq!(pending.note(range(0, 8192)), None);
        assert_eq!(pending.note(range(8192, 12288)), None);
        assert_eq!(pending.note(range(20480, 24576)), Some(range(0, 12288)));
        assert_eq!(pending.take(), Some(range(20480, 24576)));
        // A long one, of which a part is beneath what follows.
        assert_eq!(pending.note(range(0, 1 << 40)), None);
        assert_eq!(pending.note(range(4096, 8192)), Some(range(0, 4096)));
        assert_eq!(pending.take(), Some(range(4096, 1 << 40)));
        assert_eq!(pending.take(), None);
    }
}
