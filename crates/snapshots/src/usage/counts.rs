//! How many references extents have, looked up in the order of their addresses.
//!
//! A look-up moves a cursor of the extent tree on. If the leaf that the cursor is in has the extent, nothing
//! is searched: many look-ups in the order of addresses are a walk of the leaves, and few are a descent each.
//! So one mechanism serves both, and only the readahead has to be chosen: a caller that will ask for at least
//! one extent in each fourth leaf reads ahead.

use vlinder_base::sync::Arc;
use vlinder_forest::{Forest, OpenTree};
use vlinder_format::extent::{ExtentFlags, ExtentItem};
use vlinder_format::{Damage, ItemType, Key, Logical, ObjectId, RootId};
use vlinder_tree::{Cursor, Readahead};

use super::error::{ExtentKind, UsageError};

/// Leaves of the extent tree that are read ahead.
const READ_AHEAD: usize = 32;
/// Leaves of the extent tree for each look-up, up to which leaves are read ahead.
const DENSE_LEAVES: u64 = 4;

/// What the extent tree says of an extent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Counted {
    /// References to it.
    pub references: u64,
    /// Its bytes on disk.
    pub disk_bytes: u64,
}

/// The extent tree's counts of references.
pub(super) struct ReferenceCounts<'a> {
    forest: &'a Forest,
    extent_tree: Arc<OpenTree>,
    node_bytes: u64,
    /// None before the first look-up, and after the readahead was chosen anew.
    cursor: Option<Cursor<'a>>,
    readahead: Readahead,
}

impl<'a> ReferenceCounts<'a> {
    pub(super) fn new(forest: &'a Forest) -> Result<Self, UsageError> {
        let extent_tree = forest.tree(RootId::EXTENT_TREE)?;
        let node_bytes = u64::from(forest.trees().source().node_size()).max(1);
        Ok(Self { forest, extent_tree, node_bytes, cursor: None, readahead: Readahead::None })
    }

    /// Chooses the readahead for so many look-ups in the order of addresses.
    pub(super) fn expect(&mut self, look_ups: usize) {
        let leaves = self.extent_tree.item().bytes_used / self.node_bytes;
        let look_ups = u64::try_from(look_ups).unwrap_or(u64::MAX);
        let dense = look_ups.saturating_mul(DENSE_LEAVES) >= leaves;
        let readahead = if dense { Readahead::Forward(READ_AHEAD) } else { Readahead::None };
        if readahead != self.readahead {
            self.readahead = readahead;
            self.cursor = None;
        }
    }

    /// Looks up the extent that begins at an address.
    pub(super) fn look_up(&mut self, address: Logical, kind: ExtentKind) -> Result<Counted, UsageError> {
        let key = Key::new(ObjectId(address.0), ItemType::EXTENT_ITEM, 0);
        let cursor = match &mut self.cursor {
            Some(cursor) => {
                cursor.seek_near(&key)?;
                cursor
            }
            none => none.insert(self.forest.trees().cursor(self.extent_tree.root(), &key, self.readahead)?),
        };
        let missing = UsageError::NotAllocated { kind, address };
        let Some((found, data)) = cursor.item() else { return Err(missing) };
        let disk_bytes = match found.item_type {
            ItemType::EXTENT_ITEM => found.offset,
            ItemType::METADATA_ITEM => self.node_bytes,
            _ => return Err(missing),
        };
        if found.objectid.0 != address.0 {
            return Err(missing);
        }
        let header = ExtentItem::decode_header(data).map_err(|fault| Damage::new(fault, cursor.place()))?;
        if header.flags.has(ExtentFlags::DATA) != (kind == ExtentKind::Data) {
            return Err(missing);
        }
        Ok(Counted { references: header.references, disk_bytes })
    }
}
