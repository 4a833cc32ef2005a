//! References between subvolumes: where a subvolume's name lies.
//!
//! Both keys carry the same data in the root tree: (parent subvolume, ROOT_REF, subvolume) and
//! (subvolume, ROOT_BACKREF, parent subvolume). A subvolume has one name.
//!
//! ```text
//! 0           8       16            18
//! | directory | index | name length | name |
//! ```
//! Source: `struct btrfs_root_ref`.

mod raw;

use raw::RootReferenceHeader;

use crate::directory::{DirectoryIndex, LONGEST_NAME};
use crate::key::{ItemType, Key};
use crate::layout::Layout;
use crate::record::widen_usize;
use crate::rules::ItemContext;
use crate::types::{ObjectId, RootId};

/// Bytes before the name.
pub const HEADER_SIZE: usize = RootReferenceHeader::SIZE;

/// How a ROOT_REF or ROOT_BACKREF can be wrong.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RootReferenceFault {
    /// The item is too short for any reference.
    #[error("{found} bytes, where a reference has at least {HEADER_SIZE}")]
    Header {
        /// Bytes of the item.
        found: usize,
    },
    /// The item's size is not that of the header and the name.
    #[error("a name of {expected} bytes in an item that has {found} for it")]
    Name {
        /// Bytes after the header.
        found: usize,
        /// In the header.
        expected: usize,
    },
    /// A name of no bytes or too many.
    #[error("a name of {found} bytes; 1 to {LONGEST_NAME} are allowed")]
    NameLength {
        /// In the item.
        found: usize,
    },
}

/// Where a subvolume's name lies in its parent. The name is borrowed from the item.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RootReference<'a> {
    /// The directory in the parent subvolume.
    pub directory: ObjectId,
    /// The name's place in the directory's order (`sequence`).
    pub index: DirectoryIndex,
    /// The name.
    pub name: &'a [u8],
}

impl<'a> RootReference<'a> {
    /// The key under which a parent finds its subvolume.
    #[must_use]
    pub const fn forward_key(parent: RootId, subvolume: RootId) -> Key {
        Key::new(parent.object_id(), ItemType::ROOT_REF, subvolume.0)
    }

    /// The key under which a subvolume finds its parent.
    #[must_use]
    pub const fn backward_key(subvolume: RootId, parent: RootId) -> Key {
        Key::new(subvolume.object_id(), ItemType::ROOT_BACKREF, parent.0)
    }

    /// Reads a reference from an item's data.
    ///
    /// # Errors
    /// [`RootReferenceFault::Header`] or [`RootReferenceFault::Name`].
    pub fn decode(data: &'a [u8]) -> Result<Self, RootReferenceFault> {
        let (header, name) =
            RootReferenceHeader::split_from(data).ok_or(RootReferenceFault::Header { found: data.len() })?;
        let expected = widen_usize(header.name_len);
        if name.len() != expected {
            return Err(RootReferenceFault::Name { found: name.len(), expected });
        }
        Ok(Self { directory: header.directory, index: header.index, name })
    }

    /// The item's bytes.
    ///
    /// # Panics
    /// If the name is longer than 65,535 bytes; the callers' limit is 255.
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        let name_len = u16::try_from(self.name.len());
        assert!(name_len.is_ok(), "a name of {} bytes", self.name.len());
        let header = RootReferenceHeader {
            directory: self.directory,
            index: self.index,
            name_len: name_len.unwrap_or(0),
        };
        let mut item = Vec::with_capacity(HEADER_SIZE.saturating_add(self.name.len()));
        item.extend_from_slice(&header.to_array());
        item.extend_from_slice(self.name);
        item
    }
}

/// Checks a ROOT_REF or ROOT_BACKREF.
///
/// # Errors
/// The first rule that it breaks.
pub fn check(_key: &Key, data: &[u8], _context: &ItemContext<'_>) -> Result<(), RootReferenceFault> {
    let reference = RootReference::decode(data)?;
    if reference.name.is_empty() || reference.name.len() > LONGEST_NAME {
        return Err(RootReferenceFault::NameLength { found: reference.name.len() });
    }
    Ok(())
}

/// The fields of a reference.
pub(crate) fn lay_out(layout: &mut Layout<'_>) {
    layout.record::<RootReferenceHeader>();
    layout.rest("RootReferenceHeader", "name");
}

#[cfg(test)]
mod tests;
