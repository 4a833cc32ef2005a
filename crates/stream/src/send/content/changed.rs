//! What of a file is not in both states what it was.

use vlinder_data::{Content, Extent};
use vlinder_extent_state::ByteRange;

/// What a range of the new state is, where it differs from the old one.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Changed {
    /// Bytes of the extent of this index among the new ones.
    Bytes(ByteRange, usize),
    /// A hole where bytes were.
    Zeros(ByteRange),
}

/// The parts of a range that differ, in order. `old` and `new` are the extents that overlap it. Each part
/// lies in one extent, or in a hole between two.
pub(super) fn changed_parts(
    range: ByteRange,
    old: &[Extent],
    new: &[Extent],
    sector_bytes: u64,
) -> Vec<Changed> {
    let mut parts = Vec::new();
    let mut at = range.start();
    let (mut old_passed, mut new_passed) = (0, 0);
    while at < range.end() {
        let (before, before_end) = extent_at(old, &mut old_passed, at, range.end(), sector_bytes);
        let (after, after_end) = extent_at(new, &mut new_passed, at, range.end(), sector_bytes);
        let end = before_end.min(after_end);
        let part = ByteRange::new(at, end).unwrap_or_default();
        match (before, after) {
            (Some(before), Some(after)) if shows_the_same(&old[before], &new[after]) => {}
            (_, Some(after)) => parts.push(Changed::Bytes(part, after)),
            (Some(_), None) => parts.push(Changed::Zeros(part)),
            (None, None) => {}
        }
        at = end;
    }
    parts
}

/// The extent with bytes at an offset, and up to where that holds; none in a hole. The first `passed` extents
/// end before the offset, which only grows.
fn extent_at(
    extents: &[Extent],
    passed: &mut usize,
    at: u64,
    limit: u64,
    sector_bytes: u64,
) -> (Option<usize>, u64) {
    while let Some(extent) = extents.get(*passed) {
        let range = extent.file_range(sector_bytes);
        if range.end() > at {
            let is_behind = range.start() > at;
            let index = Some(*passed).filter(|_| !is_behind && has_bytes(extent));
            return (index, if is_behind { range.start() } else { range.end() }.min(limit));
        }
        *passed += 1;
    }
    (None, limit)
}

/// Whether a run reads as anything but zeros.
pub(super) fn has_bytes(extent: &Extent) -> bool {
    match &extent.content {
        Content::Inline(_) => true,
        Content::Regular(on_disk) => !on_disk.is_hole(),
        Content::Preallocated(_) => false,
    }
}

/// Whether two runs show the same bytes wherever both are: the same extent, made by the same transaction, at
/// the same distance; or equal bytes in their items. An address alone says little: an extent that was freed
/// may have been taken again.
fn shows_the_same(old: &Extent, new: &Extent) -> bool {
    match (&old.content, &new.content) {
        (Content::Inline(old_bytes), Content::Inline(new_bytes)) => {
            old_bytes == new_bytes && (old.compression, old.ram_bytes) == (new.compression, new.ram_bytes)
        }
        (Content::Regular(_), Content::Regular(_)) => {
            old.reference() == new.reference()
                && (old.compression, old.generation) == (new.compression, new.generation)
        }
        _ => false,
    }
}
