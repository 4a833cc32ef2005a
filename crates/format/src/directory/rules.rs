//! What must hold of a directory item (kernel: `check_dir_item`).

use vlinder_codec::name_hash::name_hash;

use super::entry::{DirectoryEntries, DirectoryEntry};
use super::entry_type::DirectoryEntryType;
use super::fault::DirectoryFault;
use super::name::LONGEST_NAME;
use super::raw::ENTRY_HEADER_SIZE;
use crate::block::{HEADER_SIZE, ITEM_HEADER_SIZE};
use crate::inode::is_inode_number;
use crate::key::{ItemType, Key};
use crate::rules::{ItemContext, is_file_tree};
use crate::types::RootId;

/// The most bytes that the name and value of one attribute may have together (`BTRFS_MAX_XATTR_SIZE`).
#[must_use]
pub fn largest_entry_bytes(node_size: u32) -> usize {
    const OVERHEAD: usize = HEADER_SIZE + ITEM_HEADER_SIZE + ENTRY_HEADER_SIZE;
    usize::try_from(node_size).unwrap_or(usize::MAX).saturating_sub(OVERHEAD)
}

/// Checks a DIR_ITEM, DIR_INDEX or XATTR_ITEM.
///
/// # Errors
/// The first rule that it breaks.
pub fn check(key: &Key, data: &[u8], context: &ItemContext<'_>) -> Result<(), DirectoryFault> {
    if let Some(found) = context.foreign_inode_before(key) {
        return Err(DirectoryFault::MissingInode { found });
    }
    if data.is_empty() {
        return Err(DirectoryFault::Empty);
    }
    let most = largest_entry_bytes(context.rules.node_size);
    let mut entries = DirectoryEntries::new(data);
    while let Some(entry) = entries.next() {
        check_entry(key, &entry?, most)?;
        // Linux reads only the first entry under an index; a second would be a name that cannot be listed.
        if key.item_type == ItemType::DIR_INDEX && entries.remaining_bytes() > 0 {
            return Err(DirectoryFault::EntryCount { trailing: entries.remaining_bytes() });
        }
    }
    Ok(())
}

fn check_entry(key: &Key, entry: &DirectoryEntry<'_>, most: usize) -> Result<(), DirectoryFault> {
    let is_attribute = key.item_type == ItemType::XATTR_ITEM;
    check_location(&entry.location, is_attribute)?;
    let known = DirectoryEntryType::REGULAR..=DirectoryEntryType::EXTENDED_ATTRIBUTE;
    if !known.contains(&entry.entry_type) {
        return Err(DirectoryFault::UnknownType { found: entry.entry_type });
    }
    if is_attribute != (entry.entry_type == DirectoryEntryType::EXTENDED_ATTRIBUTE) {
        return Err(DirectoryFault::TypeOfKey { found: entry.entry_type, key_type: key.item_type });
    }
    if entry.name.is_empty() {
        return Err(DirectoryFault::EmptyName);
    }
    if entry.name.len() > LONGEST_NAME {
        return Err(DirectoryFault::NameLength { found: entry.name.len() });
    }
    let found = entry.name.len().saturating_add(entry.data.len());
    if found > most {
        return Err(DirectoryFault::EntryLength { found, most });
    }
    if !is_attribute && !entry.data.is_empty() {
        return Err(DirectoryFault::Data { found: entry.data.len() });
    }
    if key.item_type != ItemType::DIR_INDEX {
        let found = name_hash(entry.name);
        if found != key.offset {
            return Err(DirectoryFault::Hash { found, expected: key.offset });
        }
    }
    Ok(())
}

fn check_location(location: &Key, is_attribute: bool) -> Result<(), DirectoryFault> {
    if is_attribute {
        return if *location == Key::MIN {
            Ok(())
        } else {
            Err(DirectoryFault::Location { found: *location })
        };
    }
    match location.item_type {
        ItemType::INODE_ITEM if is_inode_number(location.objectid) && location.offset == 0 => Ok(()),
        ItemType::INODE_ITEM => Err(DirectoryFault::Location { found: *location }),
        ItemType::ROOT_ITEM if is_file_tree(RootId(location.objectid.0)) => Ok(()),
        ItemType::ROOT_ITEM => Err(DirectoryFault::LocationRoot { found: RootId(location.objectid.0) }),
        found => Err(DirectoryFault::LocationType { found }),
    }
}
