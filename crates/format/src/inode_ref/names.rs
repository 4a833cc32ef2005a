//! The names of an inode in its items: reading, finding, adding and removing them.

use vlinder_codec::name_hash::extref_hash;

use super::fault::InodeReferenceFault;
use super::raw::{EXTENDED_HEADER_SIZE, ExtendedHeader, REFERENCE_HEADER_SIZE, ReferenceHeader};
use crate::directory::DirectoryIndex;
use crate::key::{ItemType, Key};
use crate::layout::Layout;
use crate::record::widen_usize;
use crate::types::ObjectId;

/// The key of an inode's names in one directory.
#[must_use]
pub const fn key(inode: ObjectId, parent: ObjectId) -> Key {
    Key::new(inode, ItemType::INODE_REF, parent.0)
}

/// The key of a name that does not fit the INODE_REF.
#[must_use]
pub fn extended_key(inode: ObjectId, parent: ObjectId, name: &[u8]) -> Key {
    Key::new(inode, ItemType::INODE_EXTREF, extref_hash(parent.0, name))
}

/// One name of an inode in the directory that the item's key names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct InodeReference<'a> {
    /// Its place in the directory's order.
    pub index: DirectoryIndex,
    /// The name.
    pub name: &'a [u8],
}

/// One name of an inode, with the directory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ExtendedReference<'a> {
    /// The directory.
    pub parent: ObjectId,
    /// Its place in the directory's order.
    pub index: DirectoryIndex,
    /// The name.
    pub name: &'a [u8],
}

impl<'a> InodeReference<'a> {
    /// Bytes of the entry in an item.
    #[must_use]
    pub const fn encoded_len(&self) -> usize {
        REFERENCE_HEADER_SIZE.saturating_add(self.name.len())
    }

    /// The bytes of an item of this name alone.
    ///
    /// # Panics
    /// As [`InodeReference::append_to`].
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        let mut item = Vec::with_capacity(self.encoded_len());
        self.append_to(&mut item);
        item
    }

    /// Appends the name to an item.
    ///
    /// # Panics
    /// If the name is longer than 65,535 bytes; the callers' limit is 255.
    pub fn append_to(&self, item: &mut Vec<u8>) {
        let header = ReferenceHeader { index: self.index, name_len: name_length(self.name) };
        item.extend_from_slice(&header.to_array());
        item.extend_from_slice(self.name);
    }

    fn split(bytes: &'a [u8]) -> Result<(Self, &'a [u8]), InodeReferenceFault> {
        let (header, rest) =
            ReferenceHeader::split_from(bytes).ok_or(InodeReferenceFault::Header { found: bytes.len() })?;
        let (name, rest) = split_name(rest, header.name_len)?;
        Ok((Self { index: header.index, name }, rest))
    }
}

impl<'a> ExtendedReference<'a> {
    /// Bytes of the entry in an item.
    #[must_use]
    pub const fn encoded_len(&self) -> usize {
        EXTENDED_HEADER_SIZE.saturating_add(self.name.len())
    }

    /// The bytes of an item of this name alone.
    ///
    /// # Panics
    /// As [`ExtendedReference::append_to`].
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        let mut item = Vec::with_capacity(self.encoded_len());
        self.append_to(&mut item);
        item
    }

    /// Appends the name to an item.
    ///
    /// # Panics
    /// If the name is longer than 65,535 bytes; the callers' limit is 255.
    pub fn append_to(&self, item: &mut Vec<u8>) {
        let header =
            ExtendedHeader { parent: self.parent, index: self.index, name_len: name_length(self.name) };
        item.extend_from_slice(&header.to_array());
        item.extend_from_slice(self.name);
    }

    fn split(bytes: &'a [u8]) -> Result<(Self, &'a [u8]), InodeReferenceFault> {
        let (header, rest) =
            ExtendedHeader::split_from(bytes).ok_or(InodeReferenceFault::Header { found: bytes.len() })?;
        let (name, rest) = split_name(rest, header.name_len)?;
        Ok((Self { parent: header.parent, index: header.index, name }, rest))
    }
}

fn name_length(name: &[u8]) -> u16 {
    let length = u16::try_from(name.len());
    assert!(length.is_ok(), "a name of {} bytes", name.len());
    length.unwrap_or(0)
}

