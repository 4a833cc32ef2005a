//! Changing the items of extended attributes.

use vlinder_base::sync::Arc;
use vlinder_data::{FileStore, begin};
use vlinder_format::block::{HEADER_SIZE, ITEM_HEADER_SIZE};
use vlinder_format::directory::{self, DirectoryEntry, ENTRY_HEADER_SIZE};
use vlinder_format::{Generation, ObjectId};
use vlinder_transaction::{ChangeKind, Reservation};

use crate::changes::Changes;
use crate::inode::Inode;
use crate::room::with_room;
use crate::stamp::Stamp;
use crate::{Refusal, Result};

/// What a block has beside the bytes of its only attribute: the headers of block, item and entry.
const HEADERS: usize = HEADER_SIZE + ITEM_HEADER_SIZE + ENTRY_HEADER_SIZE;
/// File capabilities, which a change of owner or content drops.
pub(crate) const CAPABILITY_NAME: &[u8] = b"security.capability";

/// Whether an attribute may, must or must not be there when it is set.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum AttributeMode {
    /// It may.
    #[default]
    Either,
    /// It must not (`XATTR_CREATE`).
    Create,
    /// It must (`XATTR_REPLACE`).
    Replace,
    /// It must and must not: always refused, as Linux does.
    CreateAndReplace,
}

/// Sets or removes an attribute in one transaction with what `adapt` does to the inode.
pub(crate) fn change_attribute(
    store: &FileStore,
    inode: &Arc<Inode>,
    name: &[u8],
    value: Option<&[u8]>,
    mode: AttributeMode,
    adapt: impl FnOnce(&mut crate::InodeState),
) -> Result<()> {
    let mut handle = with_room(store.engine(), || {
        let mut handle = begin(store, Reservation::items(3).of(ChangeKind::Attributes))?;
        let mut changes = Changes::new(store.engine(), inode.subvolume());
        changes.touch_inode(inode.number());
        changes.set_attribute(inode.number(), name, value, mode, handle.generation())?;
        changes.apply(&mut handle)?;
        Ok(handle)
    })?;
    let mut state = inode.state();
    inode.permissions().forget();
    adapt(&mut state);
    state.note_change(Stamp::of(&handle).time);
    inode.put(&mut handle, &mut state);
    Ok(())
}

impl Changes<'_> {
    /// Sets or removes an attribute of an inode.
    ///
    /// # Errors
    /// As the mode wants it [`Refusal::Exists`] or [`Refusal::NoAttribute`]; [`Refusal::AttributeTooLong`]
    /// where it does not fit.
    pub(crate) fn set_attribute(
        &mut self,
        inode: ObjectId,
        name: &[u8],
        value: Option<&[u8]>,
        mode: AttributeMode,
        transaction: Generation,
    ) -> Result<()> {
        let key = directory::attribute_key(inode, name);
        let mut item = self.current(&key)?.unwrap_or_default();
        let was_there = directory::remove(&mut item, name).map_err(|fault| self.damage(key, fault))?;
        match (mode, was_there) {
            (AttributeMode::Create | AttributeMode::CreateAndReplace, true) => {
                return Err(Refusal::Exists.into());
            }
            (AttributeMode::Replace | AttributeMode::CreateAndReplace, false) => {
                return Err(Refusal::NoAttribute.into());
            }
            _ => {}
        }
        if let Some(value) = value {
            if HEADERS + name.len() + value.len() > self.node_size() {
                return Err(Refusal::AttributeTooLong.into());
            }
            let entry = DirectoryEntry::attribute(name, value, transaction);
            let collides = !item.is_empty();
            entry.append_to(&mut item);
            if collides && self.grows_too_large(item.len()) {
                return Err(Refusal::AttributeTooLong.into());
            }
        } else if !was_there {
            return Ok(());
        }
        self.put_rest(key, item);
        Ok(())
    }
}
