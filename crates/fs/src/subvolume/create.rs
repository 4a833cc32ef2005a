//! New subvolumes: empty ones and snapshots.

use vlinder_base::sync::Arc;
use vlinder_data::{InodeId, begin, put_dirty_inodes};
use vlinder_forest::OpenTree;
use vlinder_format::directory::{self, DirectoryEntryType, DirectoryIndex};
use vlinder_format::inode::{FileType, InodeFlags, InodeItem, Mode};
use vlinder_format::inode_ref::{self, InodeReference};
use vlinder_format::root_ref::RootReference;
use vlinder_format::{Key, ObjectId, RootId, Uuid};
use vlinder_transaction::{
    ChangeKind, Engine, EngineError, Handle, Reservation, ReservedSnapshot, SnapshotRequest,
};
use vlinder_tree::{Change, Edit};

use crate::acl::Acl;
use crate::changes::Changes;
use crate::directory::check_new_name;
use crate::directory::index::take_index;
use crate::inode::Inode;
use crate::maintenance::Maintenance;
use crate::name_view::Names;
use crate::new_file::{NewFile, inherited_compression, note_names_changed, prepare};
use crate::room::with_room;
use crate::stamp::Stamp;
use crate::{Access, Caller, FsError, Refusal, Result};

/// Items that a new subvolume may touch: its own, its names and references, the UUID tree's.
const ITEMS: u32 = 18;

/// Makes an empty subvolume with a name in a directory.
///
/// # Errors
/// As [`create_directory`](crate::Names::create_directory).
pub(crate) fn create_subvolume(
    names: Names<'_>,
    caller: &Caller,
    directory: &Arc<Inode>,
    name: &[u8],
) -> Result<InodeId> {
    check_new_name(name)?;
    let _places = names.places().lock_subvolumes();
    let _operation = directory.operation.write();
    may_add_subvolume(names, caller, directory, name)?;
    let parent_root = names.inodes().inode(InodeId::root_of(directory.id().root))?;
    // Not done again where it finds no room: what it made by then became a deleted tree, and freeing that
    // would look like room gained.
    let mut handle = begin(names.store(), Reservation::subvolume(ITEMS).of(ChangeKind::Subvolume))?;
    let index = take_index(names.engine(), directory)?;
    let tree = handle
        .create_subvolume_tree(Uuid(names.engine().options().random.uuid()), Stamp::of(&handle).time)?;
    let made = fill_subvolume(names, caller, &mut handle, directory, &parent_root, &tree).and_then(|()| {
        name_subvolume(names.engine(), &mut handle, directory, name, index, tree.id(), tree.item_key())
    });
    if let Err(error) = made {
        // The tree has no name yet: it goes the way of deleted ones.
        if let Err(second) = handle.delete_tree(&tree) {
            names.engine().become_read_only(&second);
        }
        drop(handle);
        names.engine().dead_trees().add(tree);
        return Err(error);
    }
    Ok(InodeId::root_of(tree.id()))
}

/// The root directory of a new subvolume. Its flags are not inherited; properties are those of the
/// subvolume that it lies in.
fn fill_subvolume(
    names: Names<'_>,
    caller: &Caller,
    handle: &mut Handle<'_>,
    directory: &Inode,
    parent_root: &Inode,
    tree: &Arc<OpenTree>,
) -> Result<()> {
    let stamp = Stamp::of(handle);
    let new = NewFile::of(FileType::Directory, 0o777);
    let mut prepared = prepare(names, caller, directory, new, stamp)?;
    prepared.number = ObjectId::FIRST_FREE;
    // Neither owner nor ACLs come from the directory that holds the name (Linux:
    // `btrfs_new_subvol_inode`); its default ACL still cuts the mode, after the umask has
    // (`posix_acl_create`).
    prepared.item.group = caller.group;
    let permissions = new.permissions & !caller.umask;
    let permissions = match names.rights().default_acl(directory)? {
        Some(default) => Acl::clone(&default).cut_to(permissions),
        None => permissions,
    };
    prepared.item.mode = Mode::new(FileType::Directory, permissions);
    (prepared.access_acl, prepared.default_acl) = (None, None);
    prepared.item.flags = InodeFlags::NONE;
    prepared.compression =
        inherited_compression(names.store(), parent_root, FileType::Directory, InodeFlags::NONE)?;
    let mut changes = Changes::of_tree(names.engine(), Arc::clone(tree));
    let own_name = InodeReference { index: DirectoryIndex(0), name: b".." };
    changes.put(inode_ref::key(prepared.number, prepared.number), own_name.encode());
    changes.add_inode(&prepared, b"", stamp.generation)?;
    changes.apply(handle)
}

fn may_add_subvolume(names: Names<'_>, caller: &Caller, directory: &Inode, name: &[u8]) -> Result<()> {
    if !directory.is_directory() {
        return Err(Refusal::NotADirectory.into());
    }
    names.rights().access(caller, directory, Access::EXECUTE)?;
    if names.tree().find_target(directory, name)?.is_some() {
        return Err(Refusal::Exists.into());
    }
    names.rights().may_add_name(caller, directory)
}

