//! What of a file is not in both states what it was.

use vlinder_data::{Content, Extent};
use vlinder_extent_state::ByteRange;

/// What a range of the new state is, where it differs from the old one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Changed {
    /// Bytes of the extent of this index among the new ones.
    Bytes(usize),
    /// A hole, where bytes were or a preallocated run.
    Hole {
        /// Whether it read as anything but zeros.
        had_bytes: bool,
    },
    /// A preallocated run, where bytes were or a hole.
    Preallocated {
        /// Of this index among the new ones.
        index: usize,
        /// Whether it read as anything but zeros.
        had_bytes: bool,
    },
}

/// What a range is in one state.
#[derive(Clone, Copy)]
enum Shown {
    Bytes(usize),
    Preallocated(usize),
    Hole,
}

/// The parts of a range that differ, in order. `old` and `new` are the extents that overlap it. Each part
/// lies in one extent, or in a hole between two. Behind `old_size`, the end of the old file, the receiver has
/// zeros, whatever the rest of the last sector holds, and what is preallocated behind that sector did not
/// travel. (A file that was cut and then grows by a clone shows bytes of an extent that did not change.)
pub(super) fn changed_parts(
    range: ByteRange,
    (old, old_size): (&[Extent], u64),
    new: &[Extent],
    sector_bytes: u64,
) -> Vec<(ByteRange, Changed)> {
    let mut parts = Vec::new();
    let mut at = range.start();
    let old_end = old_size.next_multiple_of(sector_bytes);
    let (mut old_passed, mut new_passed) = (0, 0);
    while at < range.end() {
        let (mut before, mut before_end) = extent_at(old, &mut old_passed, at, range.end(), sector_bytes);
        match before {
            Shown::Preallocated(_) if at >= old_end => before = Shown::Hole,
            Shown::Preallocated(_) => before_end = before_end.min(old_end),
            Shown::Bytes(_) if at >= old_size => before = Shown::Hole,
            Shown::Bytes(_) => before_end = before_end.min(old_size),
            Shown::Hole => {}
        }
        let (after, after_end) = extent_at(new, &mut new_passed, at, range.end(), sector_bytes);
        let end = before_end.min(after_end);
        let change = match (before, after) {
            (Shown::Bytes(before), Shown::Bytes(after)) if shows_the_same(&old[before], &new[after]) => None,
            (_, Shown::Bytes(after)) => Some(Changed::Bytes(after)),
            (Shown::Bytes(_), Shown::Hole) => Some(Changed::Hole { had_bytes: true }),
            (Shown::Preallocated(_), Shown::Hole) => Some(Changed::Hole { had_bytes: false }),
            (Shown::Bytes(_), Shown::Preallocated(index)) => {
                Some(Changed::Preallocated { index, had_bytes: true })
            }
            (Shown::Hole, Shown::Preallocated(index)) => {
                Some(Changed::Preallocated { index, had_bytes: false })
            }
            (Shown::Hole, Shown::Hole) | (Shown::Preallocated(_), Shown::Preallocated(_)) => None,
        };
        if let Some((part, change)) = ByteRange::new(at, end).zip(change) {
            push(&mut parts, part, change);
        }
        at = end;
    }
    parts
}

/// Adds a part, to the last one if it goes on: what one new extent shows is sent together, whatever was there
/// before.
fn push(parts: &mut Vec<(ByteRange, Changed)>, part: ByteRange, change: Changed) {
    let joined = parts
        .last()
        .filter(|(last, known)| *known == change && last.end() == part.start())
        .and_then(|(last, _)| ByteRange::new(last.start(), part.end()));
    match (joined, parts.last_mut()) {
        (Some(joined), Some((last, _))) => *last = joined,
        _ => parts.push((part, change)),
    }
}

