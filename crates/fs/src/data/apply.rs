//! Making changes of one file's items in a transaction.

use std::collections::HashSet;

use vlinder_format::file_extent::FileExtent;
use vlinder_format::{FileOffset, Key, Logical};
use vlinder_transaction::Handle;
use vlinder_tree::{Change, Edit};

use super::references;
use super::rewrite::Rewrite;
use crate::Result;
use crate::inode::{Inode, InodeState};

/// How many items one transaction of a long operation changes.
pub(crate) const ITEMS_IN_STEP: usize = 1024;

/// How many leaves many changed items may lie in, most of them being neighbours: what a transaction reserves for them.
pub(crate) fn leaf_items(items: usize) -> u32 {
    u32::try_from(items.min(64) + items / 16).unwrap_or(u32::MAX)
}

/// Changes the items, references and allocated bytes of a file as `rewrite` says, and its state as `update` does.
/// `new` are extents that nobody refers to yet. All or nothing.
pub(crate) fn apply(
    handle: &mut Handle<'_>,
    inode: &Inode,
    rewrite: Rewrite,
    new: &HashSet<Logical>,
    update: impl FnOnce(&mut InodeState),
) -> Result<()> {
    let changes = rewrite.finish();
    let edits: Vec<Edit<'_>> = changes
        .items
        .iter()
        .map(|(offset, data)| {
            let key: Key = FileExtent::key(inode.number(), FileOffset(*offset));
            Edit::new(key, data.as_deref().map_or(Change::Remove, Change::Put))
        })
        .collect();
    handle.edit(inode.subvolume().tree(), &edits)?;
    references::change(handle, inode, &changes, |address| new.contains(&address));
    let mut state = inode.state.lock();
    state.item.allocated_bytes = state.item.allocated_bytes.saturating_add_signed(changes.allocated_bytes);
    update(&mut state);
    inode.put(handle, &mut state);
    Ok(())
}
