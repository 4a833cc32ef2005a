//! Whether a file has space of its own for what is written to it.

use vlinder_base::sync::Arc;
use vlinder_extent_state::ByteRange;
use vlinder_format::inode::InodeFlags;
use vlinder_transaction::Reservation;

use crate::file_node::FileNode;
use crate::file_store::FileStore;
use crate::in_place::{find, writable_runs};
use crate::sectors::MAX_FILE_SIZE;
use crate::{Result, flush, items};

/// Extents of a file that are looked at together.
const EXTENTS_IN_STEP: usize = 256;

/// Whether at least `wanted` bytes of a file may be written in place, wherever in the file.
///
/// # Errors
/// What the trees met.
pub fn owns_space(store: &FileStore, node: &Arc<FileNode>, wanted: u64) -> Result<bool> {
    if !node.flags().has_any(InodeFlags::NODATACOW | InodeFlags::PREALLOC) {
        return Ok(false);
    }
    let _extents = flush::lock_settled(store, node);
    let handle = match store.engine().begin(Reservation::accepted(0)) {
        Err(error) if error.is_no_space() => return Ok(false),
        begun => begun?,
    };
    let tree = node.tree();
    // Preallocated space may lie behind the file's end.
    let (mut found, mut at, end) = (0, 0, MAX_FILE_SIZE);
    while let Some(rest) = ByteRange::new(at, end).filter(|rest| !rest.is_empty()) {
        let items = items::load(store.engine(), tree, node.number(), rest, EXTENTS_IN_STEP)?;
        let part = ByteRange::new(at, items.complete_to).unwrap_or(rest);
        let runs = writable_runs(store, node, part, items.extents, &handle)?;
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
pub(crate) fn covers(store: &FileStore, node: &Arc<FileNode>, range: ByteRange) -> Result<bool> {
    if !node.flags().has_any(InodeFlags::NODATACOW | InodeFlags::PREALLOC) {
        return Ok(false);
    }
    let _extents = flush::lock_settled(store, node);
    let handle = store.engine().begin(Reservation::accepted(0))?;
    Ok(find(store, node, range, &handle)?.1.is_empty())
}
