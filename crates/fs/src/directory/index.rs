//! The indexes of names: the order of their creation, in which a directory is listed.

use vlinder_format::directory::{self, DirectoryEntry, DirectoryIndex};
use vlinder_format::{Damage, ItemType, Key};
use vlinder_transaction::Engine;

use crate::inode::Inode;
use crate::subvolume::place_in_tree;
use crate::{Refusal, Result};

/// The index for a new name; the caller holds the directory's operation lock exclusively. Numbers go up
/// from the highest that is or waits to be in the tree. The last one, 2^64-1, is given to no name: no
/// other could follow.
///
/// # Errors
/// [`Refusal::IndexUsedUp`]; what reading met.
pub(crate) fn take_index(engine: &Engine, directory: &Inode) -> Result<DirectoryIndex> {
    let next = first_free_index(engine, directory)?;
    let following = next.0.checked_add(1).ok_or(Refusal::IndexUsedUp)?;
    directory.state().next_index = Some(DirectoryIndex(following));
    Ok(next)
}

/// The index behind the highest, searched for once and remembered (Linux: `index_cnt` of the directory). The
/// caller holds the directory's operation lock, so no name is made meanwhile. The last index, 2^64-1, stands
/// as well for none: a name may have it already, and none is given it.
pub(crate) fn first_free_index(engine: &Engine, directory: &Inode) -> Result<DirectoryIndex> {
    let known = directory.state().next_index;
    if let Some(next) = known {
        return Ok(next);
    }
    let found = search_first_free_index(engine, directory)?;
    directory.state().next_index = Some(found);
    Ok(found)
}

fn search_first_free_index(engine: &Engine, directory: &Inode) -> Result<DirectoryIndex> {
    let tree = directory.subvolume().tree();
    let last = directory::index_key(directory.number(), DirectoryIndex(u64::MAX));
    let end = end_of_indexes(directory);
    let mut next = DirectoryIndex::FIRST;
    let is_index = |key: &Key| key.objectid == directory.number() && key.item_type == ItemType::DIR_INDEX;
    if let Some(last) =
        engine.forest().trees().floor(tree.root(), &last)?.filter(|last| is_index(&last.key()))
    {
        next = next.max(DirectoryIndex(last.key().offset.saturating_add(1)));
    }
    loop {
        let from = directory::index_key(directory.number(), next);
        let waiting = engine.reader().items(tree, from, end, 4096)?;
        let Some((last, _)) = waiting.last() else { return Ok(next) };
        match last.offset.checked_add(1) {
            Some(following) => next = DirectoryIndex(following),
            None => return Ok(DirectoryIndex(u64::MAX)),
        }
    }
}

/// A name's index, for one that no reference knows: found by reading the whole directory.
pub(crate) fn find_index(engine: &Engine, directory: &Inode, name: &[u8]) -> Result<DirectoryIndex> {
    let tree = directory.subvolume().tree();
    let end = end_of_indexes(directory);
    let mut next = DirectoryIndex::FIRST;
    loop {
        let items = engine.reader().items(tree, directory::index_key(directory.number(), next), end, 4096)?;
        for (key, data) in &items {
            let entry = DirectoryEntry::decode(data)
                .map_err(|fault| Damage::new(fault, place_in_tree(directory.subvolume(), *key)))?;
            if entry.name == name {
                return Ok(DirectoryIndex(key.offset));
            }
        }
        let following = items.last().and_then(|(last, _)| last.offset.checked_add(1));
        next = DirectoryIndex(following.ok_or(Refusal::NotFound)?);
    }
}

/// The first key behind all indexes of a directory: one with the last index, 2^64-1, lies before it.
pub(crate) fn end_of_indexes(directory: &Inode) -> Key {
    let behind = ItemType(ItemType::DIR_INDEX.0.saturating_add(1));
    Key::new(directory.number(), behind, 0)
}
