//! Deleting subvolumes: the name goes at once, the blocks in the background.

use std::collections::BTreeMap;

use vlinder_base::sync::Arc;
use vlinder_data::begin;
use vlinder_format::root_ref::RootReference;
use vlinder_transaction::{ChangeKind, Reservation, SUBVOLUME_DELETION_LEAVES};

use super::default::default_subvolume;
use super::list::nested_subvolumes;
use crate::changes::Changes;
use crate::inode::Inode;
use crate::name_view::Names;
use crate::new_file::note_names_changed;
use crate::room::with_room;
use crate::root_items::apply_to_root_tree;
use crate::stamp::Stamp;
use crate::{Access, Caller, Capabilities, Refusal, Result};

/// How a subvolume is deleted, which decides who may.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Way {
    /// With all that is in it.
    Deletion {
        /// Users may delete subvolumes of theirs (`user_subvol_rm_allowed`).
        by_users: bool,
    },
    /// As an empty directory (Linux: `btrfs_rmdir`), which needs no more than removing any other one.
    DirectoryRemoval,
}

/// Deletes the subvolume that has a name in a directory, with all that is in it.
///
/// # Errors
/// [`Refusal::InvalidArgument`] where the name stands for something else; [`Refusal::NotPermitted`] for
/// the default subvolume and for callers who may not; [`Refusal::Busy`] for the one that is shown;
/// [`Refusal::NotEmpty`] where another subvolume lies in it.
pub(crate) fn delete_subvolume(
    names: Names<'_>,
    by_users: bool,
    caller: &Caller,
    directory: &Arc<Inode>,
    name: &[u8],
) -> Result<()> {
    with_room(names.engine(), || delete(names, caller, directory, name, Way::Deletion { by_users }))
}

/// Removes an empty subvolume as the directory that it looks like: a caller that may remove directories
/// there may do so.
pub(crate) fn remove_empty_subvolume(
    names: Names<'_>,
    caller: &Caller,
    directory: &Arc<Inode>,
    name: &[u8],
) -> Result<()> {
    with_room(names.engine(), || delete(names, caller, directory, name, Way::DirectoryRemoval))
}

fn delete(names: Names<'_>, caller: &Caller, directory: &Arc<Inode>, name: &[u8], way: Way) -> Result<()> {
    let _places = names.places().lock_subvolumes();
    let _operation = directory.operation.write();
    let (target, victim) = names.find_victim(caller, directory, name)?;
    if !victim.id().is_subvolume_root() || target.subvolume().is_none() {
        return Err(Refusal::InvalidArgument.into());
    }
    let root = victim.id().root;
    // Nothing is made in its root directory from here on.
    let closed = victim.operation.write();
    match way {
        Way::Deletion { by_users } => may_delete_subvolume(names, by_users, caller, directory, &victim)?,
        Way::DirectoryRemoval => {
            names.rights().may_remove_name(caller, directory, &victim)?;
            if victim.size() > 0 {
                return Err(Refusal::NotEmpty.into());
            }
        }
    }
    if root == default_subvolume(names.engine())? {
        return Err(Refusal::NotPermitted.into());
    }
    if root == names.tree().root_id().root || victim.subvolume().is_being_received() {
        return Err(Refusal::Busy.into());
    }
    if !nested_subvolumes(names.engine(), root)?.is_empty() {
        return Err(Refusal::NotEmpty.into());
    }
    let subvolume = Arc::clone(victim.subvolume());
    let place = names.tree().whole_place_of_subvolume(root)?.ok_or(Refusal::NotFound)?;
    let (parent, index) = (place.directory, place.index);
    let mut handle = begin(
        names.store(),
        Reservation::tree_deletion(SUBVOLUME_DELETION_LEAVES).of(ChangeKind::Subvolume),
    )?;
    let mut changes = Changes::new(names.engine(), directory.subvolume());
    changes.remove_entry(directory.number(), name, index)?;
    changes.apply(&mut handle)?;
    let references = BTreeMap::from([
        (RootReference::forward_key(parent.root, root), None),
        (RootReference::backward_key(root, parent.root), None),
    ]);
    let rest =
        apply_to_root_tree(&mut handle, &references).and_then(|()| Ok(handle.delete_tree(subvolume.tree())?));
    if let Err(error) = rest {
        // The directory has lost the name already.
        names.engine().become_read_only(&error);
        return Err(error);
    }
    {
        let mut state = directory.state();
        note_names_changed(&mut state, Stamp::of(&handle), 0, name.len());
        directory.put(&mut handle, &mut state);
    }
    drop(handle);
    subvolume.mark_deleted();
    names.inodes().forget_subvolume(root);
    drop(closed);
    // The blocks are freed when the last inode that knows the subvolume has gone.
    drop((victim, subvolume));
    names.store().background().ask_for_commit();
    Ok(())
}

fn may_delete_subvolume(
    names: Names<'_>,
    by_users: bool,
    caller: &Caller,
    directory: &Inode,
    victim: &Inode,
) -> Result<()> {
    if !caller.has(Capabilities::SYS_ADMIN) {
        let is_ours = names.rights().owner_of_all().is_some_and(|(user, _)| user == caller.user);
        if !by_users && !is_ours {
            return Err(Refusal::NotPermitted.into());
        }
        names.rights().access(caller, victim, Access::WRITE.with(Access::EXECUTE))?;
    }
    names.rights().check_writable(directory.subvolume())?;
    names.rights().may_remove_name(caller, directory, victim)
}