/// Gives a subvolume its name: references in the root tree, entries in the directory. `location` is what
/// the entries say.
fn name_subvolume(
    engine: &Engine,
    handle: &mut Handle<'_>,
    directory: &Inode,
    name: &[u8],
    index: DirectoryIndex,
    subvolume: RootId,
    location: Key,
) -> Result<()> {
    let parent = directory.id();
    let mut changes = Changes::new(engine, directory.subvolume());
    let generation = handle.generation();
    changes.add_entry(parent.number, name, index, location, DirectoryEntryType::DIRECTORY, generation)?;
    changes.apply(handle)?;
    let reference = RootReference { directory: parent.number, index, name }.encode();
    let mut keys = [
        RootReference::forward_key(parent.root, subvolume),
        RootReference::backward_key(subvolume, parent.root),
    ];
    keys.sort_unstable();
    let edits = keys.map(|key| Edit::new(key, Change::Put(&reference)));
    if let Err(error) = handle.edit_root_tree(&edits) {
        // The directory has the name already.
        engine.become_read_only(&error);
        return Err(error.into());
    }
    let mut state = directory.state();
    note_names_changed(&mut state, Stamp::of(handle), name.len(), 0);
    directory.put(handle, &mut state);
    Ok(())
}

/// What a snapshot is like.
#[derive(Clone, Copy)]
pub(super) struct SnapshotKind {
    /// It takes no changes.
    pub(super) read_only: bool,
    /// Its parent UUID is that of the source's parent.
    pub(super) is_sibling: bool,
}

/// Makes a snapshot of a subvolume with a name in a directory: everything that was written before, and
/// nothing that comes after. Commits.
///
/// # Errors
/// As [`create_directory`](crate::Names::create_directory); [`Refusal::NotPermitted`] for a subvolume of
/// another's.
pub(crate) fn snapshot(
    names: Names<'_>,
    maintenance: &Maintenance,
    caller: &Caller,
    source: RootId,
    directory: &Arc<Inode>,
    name: &[u8],
    kind: SnapshotKind,
) -> Result<InodeId> {
    check_new_name(name)?;
    let source = names.inodes().subvolume(source)?;
    let source_root = names.inodes().inode(InodeId::root_of(source.id()))?;
    let owner = source_root.state().item;
    if !names.rights().is_owner_or_capable(caller, &owner) {
        return Err(Refusal::NotPermitted.into());
    }
    vlinder_data::flush_subvolume(names.store(), source.id())?;
    maintenance.flush_if_on_commit()?;
    let _places = names.places().lock_subvolumes();
    let _operation = directory.operation.write();
    may_add_subvolume(names, caller, directory, name)?;
    let index = take_index(names.engine(), directory)?;
    let snapshot =
        with_room(names.engine(), || reserve_snapshot(names, &source, directory, (name, index), kind))?;
    let id = snapshot.id();
    snapshot.commit()?;
    // Files that are open in the source without a name go from the snapshot, as on Linux: left there,
    // they would share leaves with later snapshots, which btrfs check does not get right.
    names.inodes().subvolume(id)?;
    Ok(InodeId::root_of(id))
}

/// Makes sure of room for a snapshot and its name.
fn reserve_snapshot<'a>(
    names: Names<'a>,
    source: &crate::Subvolume,
    directory: &Arc<Inode>,
    (name, index): (&[u8], DirectoryIndex),
    SnapshotKind { read_only, is_sibling }: SnapshotKind,
) -> Result<ReservedSnapshot<'a>> {
    // What waits in memory alone belongs into the snapshot.
    put_dirty_inodes(names.store())?;
    let mut handle = begin(names.store(), Reservation::subvolume(ITEMS).of(ChangeKind::Subvolume))?;
    check_room_for_entry(names.engine(), directory, name)?;
    let id = handle.new_subvolume_number()?;
    let (store, parent, entry_name) = (Arc::clone(names.store()), Arc::clone(directory), name.to_vec());
    let number = directory.number();
    let mut name_keys =
        vec![InodeItem::key(number), directory::item_key(number, name), directory::index_key(number, index)];
    name_keys.sort_unstable();
    let request = SnapshotRequest {
        source: Arc::clone(source.tree()),
        directory_tree: Arc::clone(directory.subvolume().tree()),
        name_keys,
        id,
        uuid: Uuid(names.engine().options().random.uuid()),
        time: Stamp::of(&handle).time,
        parent: if is_sibling { source.tree().item().parent_uuid() } else { source.tree().item().uuid() },
        read_only,
        after: Box::new(move |handle: &mut Handle<'_>, tree: &Arc<OpenTree>| -> Result<(), EngineError> {
            // As Linux writes it for snapshots.
            let location = Key { offset: u64::MAX, ..tree.item_key() };
            name_subvolume(store.engine(), handle, &parent, &entry_name, index, tree.id(), location)
                .map_err(FsError::into_engine)
        }),
    };
    Ok(request.reserve(&mut handle)?)
}

/// Refuses a name whose entry cannot be added, before anything depends on it.
fn check_room_for_entry(engine: &Engine, directory: &Inode, name: &[u8]) -> Result<()> {
    let mut changes = Changes::new(engine, directory.subvolume());
    let location = InodeItem::key(ObjectId::FIRST_FREE);
    let entry_type = DirectoryEntryType::DIRECTORY;
    changes.add_entry(
        directory.number(),
        name,
        DirectoryIndex::FIRST,
        location,
        entry_type,
        Default::default(),
    )
}
