//! What is known of subvolumes.

use std::collections::BTreeSet;

use vlinder_base::sync::Arc;
use vlinder_forest::OpenTree;
use vlinder_format::directory::DirectoryIndex;
use vlinder_format::inode::Timestamp;
use vlinder_format::root_item::RootFlags;
use vlinder_format::{Generation, ItemType, Key, ObjectId, RootId, Uuid, orphan};
use vlinder_transaction::{Engine, EngineError};
use vlinder_tree::Readahead;

use super::place::SubvolumePlace;
use crate::name_view::Names;
use crate::{FsError, InodeId, Refusal, Result};

/// A subvolume as `subvolume show` tells of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SubvolumeInformation {
    /// Its number.
    pub id: RootId,
    /// The subvolume and directory that hold its name; none for the top level and for deleted ones.
    pub parent: Option<InodeId>,
    /// Its name there.
    pub name: Vec<u8>,
    /// The name's index there.
    pub index: DirectoryIndex,
    /// The path of its name from the top level; empty for the top level, for deleted ones, and where the
    /// directories above the name do not lead to the top level in a damaged file system.
    pub path: Vec<u8>,
    /// The transaction of its root block.
    pub generation: Generation,
    /// The transaction that made it (`gen at creation`).
    pub creation_transaction: Generation,
    /// The transaction that last changed an inode.
    pub change_transaction: Generation,
    /// The sender's transaction, of one that was received.
    pub send_transaction: Generation,
    /// The transaction that received it.
    pub receive_transaction: Generation,
    /// When it was made.
    pub creation_time: Timestamp,
    /// When an inode last changed.
    pub change_time: Timestamp,
    /// When it was sent.
    pub send_time: Timestamp,
    /// When it was received.
    pub receive_time: Timestamp,
    /// Its UUID.
    pub uuid: Uuid,
    /// That of the subvolume it is a snapshot of; nil if of none.
    pub parent_uuid: Uuid,
    /// That of the subvolume it was received from; nil if it was not.
    pub received_uuid: Uuid,
    /// Its flags.
    pub flags: RootFlags,
    /// It takes no changes.
    pub is_read_only: bool,
    /// It has no name any more and its blocks are being freed.
    pub is_deleted: bool,
}

/// All subvolumes by number, the top level first, those that the running transaction made and deleted
/// ones whose blocks are not all freed too.
///
/// # Errors
/// What reading met.
pub(crate) fn subvolumes(names: Names<'_>) -> Result<Vec<SubvolumeInformation>> {
    let mut found = Vec::new();
    for root in subvolume_numbers(names.engine())? {
        match subvolume_information(names, root) {
            Ok(information) => found.push(information),
            Err(error) if error.refusal() == Some(Refusal::NotFound) => {}
            Err(error) => return Err(error),
        }
    }
    Ok(found)
}

/// From the root tree: a subvolume's item lies there only once a commit has written it, what refers to
/// its name, and the orphan item of a deleted one, from the first.
fn subvolume_numbers(engine: &Engine) -> Result<Vec<RootId>> {
    let mut numbers = BTreeSet::from([RootId::FS_TREE]);
    let first = Key::new(ObjectId::FIRST_FREE, ItemType(0), 0);
    let mut cursor = engine.forest().trees().cursor(engine.forest().root_tree(), &first, Readahead::None)?;
    while let Some(key) = cursor.key().filter(|key| key.objectid <= ObjectId::LAST_FREE) {
        if matches!(key.item_type, ItemType::ROOT_ITEM | ItemType::ROOT_BACKREF) {
            numbers.insert(RootId(key.objectid.0));
        }
        cursor.advance()?;
    }
    cursor.seek(&orphan::key(ObjectId(0)))?;
    while let Some(key) = cursor.key()
        && (key.objectid, key.item_type) == (ObjectId::ORPHAN, ItemType::ORPHAN_ITEM)
    {
        numbers.insert(RootId(key.offset));
        cursor.advance()?;
    }
    Ok(numbers.into_iter().collect())
}

/// One subvolume.
///
/// # Errors
/// [`Refusal::NotFound`]; what reading met.
pub(crate) fn subvolume_information(names: Names<'_>, root: RootId) -> Result<SubvolumeInformation> {
    if !root.is_subvolume() {
        return Err(Refusal::NotFound.into());
    }
    let tree = match names.engine().tree(root) {
        Ok(tree) => tree,
        Err(EngineError::NoSuchTree { .. }) => return Err(Refusal::NotFound.into()),
        Err(error) => return Err(error.into()),
    };
    let place = names.tree().place_of_subvolume(root)?;
    let path = place.as_ref().map(|place| path_of_name(names, place));
    let path = match path.transpose() {
        // One subvolume that lies in a circle, or where there is no directory, does not hide the others.
        Err(error) if is_unreachable(&error) => Vec::new(),
        other => other?.unwrap_or_default(),
    };
    Ok(information(&tree, place, path))
}

fn path_of_name(names: Names<'_>, place: &SubvolumePlace) -> Result<Vec<u8>> {
    let mut path = names.path_of(place.directory)?;
    if !path.is_empty() {
        path.push(b'/');
    }
    path.extend_from_slice(&place.name);
    Ok(path)
}

/// The subvolumes that lie in a subvolume, at any depth of its directories.
///
/// # Errors
/// What reading met.
pub(crate) fn nested_subvolumes(engine: &Engine, root: RootId) -> Result<Vec<RootId>> {
    let mut nested = Vec::new();
    let first = Key::new(root.object_id(), ItemType::ROOT_REF, 0);
    let mut cursor = engine.forest().trees().cursor(engine.forest().root_tree(), &first, Readahead::None)?;
    while let Some(key) = cursor.key() {
        if key.objectid != root.object_id() || key.item_type != ItemType::ROOT_REF {
            break;
        }
        nested.push(RootId(key.offset));
        cursor.advance()?;
    }
    Ok(nested)
}

fn is_unreachable(error: &FsError) -> bool {
    matches!(error.refusal(), Some(Refusal::NotFound | Refusal::SymbolicLinkLoop))
}

fn information(tree: &Arc<OpenTree>, place: Option<SubvolumePlace>, path: Vec<u8>) -> SubvolumeInformation {
    let item = tree.item();
    let extension = item.current_extension().copied().unwrap_or_default();
    let (parent, name, index) = match place {
        Some(place) => (Some(place.directory), place.name, place.index),
        None => (None, Vec::new(), DirectoryIndex::default()),
    };
    SubvolumeInformation {
        id: tree.id(),
        parent,
        name,
        index,
        path,
        generation: item.generation,
        creation_transaction: extension.creation_transaction,
        change_transaction: extension.change_transaction,
        send_transaction: extension.send_transaction,
        receive_transaction: extension.receive_transaction,
        creation_time: extension.creation_time,
        change_time: extension.change_time,
        send_time: extension.send_time,
        receive_time: extension.receive_time,
        uuid: extension.uuid,
        parent_uuid: extension.parent_uuid,
        received_uuid: extension.received_uuid,
        flags: item.flags,
        is_read_only: item.is_read_only(),
        is_deleted: item.is_deleted(),
    }
}
