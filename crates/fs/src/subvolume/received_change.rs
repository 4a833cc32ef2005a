//! Changes of a subvolume after it was received.
//!
//! The transaction of the last change (`ctransid`) alone does not tell. Linux marks a subvolume as received
//! while data of its files are still in the page cache; when those are written out, the inodes are written
//! again, in a later transaction. An inode's time of change tells: no program can set it, each change by a
//! program moves it, and writing out does not.

use std::ops::ControlFlow;

use vlinder_forest::visit_leaves_since;
use vlinder_format::inode::InodeItem;
use vlinder_format::{ItemType, RootId};
use vlinder_transaction::{Engine, EngineError};

use crate::{Refusal, Result};

/// See [`Subvolumes::was_changed_since_received`](super::Subvolumes::was_changed_since_received).
pub(super) fn was_changed_since_received(engine: &Engine, root: RootId) -> Result<bool> {
    let tree = match engine.tree(root) {
        Ok(tree) => tree,
        Err(EngineError::NoSuchTree { .. }) => return Err(Refusal::NotFound.into()),
        Err(error) => return Err(error.into()),
    };
    let item = tree.item();
    let extension = item.current_extension().copied().unwrap_or_default();
    if extension.received_uuid.is_nil() || extension.change_transaction <= extension.receive_transaction {
        return Ok(false);
    }
    let mut is_changed = false;
    visit_leaves_since(
        (engine.forest().trees(), tree.root()),
        extension.receive_transaction,
        |key, data| {
            let is_inode = key.item_type == ItemType::INODE_ITEM;
            let inode = if is_inode { InodeItem::decode(data).ok() } else { None };
            is_changed = inode.is_some_and(|inode| inode.change_time > extension.receive_time);
            if is_changed { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
        },
    )?;
    Ok(is_changed)
}
