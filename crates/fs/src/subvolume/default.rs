//! The default subvolume: a name in the root tree's one directory.

use vlinder_data::begin;
use vlinder_format::directory::{self, DirectoryEntries, DirectoryEntry, DirectoryEntryType};
use vlinder_format::features::IncompatFeatures;
use vlinder_format::{Damage, Generation, ItemType, ObjectId, RootId};
use vlinder_transaction::{ChangeKind, Engine, Reservation};
use vlinder_tree::{Change, Edit};

use crate::inode::table::InodeTable;
use crate::name_view::Names;
use crate::{Caller, Capabilities, FsError, Refusal, Result, SubvolumeChoice};

const NAME: &[u8] = b"default";

/// The subvolume that is shown where no other is asked for.
///
/// # Errors
/// What reading met.
pub(crate) fn default_subvolume(engine: &Engine) -> Result<RootId> {
    let key = directory::item_key(ObjectId::ROOT_TREE_DIRECTORY, NAME);
    let Some(found) = engine.forest().trees().get(engine.forest().root_tree(), &key)? else {
        return Ok(RootId::FS_TREE);
    };
    let damage = |fault: directory::DirectoryFault| Damage::new(fault, found.place(RootId::ROOT_TREE));
    let Some(entry) = directory::find(found.data(), NAME).map_err(damage)? else {
        return Ok(RootId::FS_TREE);
    };
    if entry.location.item_type != ItemType::ROOT_ITEM {
        return Err(
            damage(directory::DirectoryFault::LocationType { found: entry.location.item_type }).into()
        );
    }
    Ok(RootId(entry.location.objectid.0))
}

/// Chooses the default subvolume, from the next opening on.
///
/// # Errors
/// [`Refusal::NotPermitted`] without a capability; [`Refusal::NotFound`] where there is no such
/// subvolume.
pub(crate) fn set_default_subvolume(inodes: &InodeTable, caller: &Caller, root: RootId) -> Result<()> {
    if !caller.has(Capabilities::SYS_ADMIN) {
        return Err(Refusal::NotPermitted.into());
    }
    let location = inodes.subvolume(root)?.tree().item_key();
    let mut handle = begin(inodes.store(), Reservation::items(1).of(ChangeKind::Subvolume))?;
    let key = directory::item_key(ObjectId::ROOT_TREE_DIRECTORY, NAME);
    let present =
        inodes.store().engine().forest().trees().get(inodes.store().engine().forest().root_tree(), &key)?;
    let mut item = Vec::new();
    let mut transaction = Generation(0);
    for entry in DirectoryEntries::new(present.as_ref().map_or(&[], |found| found.data())) {
        let entry = entry.map_err(|fault| {
            let place = present.as_ref().map(|found| found.place(RootId::ROOT_TREE)).unwrap_or_default();
            Damage::new(fault, place)
        })?;
        if entry.name == NAME {
            transaction = entry.transaction;
        } else {
            entry.append_to(&mut item);
        }
    }
    let entry_type = DirectoryEntryType::DIRECTORY;
    DirectoryEntry { location, transaction, entry_type, name: NAME, data: &[] }.append_to(&mut item);
    handle.edit_root_tree(&[Edit::new(key, Change::Put(&item))])?;
    inodes.store().engine().change_superblock(|superblock| {
        superblock.incompat = superblock.incompat.with(IncompatFeatures::DEFAULT_SUBVOL);
    });
    Ok(())
}

/// The subvolume that the options name.
pub(crate) fn choose_subvolume(names: Names<'_>, choice: &SubvolumeChoice) -> Result<RootId> {
    match choice {
        SubvolumeChoice::Default => default_subvolume(names.engine()),
        SubvolumeChoice::Number(RootId(0)) => Ok(RootId::FS_TREE),
        SubvolumeChoice::Number(root) => Ok(*root),
        SubvolumeChoice::Path(path) => subvolume_at(names, path).map_err(|error| FsError::Path {
            path: format!("subvolume {}", path.escape_ascii()),
            source: Box::new(error),
        }),
    }
}

/// The subvolume at a path from the top level.
///
/// # Errors
/// [`Refusal::NotFound`]; [`Refusal::InvalidArgument`] where the path leads to something else.
pub(crate) fn subvolume_at(names: Names<'_>, path: &[u8]) -> Result<RootId> {
    let caller = Caller::superuser();
    let mut inode = names.inodes().inode(crate::InodeId::root_of(RootId::FS_TREE))?;
    for name in path.split(|byte| *byte == b'/').filter(|name| !name.is_empty()) {
        inode = names.lookup(&caller, &inode, name)?;
    }
    if inode.id().is_subvolume_root() { Ok(inode.id().root) } else { Err(Refusal::InvalidArgument.into()) }
}