fn split_name(bytes: &[u8], length: u16) -> Result<(&[u8], &[u8]), InodeReferenceFault> {
    let found = widen_usize(length);
    bytes.split_at_checked(found).ok_or(InodeReferenceFault::Name { found, available: bytes.len() })
}

macro_rules! entries {
    ($(#[$doc:meta])* $name:ident of $entry:ident) => {
        $(#[$doc])*
        #[derive(Clone, Debug)]
        pub struct $name<'a> {
            rest: &'a [u8],
        }

        impl<'a> $name<'a> {
            /// The names in an item's data.
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

        impl<'a> Iterator for $name<'a> {
            type Item = Result<$entry<'a>, InodeReferenceFault>;

            fn next(&mut self) -> Option<Self::Item> {
                if self.rest.is_empty() {
                    return None;
                }
                match $entry::split(self.rest) {
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

        impl core::iter::FusedIterator for $name<'_> {}

        impl $name<'_> {
            /// Where the first entry that `wanted` accepts begins and ends in an item.
            fn position(item: &[u8], wanted: impl Fn(&$entry<'_>) -> bool) -> Result<Option<(usize, usize)>, InodeReferenceFault> {
                let mut entries = $name::new(item);
                let mut start = 0usize;
                while let Some(entry) = entries.next() {
                    let end = item.len().saturating_sub(entries.remaining_bytes());
                    if wanted(&entry?) {
                        return Ok(Some((start, end)));
                    }
                    start = end;
                }
                Ok(None)
            }
        }
    };
}

entries! {
    /// The names in an INODE_REF, in order. After a fault there are no more.
    InodeReferences of InodeReference
}
entries! {
    /// The names in an INODE_EXTREF, in order. After a fault there are no more.
    ExtendedReferences of ExtendedReference
}

/// The entry of a name in an INODE_REF.
///
/// # Errors
/// What [`InodeReferences`] finds before the name.
pub fn find<'a>(data: &'a [u8], name: &[u8]) -> Result<Option<InodeReference<'a>>, InodeReferenceFault> {
    for entry in InodeReferences::new(data) {
        let entry = entry?;
        if entry.name == name {
            return Ok(Some(entry));
        }
    }
    Ok(None)
}

/// The entry of a name in an INODE_EXTREF.
///
/// # Errors
/// What [`ExtendedReferences`] finds before the name.
pub fn find_extended<'a>(
    data: &'a [u8],
    parent: ObjectId,
    name: &[u8],
) -> Result<Option<ExtendedReference<'a>>, InodeReferenceFault> {
    for entry in ExtendedReferences::new(data) {
        let entry = entry?;
        if entry.parent == parent && entry.name == name {
            return Ok(Some(entry));
        }
    }
    Ok(None)
}

/// Removes a name from an INODE_REF; false if it is not there. An item without names is to be deleted.
///
/// # Errors
/// What [`InodeReferences`] finds before the name.
pub fn remove(item: &mut Vec<u8>, name: &[u8]) -> Result<bool, InodeReferenceFault> {
    let position = InodeReferences::position(item, |entry| entry.name == name)?;
    Ok(drain(item, position))
}

/// Removes a name from an INODE_EXTREF; false if it is not there. An item without names is to be deleted.
///
/// # Errors
/// What [`ExtendedReferences`] finds before the name.
pub fn remove_extended(
    item: &mut Vec<u8>,
    parent: ObjectId,
    name: &[u8],
) -> Result<bool, InodeReferenceFault> {
    let position = ExtendedReferences::position(item, |entry| entry.parent == parent && entry.name == name)?;
    Ok(drain(item, position))
}

fn drain(item: &mut Vec<u8>, position: Option<(usize, usize)>) -> bool {
    let Some((start, end)) = position else {
        return false;
    };
    item.drain(start..end);
    true
}

/// The fields of an INODE_REF.
pub(crate) fn lay_out(layout: &mut Layout<'_>) {
    while let Some(header) = layout.record::<ReferenceHeader>() {
        layout.bytes("ReferenceHeader", "name", widen_usize(header.name_len));
    }
}

/// The fields of an INODE_EXTREF.
pub(crate) fn lay_out_extended(layout: &mut Layout<'_>) {
    while let Some(header) = layout.record::<ExtendedHeader>() {
        layout.bytes("ExtendedHeader", "name", widen_usize(header.name_len));
    }
}
