//! Telling the engine which references of extents come and go.

use std::collections::HashSet;

use vlinder_format::Logical;
use vlinder_transaction::{DataExtent, Handle};

use crate::file_node::FileNode;
use crate::rewrite::ItemChanges;

/// Adds and drops references as changes of an inode's items say, which were just made, and notes them for the
/// next fsync; `is_new` knows the extents that nobody refers to yet.
pub(crate) fn change(
    handle: &mut Handle<'_>,
    node: &FileNode,
    changes: &ItemChanges,
    is_new: impl Fn(Logical) -> bool,
) {
    let (root, number) = (node.id().root, node.number());
    if let Some(changed) = node.files().changed_ranges() {
        changed.note_ranges(handle.generation(), number, &changes.touched);
    }
    let mut seen: HashSet<Logical> = HashSet::new();
    for reference in &changes.references {
        let extent = DataExtent { logical: reference.extent.address, length: reference.extent.bytes };
        for _ in 0..reference.change.max(0) {
            let fresh = is_new(extent.logical) && seen.insert(extent.logical);
            handle.add_data_reference(extent, fresh, root, number, reference.offset);
        }
        for _ in 0..reference.change.min(0).unsigned_abs() {
            handle.drop_data_reference(extent, root, number, reference.offset);
            node.files().drops().note();
        }
    }
}
