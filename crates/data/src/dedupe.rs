//! Sharing extents of which both files show the same bytes (FIDEDUPERANGE).

use vlinder_base::sync::Arc;
use vlinder_extent_state::ByteRange;
use vlinder_format::inode::InodeFlags;

use crate::clone::{ClonePlan, share_with};
use crate::file_node::FileNode;
use crate::file_store::FileStore;
use crate::open_cache::OpenCache;
use crate::read::read;
use crate::{DataRefusal, Result};

/// How much of each file is compared at a time.
const COMPARED_BYTES: u64 = 1 << 20;

/// Makes `length` bytes of `target` at `target_offset` show the extents of `source` at `source_offset`, if
/// both show the same bytes; gives whether they do. Neither content changes, nor a time, so that a subvolume
/// that takes no changes may be the target, as on Linux (`btrfs_remap_file_range_prep`,
/// fs/btrfs/reflink.c).
///
/// Both offsets are at sector borders. What is left of a sector at the end is shared where both files end
/// there, and left as it is elsewhere; so are bytes of the source that lie in an item. The caller holds the
/// operation lock of both exclusively: no writer comes between the comparison and the change.
///
/// # Errors
/// [`DataRefusal::InvalidArgument`] where the range is not as above, reaches behind the end of a file, or
/// overlaps itself, or where only one of the files has checksums; what reading and the trees met.
pub fn dedupe_range(
    store: &FileStore,
    source: &Arc<FileNode>,
    source_offset: u64,
    target: &Arc<FileNode>,
    target_offset: u64,
    length: u64,
) -> Result<bool> {
    let inside = |node: &FileNode, offset: u64| {
        ByteRange::with_length(offset, length).filter(|range| range.end() <= node.size())
    };
    let (Some(from), Some(to)) = (inside(source, source_offset), inside(target, target_offset)) else {
        return Err(DataRefusal::InvalidArgument.into());
    };
    let sector_size = u64::from(store.sector_size());
    let has_checksums = |node: &FileNode| !node.flags().has(InodeFlags::NODATASUM);
    let is_aligned = from.start().is_multiple_of(sector_size) && to.start().is_multiple_of(sector_size);
    let overlaps = Arc::ptr_eq(source, target) && from.overlaps(to);
    if !is_aligned || overlaps || has_checksums(source) != has_checksums(target) {
        return Err(DataRefusal::InvalidArgument.into());
    }
    if !is_same(store, (source, from), (target, to))? {
        return Ok(false);
    }
    let ends_both = from.end() == source.size() && to.end() == target.size();
    let shared = if ends_both { length } else { length / sector_size * sector_size };
    let plan = ClonePlan::new(store, source, source_offset, target, target_offset, shared)?;
    let Some(plan) = plan else { return Ok(true) };
    let plan = match plan.inline_part(store)? {
        Some(part) => plan.after(part),
        None => Some(plan),
    };
    if let Some(plan) = plan {
        share_with(store, &plan)?;
    }
    Ok(true)
}

/// Whether two ranges of the same length show the same bytes.
fn is_same(
    store: &FileStore,
    (source, from): (&FileNode, ByteRange),
    (target, to): (&FileNode, ByteRange),
) -> Result<bool> {
    let caches = (OpenCache::new(), OpenCache::new());
    let room = from.length_bytes().min(COMPARED_BYTES) as usize;
    let (mut one, mut other) = (vec![0; room], vec![0; room]);
    let mut done = 0;
    while done < from.length_bytes() {
        let step = (from.length_bytes() - done).min(COMPARED_BYTES) as usize;
        let first = read(store, source, &caches.0, from.start() + done, &mut one[..step])?;
        let second = read(store, target, &caches.1, to.start() + done, &mut other[..step])?;
        if first != step || second != step || one[..step] != other[..step] {
            return Ok(false);
        }
        done += step as u64;
    }
    Ok(true)
}
