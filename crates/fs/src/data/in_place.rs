//! Which bytes may be written where they lie: preallocated space that was never written, and extents of files
//! without copy-on-write; both only where nobody else refers to the extent.

use std::collections::HashMap;

use vlinder_base::sync::Arc;
use vlinder_extent_state::ByteRange;
use vlinder_format::Logical;
use vlinder_format::file_extent::CompressionId;
use vlinder_format::inode::InodeFlags;
use vlinder_transaction::{Handle, Reservation};

use super::extent::{Content, Extent, StoredExtent};
use super::flush;
use super::items;
use crate::inode::Inode;
use crate::sectors::MAX_FILE_SIZE;
use crate::{Filesystem, Result};

/// An extent with more runs of its own file than this is treated as shared.
const MOST_RUNS: usize = 4096;

/// Extents of a file that are looked at together.
const EXTENTS_IN_STEP: usize = 256;

/// Parts that may be written in place with their addresses, and the other parts.
pub(crate) type Split = (Vec<(ByteRange, Logical)>, Vec<ByteRange>);

/// Splits a range into what may be written in place and what needs new space. The caller holds the file's
/// extents locked, and keeps the handle until it has written bytes that lie in the file already: as long as
/// it is open, no snapshot comes to share them.
///
/// # Errors
/// What the trees met.
pub(crate) fn find(
    filesystem: &Filesystem,
    inode: &Inode,
    range: ByteRange,
    handle: &Handle<'_>,
) -> Result<Split> {
    let tree = inode.subvolume().tree();
    let items = items::load(filesystem.engine(), tree, inode.number(), range, usize::MAX)?;
    let placed = writable_runs(filesystem, inode, range, items.extents, handle)?;
    let mut others = Vec::new();
    let mut at = range.start();
    for (run, _) in &placed {
        others.extend(ByteRange::new(at, run.start()).filter(|gap| !gap.is_empty()));
        at = run.end();
    }
    others.extend(ByteRange::new(at, range.end()).filter(|gap| !gap.is_empty()));
    Ok((placed, others))
}

/// The parts of a range that may be written in place, with their addresses; `extents` are those that overlap
/// the range.
fn writable_runs(
    filesystem: &Filesystem,
    inode: &Inode,
    range: ByteRange,
    extents: Vec<Extent>,
    handle: &Handle<'_>,
) -> Result<Vec<(ByteRange, Logical)>> {
    let flags = inode.flags();
    let mut placed = Vec::new();
    let last_snapshot = inode.subvolume().tree().root().last_snapshot();
    let mut shared: HashMap<StoredExtent, bool> = HashMap::new();
    for extent in extents {
        let Some(logical) = writable_start(&extent, flags).filter(|_| extent.generation > last_snapshot)
        else {
            continue;
        };
        let Some((stored, offset)) = extent.reference() else { continue };
        let is_shared = match shared.get(&stored) {
            Some(known) => *known,
            None => {
                let found = is_shared(filesystem, inode, handle, stored, offset)?;
                shared.insert(stored, found);
                found
            }
        };
        let run = extent.file_range(u64::from(filesystem.sector_size())).intersection(range);
        let Some(run) = run.filter(|_| !is_shared) else { continue };
        placed.push((run, Logical(logical.0 + (run.start() - extent.offset))));
    }
    Ok(placed)
}

/// Whether at least `wanted` bytes of a file may be written in place, wherever in the file.
///
/// # Errors
/// What the trees met.
pub(crate) fn owns_space(filesystem: &Filesystem, inode: &Arc<Inode>, wanted: u64) -> Result<bool> {
    if !inode.flags().has_any(InodeFlags::NODATACOW | InodeFlags::PREALLOC) {
        return Ok(false);
    }
    let _extents = flush::lock_settled(filesystem, inode);
    let handle = match filesystem.engine().begin(Reservation::accepted(0)) {
        Err(error) if error.is_no_space() => return Ok(false),
        begun => begun?,
    };
    let tree = inode.subvolume().tree();
    // Preallocated space may lie behind the file's end.
    let (mut found, mut at, end) = (0, 0, MAX_FILE_SIZE);
    while let Some(rest) = ByteRange::new(at, end).filter(|rest| !rest.is_empty()) {
        let items = items::load(filesystem.engine(), tree, inode.number(), rest, EXTENTS_IN_STEP)?;
        let part = ByteRange::new(at, items.complete_to).unwrap_or(rest);
        let runs = writable_runs(filesystem, inode, part, items.extents, &handle)?;
        found += runs.iter().map(|(run, _)| run.length_bytes()).sum::<u64>();
        if found >= wanted {
            return Ok(true);
        }
        at = items.complete_to.max(at + 1);
    }
    Ok(false)
}

/// Whether all of a range may be written in place, so that it needs no new space.
///
/// # Errors
/// What the trees met.
pub(crate) fn covers(filesystem: &Filesystem, inode: &Arc<Inode>, range: ByteRange) -> Result<bool> {
    if !inode.flags().has_any(InodeFlags::NODATACOW | InodeFlags::PREALLOC) {
        return Ok(false);
    }
    let _extents = flush::lock_settled(filesystem, inode);
    let handle = filesystem.engine().begin(Reservation::accepted(0))?;
    Ok(find(filesystem, inode, range, &handle)?.1.is_empty())
}

/// Where the run's first byte lies, if the kind of run may be written in place.
fn writable_start(extent: &Extent, flags: InodeFlags) -> Option<Logical> {
    let plain = extent.compression == CompressionId::NONE;
    let range = match &extent.content {
        Content::Preallocated(range) if plain => range,
        Content::Regular(range) if plain && !range.is_hole() && flags.has(InodeFlags::NODATACOW) => range,
        _ => return None,
    };
    range.address.checked_add(range.offset_bytes)
}

/// Whether anyone but this file's own runs, all at one place of the file, refers to an extent, or did at the
/// last commit: a power cut would show these the new bytes.
fn is_shared(
    filesystem: &Filesystem,
    inode: &Inode,
    handle: &Handle<'_>,
    stored: StoredExtent,
    offset: u64,
) -> Result<bool> {
    let Some(window) = ByteRange::with_length(offset, stored.bytes) else { return Ok(true) };
    let tree = inode.subvolume().tree();
    let items = items::load(filesystem.engine(), tree, inode.number(), window, MOST_RUNS)?;
    let own = items.extents.iter().filter(|extent| extent.reference() == Some((stored, offset))).count();
    let (root, number) = (inode.id().root, inode.number());
    Ok(handle.extent_references(stored.address, root, number, offset)? != Some(own as u64))
}
