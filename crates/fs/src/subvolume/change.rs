//! The read-only flag of subvolumes, and what a received one was received from.

use vlinder_base::sync::Arc;
use vlinder_data::{begin, put_dirty_inodes};
use vlinder_format::inode::Timestamp;
use vlinder_format::root_item::RootFlags;
use vlinder_format::uuid_item::UuidKind;
use vlinder_format::{Generation, ObjectId, RootId, Uuid};
use vlinder_transaction::{ChangeKind, Reservation};

use crate::attribute_change::AttributeMode;
use crate::changes::Changes;
use crate::name_view::Names;
use crate::stamp::Stamp;
use crate::subvolume::Subvolume;
use crate::{Caller, InodeId, Refusal, Result};

/// Makes a subvolume read-only, or writable. One that was received becomes writable only by force, and
/// then is received no more: an incremental stream would be applied to what it does not fit.
///
/// # Errors
/// [`Refusal::NotPermitted`] for others than the owner, and without force; [`Refusal::NotFound`].
pub(crate) fn set_subvolume_read_only(
    names: Names<'_>,
    caller: &Caller,
    root: RootId,
    read_only: bool,
    force: bool,
) -> Result<()> {
    let subvolume = own_subvolume(names, caller, root)?;
    if subvolume.is_read_only() == read_only {
        return Ok(());
    }
    let received = subvolume.tree().item().received_uuid();
    let forgets_origin = !read_only && !received.is_nil();
    if forgets_origin && !force {
        return Err(Refusal::NotPermitted.into());
    }
    if read_only {
        vlinder_data::flush_subvolume(names.store(), root)?;
        put_dirty_inodes(names.store())?;
    }
    let mut handle = begin(names.store(), Reservation::items(3).of(ChangeKind::Subvolume))?;
    if forgets_origin {
        handle.remove_uuid(UuidKind::Received, received, root)?;
    }
    subvolume.tree().change_item(|item| {
        let flags = item.flags;
        item.flags =
            if read_only { flags.with(RootFlags::READ_ONLY) } else { flags.without(RootFlags::READ_ONLY) };
        if forgets_origin {
            let extension = item.extension_mut();
            extension.received_uuid = Uuid::NIL;
            extension.send_transaction = Generation(0);
            extension.receive_transaction = Generation(0);
            extension.send_time = Timestamp::EPOCH;
            extension.receive_time = Timestamp::EPOCH;
        }
    });
    handle.mark_changed();
    Ok(())
}

/// Makes a subvolume a received one: read-only, with the UUID and the transaction of what was sent, as
/// Linux's `BTRFS_IOC_SET_RECEIVED_SUBVOL` does it. In the same transaction its root loses the attribute
/// `mark`, if it has it; the root's times stay.
///
/// # Errors
/// As [`set_subvolume_read_only`].
pub(crate) fn set_received(
    names: Names<'_>,
    caller: &Caller,
    root: RootId,
    (uuid, transid): (Uuid, Generation),
    mark: &[u8],
) -> Result<()> {
    let subvolume = own_subvolume(names, caller, root)?;
    vlinder_data::flush_subvolume(names.store(), root)?;
    put_dirty_inodes(names.store())?;
    let mut handle = begin(names.store(), Reservation::items(4).of(ChangeKind::Subvolume))?;
    let mut changes = Changes::of_tree(names.engine(), Arc::clone(subvolume.tree()));
    changes.set_attribute(ObjectId::FIRST_FREE, mark, None, AttributeMode::Either, handle.generation())?;
    changes.apply(&mut handle)?;
    let before = subvolume.tree().item().received_uuid();
    if !before.is_nil() && before != uuid {
        handle.remove_uuid(UuidKind::Received, before, root)?;
    }
    if !uuid.is_nil() && before != uuid {
        handle.add_uuid(UuidKind::Received, uuid, root)?;
    }
    let (generation, now) = (handle.generation(), Stamp::of(&handle).time);
    subvolume.tree().change_item(|item| {
        item.flags = item.flags.with(RootFlags::READ_ONLY);
        let extension = item.extension_mut();
        extension.received_uuid = uuid;
        extension.send_transaction = transid;
        extension.receive_transaction = generation;
        extension.send_time = Timestamp::EPOCH;
        extension.receive_time = now;
    });
    handle.mark_changed();
    Ok(())
}

/// The subvolume, if its item may be changed by this caller.
fn own_subvolume(names: Names<'_>, caller: &Caller, root: RootId) -> Result<Arc<Subvolume>> {
    if names.store().is_read_only() {
        return Err(Refusal::ReadOnly.into());
    }
    let subvolume = names.inodes().subvolume(root)?;
    let directory = names.inodes().inode(InodeId::root_of(root))?;
    let owner = directory.state().item;
    if !names.rights().is_owner_or_capable(caller, &owner) {
        return Err(Refusal::NotPermitted.into());
    }
    Ok(subvolume)
}
