//! One name in a directory, or one extended attribute, and the items that hold them.

use vlinder_codec::name_hash::name_hash;

use super::entry_type::DirectoryEntryType;
use super::fault::DirectoryFault;
use super::index::DirectoryIndex;
use super::raw::{ENTRY_HEADER_SIZE, EntryHeader};
use crate::key::{ItemType, Key};
use crate::layout::Layout;
use crate::record::widen_usize;
use crate::types::{Generation, ObjectId};

/// The key of a name by hash.
#[must_use]
pub fn item_key(directory: ObjectId, name: &[u8]) -> Key {
    Key::new(directory, ItemType::DIR_ITEM, name_hash(name))
}

/// The key of a name by order of creation.
#[must_use]
pub const fn index_key(directory: ObjectId, index: DirectoryIndex) -> Key {
    Key::new(directory, ItemType::DIR_INDEX, index.0)
}

/// The key of an extended attribute.
#[must_use]
pub fn attribute_key(inode: ObjectId, name: &[u8]) -> Key {
    Key::new(inode, ItemType::XATTR_ITEM, name_hash(name))
}

/// One name in a directory, or one extended attribute. It borrows name and value from the item.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DirectoryEntry<'a> {
    /// Key of the inode item or root item that the name stands for; all zero for an attribute.
    pub location: Key,
    /// The transaction that made the entry.
    pub transaction: Generation,
    /// What the name stands for.
    pub entry_type: DirectoryEntryType,
    /// The name.
    pub name: &'a [u8],
    /// The attribute's value; empty for names of files.
    pub data: &'a [u8],
}

impl<'a> DirectoryEntry<'a> {
    /// An extended attribute as Linux writes it.
    #[must_use]
    pub const fn attribute(name: &'a [u8], value: &'a [u8], transaction: Generation) -> Self {
        let entry_type = DirectoryEntryType::EXTENDED_ATTRIBUTE;
        Self { location: Key::MIN, transaction, entry_type, name, data: value }
    }

    /// Reads an item of exactly one entry, as every DIR_INDEX is.
    ///
    /// # Errors
    /// What [`DirectoryEntries`] finds, or [`DirectoryFault::EntryCount`].
    pub fn decode(data: &'a [u8]) -> Result<Self, DirectoryFault> {
        let (entry, rest) = split_entry(data)?;
        if rest.is_empty() { Ok(entry) } else { Err(DirectoryFault::EntryCount { trailing: rest.len() }) }
    }

    /// Bytes of the entry in an item.
    #[must_use]
    pub const fn encoded_len(&self) -> usize {
        ENTRY_HEADER_SIZE.saturating_add(self.name.len()).saturating_add(self.data.len())
    }

    /// The bytes of an item of this entry alone.
    ///
    /// # Panics
    /// As [`DirectoryEntry::append_to`].
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        let mut item = Vec::with_capacity(self.encoded_len());
        self.append_to(&mut item);
        item
    }

    /// Appends the entry to an item.
    ///
    /// # Panics
    /// If name or data are longer than 65,535 bytes, which the callers' own limits exclude.
    pub fn append_to(&self, item: &mut Vec<u8>) {
        let (name_len, data_len) = (u16::try_from(self.name.len()), u16::try_from(self.data.len()));
        assert!(name_len.is_ok() && data_len.is_ok(), "a directory entry of {} bytes", self.encoded_len());
        let header = EntryHeader {
            location: self.location,
            transid: self.transaction,
            data_len: data_len.unwrap_or(0),
            name_len: name_len.unwrap_or(0),
            entry_type: self.entry_type,
        };
        item.extend_from_slice(&header.to_array());
        item.extend_from_slice(self.name);
        item.extend_from_slice(self.data);
    }
}

/// The entries of one item, in order. After a fault there are no more.
#[derive(Clone, Debug)]
pub struct DirectoryEntries<'a> {
    rest: &'a [u8],
}

impl<'a> DirectoryEntries<'a> {
    /// The entries in an item's data.
    #[must_use]
    pub const fn new(data: &'a [u8]) -> Self {
        Self { rest: data }
    }

    /// Bytes that have not been read yet.
    #[must_use]
    pub const fn remaining_bytes(&self) -> usize {
        self.rest.len()
    }
}

impl<'a> Iterator for DirectoryEntries<'a> {
    type Item = Result<DirectoryEntry<'a>, DirectoryFault>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.rest.is_empty() {
            return None;
        }
        match split_entry(self.rest) {
            Ok((entry, rest)) => {
                self.rest = rest;
                Some(Ok(entry))
            }
            Err(fault) => {
                self.rest = &[];
                Some(Err(fault))
            }
        }
    }
}

impl core::iter::FusedIterator for DirectoryEntries<'_> {}

/// The entry of a name among those of an item.
///
/// # Errors
/// What [`DirectoryEntries`] finds before the name.
pub fn find<'a>(data: &'a [u8], name: &[u8]) -> Result<Option<DirectoryEntry<'a>>, DirectoryFault> {
    for entry in DirectoryEntries::new(data) {
        let entry = entry?;
        if entry.name == name {
            return Ok(Some(entry));
        }
    }
    Ok(None)
}

/// Removes the entry of a name from an item; false if there is none. An item without entries is to be
/// deleted.
///
/// # Errors
/// What [`DirectoryEntries`] finds before the name.
pub fn remove(item: &mut Vec<u8>, name: &[u8]) -> Result<bool, DirectoryFault> {
    let Some((start, end)) = position(item, name)? else {
        return Ok(false);
    };
    item.drain(start..end);
    Ok(true)
}

/// Where the entry of a name begins and ends in an item.
fn position(item: &[u8], name: &[u8]) -> Result<Option<(usize, usize)>, DirectoryFault> {
    let mut entries = DirectoryEntries::new(item);
    let mut start = 0usize;
    while let Some(entry) = entries.next() {
        let end = item.len().saturating_sub(entries.remaining_bytes());
        if entry?.name == name {
            return Ok(Some((start, end)));
        }
        start = end;
    }
    Ok(None)
}

fn split_entry(bytes: &[u8]) -> Result<(DirectoryEntry<'_>, &[u8]), DirectoryFault> {
    let (header, rest) =
        EntryHeader::split_from(bytes).ok_or(DirectoryFault::Header { found: bytes.len() })?;
    let (name_len, data_len) = (widen_usize(header.name_len), widen_usize(header.data_len));
    let overrun = || DirectoryFault::Entry { name_len, data_len, available: rest.len() };
    let (name, after_name) = rest.split_at_checked(name_len).ok_or_else(overrun)?;
    let (data, after_data) = after_name.split_at_checked(data_len).ok_or_else(overrun)?;
    let entry = DirectoryEntry {
        location: header.location,
        transaction: header.transid,
        entry_type: header.entry_type,
        name,
        data,
    };
    Ok((entry, after_data))
}

/// The fields of the entries of an item.
pub(crate) fn lay_out(layout: &mut Layout<'_>) {
    while let Some(header) = layout.record::<EntryHeader>() {
        layout.bytes("EntryHeader", "name", widen_usize(header.name_len));
        layout.bytes("EntryHeader", "data", widen_usize(header.data_len));
    }
}
