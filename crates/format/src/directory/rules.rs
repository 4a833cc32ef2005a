//! What must hold of a directory item (kernel: `check_dir_item`).

use vlinder_codec::name_hash::name_hash;

use super::{DirectoryEntries, DirectoryEntry, DirectoryEntryType, ENTRY_HEADER_SIZE, LONGEST_NAME};
use crate::block::{HEADER_SIZE, ITEM_HEADER_SIZE};
use crate::inode::is_inode_number;
use crate::key::{ItemType, Key};
use crate::types::{ObjectId, RootId};
use crate::validate::{ItemContext, is_file_tree};

/// How a directory item or extended attribute can be wrong.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum DirectoryFault {
    /// The item has no entry.
    #[error("a directory item without entries")]
    Empty,
    /// The item ends inside an entry's header.
    #[error("{found} bytes where an entry's header of {ENTRY_HEADER_SIZE} should be")]
    Header {
        /// Bytes up to the end of the item.
        found: usize,
    },
    /// The item ends inside an entry's name or data.
    #[error("a name of {name_len} and data of {data_len} bytes in an item that ends after {available}")]
    Entry {
        /// In the entry.
        name_len: usize,
        /// In the entry.
        data_len: usize,
        /// Bytes up to the end of the item.
        available: usize,
    },
    /// Where one entry belongs, more bytes follow it.
    #[error("{trailing} bytes after the only entry that belongs here")]
    EntryCount {
        /// Bytes after the first entry.
        trailing: usize,
    },
    /// The inode's item is missing: another inode's item comes before.
    #[error("preceded by an item of inode {found}, not by the inode's own")]
    MissingInode {
        /// Object id of the item before.
        found: ObjectId,
    },
    /// The entry stands neither for an inode nor for a subvolume, or an attribute stands for something.
    #[error("the entry's location is of type {found}")]
    LocationType {
        /// In the location.
        found: ItemType,
    },
    /// The location is no inode that there can be, or an attribute's is not zero.
    #[error("the entry's location {found} is not valid")]
    Location {
        /// In the entry.
        found: Key,
    },
    /// The entry stands for a tree that is no subvolume.
    #[error("the entry stands for tree {found}, which is no subvolume")]
    LocationRoot {
        /// In the location.
        found: RootId,
    },
    /// The type of entry is not known.
    #[error("the entry's type {found} is not known")]
    UnknownType {
        /// In the entry.
        found: DirectoryEntryType,
    },
    /// An attribute among names, or a name among attributes.
    #[error("an entry of type {found} under a key of type {key_type}")]
    TypeOfKey {
        /// In the entry.
        found: DirectoryEntryType,
        /// In the item's key.
        key_type: ItemType,
    },
    /// A name without bytes.
    #[error("an empty name")]
    EmptyName,
    /// A name longer than names may be.
    #[error("a name of {found} bytes; at most {LONGEST_NAME} are allowed")]
    NameLength {
        /// In the entry.
        found: usize,
    },
    /// Name and value do not fit a leaf together.
    #[error("name and value have {found} bytes; at most {most} fit")]
    EntryLength {
        /// In the entry.
        found: usize,
        /// For this node size.
        most: usize,
    },
    /// The name of a file carries data.
    #[error("the name of a file carries {found} bytes of data")]
    Data {
        /// In the entry.
        found: usize,
    },
    /// The key's offset is not the hash of the name.
    #[error("the name's hash is {found:#x}, the key's {expected:#x}")]
    Hash {
        /// Of the name.
        found: u64,
        /// In the key.
        expected: u64,
    },
}

/// Whether a name can be that of a file: 1 to 255 bytes, no slash, no zero byte, not `.` or `..`.
///
/// The rules for items do not ask this, as Linux does not; whoever hands names to a host's file system must.
#[must_use]
pub fn is_valid_name(name: &[u8]) -> bool {
    !name.is_empty()
        && name.len() <= LONGEST_NAME
        && name != b"."
        && name != b".."
        && !name.iter().any(|byte| matches!(byte, b'/' | 0))
}

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
