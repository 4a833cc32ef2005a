//! The items of an inode in its tree.

use vlinder_format::{ItemType, Key};
use vlinder_transaction::Engine;
use vlinder_tree::Readahead;

use super::Inode;
use crate::Result;

/// The keys of an inode's items in the tree, but for the inode item itself; at most `most`, and whether
/// these are all.
pub(crate) fn keys_of(engine: &Engine, inode: &Inode, most: usize) -> Result<(Vec<Key>, bool)> {
    let first = Key::new(inode.number(), ItemType(ItemType::INODE_ITEM.0 + 1), 0);
    let tree = inode.subvolume().tree();
    let mut cursor = engine.forest().trees().cursor(tree.root(), &first, Readahead::None)?;
    let mut keys = Vec::new();
    while let Some(key) = cursor.key().filter(|key| key.objectid == inode.number()) {
        if keys.len() == most {
            return Ok((keys, false));
        }
        keys.push(key);
        cursor.advance()?;
    }
    Ok((keys, true))
}
