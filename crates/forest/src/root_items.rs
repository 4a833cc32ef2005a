//! Root items: the entries of the root tree, which say where each tree begins.

use vlinder_base::sync::Arc;
use vlinder_format::inode::InodeFlags;
use vlinder_format::root_item::{RootFlags, RootItem, RootItemBase};
use vlinder_format::{Damage, ItemType, Key, ObjectId, RootId};
use vlinder_tree::{Root, RootPointer, Trees};

use crate::ForestError;

/// The root item of a tree, with its key. Where there are several (Linux may leave an older one) it is the
/// last one.
///
/// # Errors
/// What reading the root tree met.
pub fn find_root_item(
    trees: &Trees,
    root_tree: &Arc<Root>,
    id: RootId,
) -> Result<Option<(Key, RootItem)>, ForestError> {
    let sought = Key::new(ObjectId(id.0), ItemType::ROOT_ITEM, u64::MAX);
    let Some(found) = trees.floor(root_tree, &sought)? else { return Ok(None) };
    let key = found.key();
    if key.objectid.0 != id.0 || key.item_type != ItemType::ROOT_ITEM {
        return Ok(None);
    }
    let mut item =
        RootItem::decode(found.data()).map_err(|fault| Damage::new(fault, found.place(RootId::ROOT_TREE)))?;
    if id.is_subvolume() && !item.inode.flags.has(InodeFlags::ROOT_ITEM_INITIALIZED) {
        // The flags and the limit of such an item were never set, and may be anything
        // (Linux: `btrfs_check_and_init_root_item`).
        item.inode.flags = item.inode.flags.with(InodeFlags::ROOT_ITEM_INITIALIZED);
        item.flags = RootFlags::NONE;
        item.byte_limit = 0;
    }
    Ok(Some((key, item)))
}

/// A root item for a tree that is just being made.
#[must_use]
pub fn new_root_item(pointer: RootPointer) -> RootItem {
    let base = RootItemBase {
        address: pointer.logical,
        level: pointer.level,
        reference_count: 1,
        ..RootItemBase::default()
    };
    let mut item = RootItem { base, extension: None };
    item.set_generation(pointer.generation);
    item
}
