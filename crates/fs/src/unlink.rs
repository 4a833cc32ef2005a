//! Taking names away: links, directories, and what happens to a file that loses its last name.

use vlinder_base::sync::Arc;
use vlinder_data::{FileStore, begin};
use vlinder_format::inode::{FileType, InodeItem};
use vlinder_format::orphan;
use vlinder_transaction::{ChangeKind, Reservation};

use crate::changes::Changes;
use crate::directory::index::find_index;
use crate::directory::target::NameTarget;
use crate::inode::Inode;
use crate::inode::items::keys_of;
use crate::inode::table::InodeTable;
use crate::name_view::Names;
use crate::new_file::note_names_changed;
use crate::open::Opener;
use crate::room::with_room;
use crate::stamp::Stamp;
use crate::subvolume::delete::remove_empty_subvolume;
use crate::{Caller, OpenInode, Refusal, Result};

/// Items that removing a name may touch.
const ITEMS: u32 = 8;
/// A file without data and with so few other items is deleted with its last name, in one step.
const FEW_ITEMS: usize = 4;

/// What the remover of a file's last name wants of the file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum LastName {
    /// That it goes, unless it is open.
    Delete,
    /// To have it open.
    Hold,
}

/// What becomes of a file that loses a name.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Fate {
    /// It has others.
    Lives,
    /// It waits as an orphan: it is open, or has more than fits one step.
    Orphan,
    /// It waits as an orphan, opened for the remover of its last name.
    Held,
    /// It is gone with this transaction.
    Gone,
}

/// Removes a name of anything but a directory; gives the file open if its last name went and `last` wants it.
pub(crate) fn unlink(
    names: Names<'_>,
    caller: &Caller,
    directory: &Arc<Inode>,
    name: &[u8],
    last: LastName,
) -> Result<Option<OpenInode>> {
    let guard = directory.operation.write();
    let (target, victim) = names.find_victim(caller, directory, name)?;
    if victim.is_directory() {
        return Err(Refusal::IsADirectory.into());
    }
    names.rights().may_remove_name(caller, directory, &victim)?;
    let fate = with_room(names.engine(), || {
        remove_file_name(names.inodes(), directory, name, &target, &victim, last)
    })?;
    drop(guard);
    meet_fate(names.opener(), victim, fate)
}

/// Removes an empty directory, or an empty subvolume; gives it open if `last` wants it.
pub(crate) fn remove_directory(
    names: Names<'_>,
    caller: &Caller,
    directory: &Arc<Inode>,
    name: &[u8],
    last: LastName,
) -> Result<Option<OpenInode>> {
    let guard = directory.operation.write();
    let (target, victim) = names.find_victim(caller, directory, name)?;
    if !victim.is_directory() {
        return Err(Refusal::NotADirectory.into());
    }
    names.rights().may_remove_name(caller, directory, &victim)?;
    if victim.is_placeholder() {
        return remove_placeholder(names.store(), directory, name).map(|()| None);
    }
    if target.subvolume().is_some() {
        // It takes the locks anew, that of subvolumes' places first.
        drop(guard);
        remove_empty_subvolume(names, caller, directory, name)?;
        if last == LastName::Delete || !victim.subvolume().is_deleted() {
            return Ok(None);
        }
        victim.state().opens += 1;
        return Ok(Some(names.opener().adopt(victim)));
    }
    let fate = with_room(names.engine(), || {
        remove_file_name(names.inodes(), directory, name, &target, &victim, last)
    })?;
    drop(guard);
    meet_fate(names.opener(), victim, fate)
}

/// After a name went, with no lock held: what its file's fate asks for.
pub(crate) fn meet_fate(opener: Opener<'_>, victim: Arc<Inode>, fate: Fate) -> Result<Option<OpenInode>> {
    match fate {
        Fate::Lives | Fate::Gone => Ok(None),
        Fate::Orphan => opener.inodes().delete_if_unused(&victim).map(|()| None),
        Fate::Held => Ok(Some(opener.adopt(victim))),
    }
}

