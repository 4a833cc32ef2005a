//! Making changes of one file's items in a transaction.

use std::collections::HashSet;

use vlinder_format::file_extent::FileExtent;
use vlinder_format::inode::InodeItem;
use vlinder_format::{FileOffset, Key, Logical};
use vlinder_transaction::{Charge, Handle};
use vlinder_tree::{Change, Edit};

use crate::extent::{Content, Extent};
use crate::file_node::FileNode;
use crate::inode_state::InodeState;
use crate::rewrite::Rewrite;
use crate::{Result, references};

/// How many items one transaction of a long operation changes.
pub(crate) const ITEMS_IN_STEP: usize = 1024;

/// Bytes of the item of an extent, with its header.
const EXTENT_ITEM_BYTES: u64 = 53 + 25;

/// What putting `new` extents into a file may change where it has `present` ones: each new one takes the
/// place of present ones, and may cut one in two.
pub(crate) fn file_changes(present: usize, new: usize) -> Charge {
    file_changes_over(present, present, new)
}

/// As [`file_changes`], where only `overwritten` of the present extents lose bytes.
pub(crate) fn file_changes_over(present: usize, overwritten: usize, new: usize) -> Charge {
    let (present, overwritten, new) = (present as u64, overwritten as u64, new as u64);
    let items = present + 3 * new;
    Charge {
        items,
        item_bytes: items * EXTENT_ITEM_BYTES,
        added_references: 2 * new,
        dropped_references: overwritten,
        extents: overwritten + new,
        checksums: overwritten + new,
        ..Charge::default()
    }
}

/// What the bytes of those extents that lie in their items add to [`file_changes`].
pub(crate) fn inline_charge<'a>(extents: impl IntoIterator<Item = &'a Extent>) -> Charge {
    let bytes = extents.into_iter().map(|extent| match &extent.content {
        Content::Inline(bytes) => bytes.len() as u64,
        Content::Regular(_) | Content::Preallocated(_) => 0,
    });
    Charge::items(0, bytes.sum())
}

/// Changes the items, references and allocated bytes of a file as `rewrite` says, and its state as `update`
/// does. `new` are extents that nobody refers to yet. All or nothing.
pub(crate) fn apply(
    handle: &mut Handle<'_>,
    node: &FileNode,
    rewrite: Rewrite,
    new: &HashSet<Logical>,
    update: impl FnOnce(&mut InodeState),
) -> Result<()> {
    let changes = rewrite.finish();
    let edits: Vec<Edit<'_>> = changes
        .items
        .iter()
        .map(|(offset, data)| {
            let key: Key = FileExtent::key(node.number(), FileOffset(*offset));
            Edit::new(key, data.as_deref().map_or(Change::Remove, Change::Put))
        })
        .collect();
    let tree = node.tree();
    handle.charge_pending(tree, &[InodeItem::key(node.number())])?;
    handle.edit(tree, &edits)?;
    references::change(handle, node, &changes, |address| new.contains(&address));
    let mut state = node.state();
    state.item.allocated_bytes = state.item.allocated_bytes.saturating_add_signed(changes.allocated_bytes);
    update(&mut state);
    node.put(handle, &mut state);
    Ok(())
}
