//! Giving a file the whole content of another in one transaction.

use std::collections::HashSet;

use vlinder_base::sync::Arc;
use vlinder_extent_state::ByteRange;
use vlinder_format::inode::InodeFlags;
use vlinder_transaction::{ChangeKind, Reservation};

use crate::apply::{apply, file_changes, inline_charge};
use crate::extent::Extent;
use crate::file_node::FileNode;
use crate::file_store::FileStore;
use crate::rewrite::Rewrite;
use crate::{DataRefusal, Result, flush, items};

/// Gives `target` the content and size of `source`, and the present as its time of modification. Both then
/// share the extents. All of it is one transaction: a crash leaves the old content or the new one. Both files
/// are of one subvolume and have the same flags for data. The caller holds the operation lock of both, that
/// of the target exclusively, and has seen to the target's privileges.
///
/// # Errors
/// [`DataRefusal::InvalidArgument`] where the files are of two subvolumes or only one of them has checksums;
/// [`DataRefusal::NoSpace`]; what flushing and the trees met. The target is as before then.
pub fn replace_content(store: &FileStore, source: &Arc<FileNode>, target: &Arc<FileNode>) -> Result<()> {
    let has_checksums = |node: &FileNode| !node.flags().has(InodeFlags::NODATASUM);
    let is_same_tree = source.id().root == target.id().root;
    if !is_same_tree || Arc::ptr_eq(source, target) || has_checksums(source) != has_checksums(target) {
        return Err(DataRefusal::InvalidArgument.into());
    }
    let (first, second) = if source.id() < target.id() { (source, target) } else { (target, source) };
    let _first = flush::lock_settled(store, first);
    let _second = flush::lock_settled(store, second);
    flush::flush_locked(store, source)?;
    flush::flush_locked(store, target)?;
    let engine = store.engine();
    let whole = ByteRange::new(0, u64::MAX).unwrap_or_default();
    let extents_of = |node: &FileNode| {
        items::load(engine, node.tree(), node.number(), whole, usize::MAX).map(|items| items.extents)
    };
    let (new, old) = (extents_of(source)?, extents_of(target)?);
    let changes = file_changes(old.len(), new.len()) + inline_charge(&new);
    let mut handle = engine.begin(Reservation::items(1).and(changes).of(ChangeKind::Clone))?;
    let mut rewrite = Rewrite::new(u64::from(store.sector_size()), old);
    rewrite.drop_range(whole).map_err(|_| DataRefusal::NotSupported)?;
    let preallocated = new.iter().any(Extent::is_preallocated);
    // The source belongs to the same tree, so that even bytes that lie in an item fit there as they are.
    new.into_iter().for_each(|extent| rewrite.insert(extent));
    let (size, time) = (source.size(), handle.time());
    apply(&mut handle, target, rewrite, &HashSet::new(), |state| {
        state.item.size_bytes = size;
        state.disk_size = size;
        if preallocated {
            state.item.flags = state.item.flags.with(InodeFlags::PREALLOC);
        }
        state.note_content_change(time);
    })
}