fn remove_file_name(
    inodes: &InodeTable,
    directory: &Inode,
    name: &[u8],
    target: &NameTarget,
    victim: &Arc<Inode>,
    last: LastName,
) -> Result<Fate> {
    let _operation = victim.operation.write();
    // Under the lock: a name may have been made there since the victim was found.
    if victim.is_directory() && victim.size() > 0 {
        return Err(Refusal::NotEmpty.into());
    }
    let mut handle = begin(inodes.store(), Reservation::removal(ITEMS).of(ChangeKind::Names))?;
    let mut changes = Changes::new(inodes.store().engine(), directory.subvolume());
    let index = changes.remove_reference(target.id.number, directory.number(), name)?;
    changes.remove_entry(directory.number(), name, index)?;
    let fate = plan_loss(&mut changes, victim, last)?;
    changes.apply(&mut handle)?;
    lose_name(inodes, &mut handle, victim, fate);
    let mut state = directory.state();
    note_names_changed(&mut state, Stamp::of(&handle), 0, name.len());
    directory.put(&mut handle, &mut state);
    Ok(fate)
}

/// Adds to the changes what the loss of a name means for the file; the caller holds its operation lock.
pub(crate) fn plan_loss(changes: &mut Changes<'_>, victim: &Inode, last: LastName) -> Result<Fate> {
    let (links, opens) = {
        let state = victim.state();
        (state.item.link_count, state.opens)
    };
    let number = victim.number();
    if links > 1 {
        changes.touch_inode(number);
        return Ok(Fate::Lives);
    }
    if last == LastName::Hold {
        changes.touch_inode(number);
        changes.insert_pending(orphan::key(number), Vec::new());
        return Ok(Fate::Held);
    }
    let (keys, complete) = keys_of(changes.engine(), victim, FEW_ITEMS)?;
    let has_data = victim.file_type() == FileType::Regular
        && (victim.size() > 0
            || !victim.data().may_be_forgotten()
            || keys.iter().any(|key| key.item_type == vlinder_format::ItemType::EXTENT_DATA));
    if opens > 0 || !complete || has_data {
        changes.touch_inode(number);
        changes.insert_pending(orphan::key(number), Vec::new());
        return Ok(Fate::Orphan);
    }
    for key in keys {
        changes.remove(key);
    }
    changes.remove_pending(InodeItem::key(number));
    Ok(Fate::Gone)
}

/// The file in memory after the loss of a name.
pub(crate) fn lose_name(
    inodes: &InodeTable,
    handle: &mut vlinder_transaction::Handle<'_>,
    victim: &Inode,
    fate: Fate,
) {
    if fate == Fate::Gone {
        victim.state().item.link_count = 0;
        inodes.forget_inode(handle, victim);
        return;
    }
    let mut state = victim.state();
    state.item.link_count = state.item.link_count.saturating_sub(1);
    state.note_change(Stamp::of(handle).time);
    state.orphan |= matches!(fate, Fate::Orphan | Fate::Held);
    state.opens += u32::from(fate == Fate::Held);
    victim.put(handle, &mut state);
}

/// Removes a name whose subvolume is not there.
pub(crate) fn remove_placeholder(store: &FileStore, directory: &Inode, name: &[u8]) -> Result<()> {
    let index = find_index(store.engine(), directory, name)?;
    let mut handle = begin(store, Reservation::removal(ITEMS).of(ChangeKind::Names))?;
    let mut changes = Changes::new(store.engine(), directory.subvolume());
    changes.remove_entry(directory.number(), name, index)?;
    changes.apply(&mut handle)?;
    let mut state = directory.state();
    note_names_changed(&mut state, Stamp::of(&handle), 0, name.len());
    directory.put(&mut handle, &mut state);
    Ok(())
}
