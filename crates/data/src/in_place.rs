//! Which bytes may be written where they lie: preallocated space that was never written, and extents of files
//! without copy-on-write; both only where nobody else refers to the extent.

use std::collections::HashMap;

use vlinder_extent_state::ByteRange;
use vlinder_format::Logical;
use vlinder_format::file_extent::CompressionId;
use vlinder_format::inode::InodeFlags;
use vlinder_transaction::Handle;

use crate::extent::{Content, Extent, StoredExtent};
use crate::file_node::FileNode;
use crate::file_store::FileStore;
use crate::{Result, items};

/// An extent with more runs of its own file than this is treated as shared.
const MAX_RUNS: usize = 4096;

/// Parts that may be written in place with their addresses, and the other parts.
pub(crate) type Split = (Vec<(ByteRange, Logical)>, Vec<ByteRange>);

/// Splits a range into what may be written in place and what needs new space. The caller holds the file's
/// extents locked, and keeps the handle until it has written bytes that lie in the file already: as long as
/// it is open, no snapshot comes to share them.
///
/// # Errors
/// What the trees met.
pub(crate) fn find(
    store: &FileStore,
    node: &FileNode,
    range: ByteRange,
    handle: &Handle<'_>,
) -> Result<Split> {
    let tree = node.tree();
    let items = items::load(store.engine(), tree, node.number(), range, usize::MAX)?;
    let placed = writable_runs(store, node, range, items.extents, handle)?;
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
pub(crate) fn writable_runs(
    store: &FileStore,
    node: &FileNode,
    range: ByteRange,
    extents: Vec<Extent>,
    handle: &Handle<'_>,
) -> Result<Vec<(ByteRange, Logical)>> {
    let flags = node.flags();
    let mut placed = Vec::new();
    let last_snapshot = node.tree().root().last_snapshot();
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
                let found = is_shared(store, node, handle, stored, offset)?;
                shared.insert(stored, found);
                found
            }
        };
        let run = extent.file_range(u64::from(store.sector_size())).intersection(range);
        let Some(run) = run.filter(|_| !is_shared) else { continue };
        placed.push((run, Logical(logical.0 + (run.start() - extent.offset))));
    }
    Ok(placed)
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
    store: &FileStore,
    node: &FileNode,
    handle: &Handle<'_>,
    stored: StoredExtent,
    offset: u64,
) -> Result<bool> {
    let Some(window) = ByteRange::with_length(offset, stored.bytes) else { return Ok(true) };
    let tree = node.tree();
    let items = items::load(store.engine(), tree, node.number(), window, MAX_RUNS)?;
    let own = items.extents.iter().filter(|extent| extent.reference() == Some((stored, offset))).count();
    let (root, number) = (node.id().root, node.number());
    Ok(handle.extent_references(stored.address, root, number, offset)? != Some(own as u64))
}