/// What an offset shows, and up to where that holds. The first `passed` extents end before the offset, which
/// only grows.
fn extent_at(extents: &[Extent], passed: &mut usize, at: u64, limit: u64, sector_bytes: u64) -> (Shown, u64) {
    while let Some(extent) = extents.get(*passed) {
        let range = extent.file_range(sector_bytes);
        if range.start() > at {
            return (Shown::Hole, range.start().min(limit));
        }
        if range.end() > at {
            let shown = match &extent.content {
                _ if has_bytes(extent) => Shown::Bytes(*passed),
                Content::Preallocated(_) => Shown::Preallocated(*passed),
                Content::Inline(_) | Content::Regular(_) => Shown::Hole,
            };
            return (shown, range.end().min(limit));
        }
        *passed += 1;
    }
    (Shown::Hole, limit)
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

#[cfg(test)]
mod tests {
    use vlinder_format::file_extent::{ExtentRange, FileExtent};
    use vlinder_format::{Generation, Logical};

    use super::*;

    fn extent(offset: u64, address: u64, skip: u64, length: u64) -> Extent {
        let whole = FileExtent::whole(Logical(address), 1 << 20, Generation(1)).encode();
        let mut extent = Extent::decode(offset, &whole).unwrap();
        let range = ExtentRange { offset_bytes: skip, file_bytes: length, ..*extent.range().unwrap() };
        extent.content = Content::Regular(range);
        extent
    }

    fn held(mut extent: Extent) -> Extent {
        extent.content = Content::Preallocated(*extent.range().unwrap());
        extent
    }

    #[test]
    fn parts_are_cut_where_the_new_extents_end() {
        let old = [extent(0, 4096, 0, 8192), extent(8192, 1 << 30, 0, 8192)];
        let new = [extent(4096, 1 << 40, 0, 8192), extent(12288, 1 << 30, 4096, 4096)];
        let range = |start, end| ByteRange::new(start, end).unwrap();
        let parts = changed_parts(range(0, 20480), (&old, 16384), &new, 4096);
        let hole = Changed::Hole { had_bytes: true };
        assert_eq!(parts, [(range(0, 4096), hole), (range(4096, 12288), Changed::Bytes(0))]);
    }

    #[test]
    fn bytes_behind_the_old_end_are_new() {
        let extents = [extent(0, 4096, 0, 8192)];
        let range = |start, end| ByteRange::new(start, end).unwrap();
        let parts = |size| changed_parts(range(0, 8192), (&extents, size), &extents, 4096);
        assert_eq!(parts(8192), []);
        assert_eq!(parts(5000), [(range(5000, 8192), Changed::Bytes(0))]);
        // What changed before the old end and what appears behind it are of one extent, and go together.
        let new = [extent(0, 1 << 40, 0, 8192)];
        let parts = changed_parts(range(0, 8192), (&extents, 5000), &new, 4096);
        assert_eq!(parts, [(range(0, 8192), Changed::Bytes(0))]);
    }

    #[test]
    fn preallocated_runs_come_and_go() {
        let old = [held(extent(0, 4096, 0, 8192)), extent(8192, 1 << 30, 0, 4096)];
        let new = [held(extent(4096, 1 << 40, 0, 12288))];
        let range = |start, end| ByteRange::new(start, end).unwrap();
        let parts = changed_parts(range(0, 16384), (&old, 16384), &new, 4096);
        let expected = [
            (range(0, 4096), Changed::Hole { had_bytes: false }),
            (range(8192, 12288), Changed::Preallocated { index: 0, had_bytes: true }),
            (range(12288, 16384), Changed::Preallocated { index: 0, had_bytes: false }),
        ];
        assert_eq!(parts, expected);
        // Behind the end of the old file the receiver has a hole.
        let parts = changed_parts(range(0, 8192), (&old, 4096), &new, 4096);
        let reserved = (range(4096, 8192), Changed::Preallocated { index: 0, had_bytes: false });
        assert_eq!(parts, [expected[0], reserved]);
    }
}
