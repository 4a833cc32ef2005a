//! How many bytes of a file count as allocated: what stat(2) tells in blocks.
//!
//! As Linux counts them (`btrfs_getattr`, fs/btrfs/inode.c): the bytes of the file's extents, and those
//! written that lie in no extent yet (`new_delalloc_bytes`), in whole sectors. So the count does not change
//! when what was written is stored.

use vlinder_extent_state::ByteRange;

use crate::extent::Extent;
use crate::file_node::FileNode;
use crate::file_store::FileStore;
use crate::{Result, items};

/// How often it is counted anew because a flush came between.
const TRIES: usize = 4;

/// The bytes of a file that count as allocated. Takes no lock that is held over I/O. Where the items can't be
/// read, bytes that replace others count twice.
pub fn allocated_bytes(store: &FileStore, node: &FileNode) -> u64 {
    let sector_size = u64::from(store.sector_size().max(1));
    let look = || {
        let state = node.state();
        (whole(state.item.allocated_bytes, sector_size), node.data().unflushed().sectors(sector_size))
    };
    let mut last = look();
    for _ in 0..TRIES {
        let (allocated, unflushed) = &last;
        let written = unflushed.iter().map(|range| range.length_bytes()).sum::<u64>();
        // A file without extents has nothing that could be replaced.
        let replaced = if *allocated == 0 || written == 0 {
            Ok(0)
        } else {
            bytes_in_extents(store, node, unflushed, sector_size)
        };
        let shown = allocated.saturating_add(written.saturating_sub(replaced.unwrap_or(0)));
        let now = look();
        if now == last {
            return shown;
        }
        last = now;
    }
    let (allocated, unflushed) = last;
    allocated.saturating_add(unflushed.iter().map(|range| range.length_bytes()).sum())
}

fn whole(bytes: u64, sector_size: u64) -> u64 {
    bytes.checked_next_multiple_of(sector_size).unwrap_or(bytes)
}

/// How many bytes of sorted ranges lie in extents.
fn bytes_in_extents(
    store: &FileStore,
    node: &FileNode,
    ranges: &[ByteRange],
    sector_size: u64,
) -> Result<u64> {
    let tree = node.tree();
    let mut extents = items::load_each(store.engine(), tree, node.number(), ranges)?;
    // One that reaches from one range into the next comes twice.
    extents.dedup_by_key(|extent| extent.offset);
    Ok(overlap_bytes(ranges, extents.iter().filter(|extent| !extent.is_hole()), sector_size))
}

/// How many bytes lie both in the ranges and in the extents; both are sorted.
fn overlap_bytes<'a>(
    ranges: &[ByteRange],
    extents: impl Iterator<Item = &'a Extent>,
    sector_size: u64,
) -> u64 {
    let mut bytes = 0;
    let mut left = ranges;
    for extent in extents {
        let of_extent = extent.file_range(sector_size);
        let before = left.iter().take_while(|range| range.end() <= of_extent.start()).count();
        left = &left[before..];
        let within = left.iter().take_while(|range| range.start() < of_extent.end());
        bytes += within
            .filter_map(|range| range.intersection(of_extent))
            .map(ByteRange::length_bytes)
            .sum::<u64>();
    }
    bytes
}
