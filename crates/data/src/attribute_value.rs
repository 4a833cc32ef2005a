//! Reading the value of an extended attribute.

use vlinder_forest::OpenTree;
use vlinder_format::{Damage, ObjectId, directory};
use vlinder_transaction::Engine;

use crate::Result;

/// The value of an attribute of an inode, as its tree has it.
///
/// # Errors
/// What reading met, damaged entries among it.
pub fn attribute_value(
    engine: &Engine,
    tree: &OpenTree,
    inode: ObjectId,
    name: &[u8],
) -> Result<Option<Vec<u8>>> {
    let key = directory::attribute_key(inode, name);
    let Some(found) = engine.forest().trees().get(tree.root(), &key)? else { return Ok(None) };
    let entry =
        directory::find(found.data(), name).map_err(|fault| Damage::new(fault, found.place(tree.id())))?;
    Ok(entry.map(|entry| entry.data.to_vec()))
}
