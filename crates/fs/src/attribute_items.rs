//! Reading the items of extended attributes.

use vlinder_data::attribute_value;
use vlinder_format::directory::{DirectoryEntries, DirectoryEntry};
use vlinder_format::{Damage, ItemType, Key};
use vlinder_transaction::Engine;
use vlinder_tree::Readahead;

use crate::Result;
use crate::inode::Inode;

/// The value of an attribute of a file in memory, without asking who wants it.
pub(crate) fn of_inode(engine: &Engine, inode: &Inode, name: &[u8]) -> Result<Option<Vec<u8>>> {
    Ok(attribute_value(engine, inode.subvolume().tree(), inode.number(), name)?)
}

/// Gives each attribute of a file to `each`, in the order of the hashes of their names.
pub(crate) fn for_each(
    engine: &Engine,
    inode: &Inode,
    mut each: impl FnMut(&DirectoryEntry<'_>),
) -> Result<()> {
    let tree = inode.subvolume().tree();
    let first = Key::new(inode.number(), ItemType::XATTR_ITEM, 0);
    let mut cursor = engine.forest().trees().cursor(tree.root(), &first, Readahead::None)?;
    while let Some((key, data)) = cursor.item() {
        if key.objectid != inode.number() || key.item_type != ItemType::XATTR_ITEM {
            break;
        }
        for entry in DirectoryEntries::new(data) {
            each(&entry.map_err(|fault| Damage::new(fault, cursor.place()))?);
        }
        cursor.advance()?;
    }
    Ok(())
}
