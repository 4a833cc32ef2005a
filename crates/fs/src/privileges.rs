//! What a change of a file's data does to its set-id bits and capabilities.

use vlinder_base::sync::Arc;
use vlinder_data::FileStore;
use vlinder_format::inode::FileType;

use crate::attribute_change::{AttributeMode, CAPABILITY_NAME, change_attribute};
use crate::inode::Inode;
use crate::permission::Rights;
use crate::{Caller, Result};

/// Drops the set-id bits of a regular file whose content is about to change, unless the caller may keep
/// them, and its capabilities in any case; gives whether the mode changed. The caller holds the inode's
/// operation lock exclusively.
pub(crate) fn kill_privileges(
    store: &FileStore,
    rights: &Rights,
    caller: &Caller,
    inode: &Arc<Inode>,
) -> Result<bool> {
    if inode.file_type() != FileType::Regular {
        return Ok(false);
    }
    let Some((permissions, kept)) = rights.privileges_to_drop(caller, inode)? else { return Ok(false) };
    let value = None;
    change_attribute(store, inode, CAPABILITY_NAME, value, AttributeMode::Either, |state| {
        state.item.mode = state.item.mode.with_permissions(kept);
        inode.permissions().drop_capability();
    })?;
    Ok(kept != permissions)
}
