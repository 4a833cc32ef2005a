//! Changes of the root tree's items: the references of subvolumes.

use std::collections::BTreeMap;

use vlinder_format::Key;
use vlinder_transaction::Handle;
use vlinder_tree::Edit;

use crate::Result;

/// The root tree's items of subvolumes that change their place.
pub(crate) type RootChanges = BTreeMap<Key, Option<Vec<u8>>>;

/// Puts and removes items of the root tree, all or none.
pub(crate) fn apply_to_root_tree(handle: &mut Handle<'_>, roots: &RootChanges) -> Result<()> {
    let edits: Vec<Edit<'_>> =
        roots.iter().map(|(key, data)| Edit::put_or_remove(*key, data.as_deref())).collect();
    Ok(handle.edit_root_tree(&edits)?)
}
