//! The extents of a state, in the order of their addresses.

use vlinder_base::sync::Arc;
use vlinder_format::extent::{ExtentFlags, ExtentItem};
use vlinder_format::{Damage, ItemType, Key, Logical, ObjectId, RootId};
use vlinder_tree::{Cursor, Readahead};

use crate::{Forest, ForestError, FoundExtent, OpenTree};

/// Leaves that a walk reads ahead.
const READ_AHEAD: usize = 8;

/// A walk over the extents of a state: data and tree blocks, in the order of their addresses.
pub struct ExtentWalk<'a> {
    cursor: Cursor<'a>,
    /// Keeps the tree open that the cursor walks.
    _tree: Arc<OpenTree>,
    node_bytes: u64,
    end: Logical,
}

impl Forest {
    /// The extents that begin in a range of addresses.
    ///
    /// # Errors
    /// What opening or reading the extent tree met.
    pub fn extents(&self, range: std::ops::Range<Logical>) -> Result<ExtentWalk<'_>, ForestError> {
        let tree = self.tree(RootId::EXTENT_TREE)?;
        let first = Key::new(ObjectId(range.start.0), ItemType(0), 0);
        let cursor = self.trees().cursor(tree.root(), &first, Readahead::Forward(READ_AHEAD))?;
        let node_bytes = u64::from(self.trees().source().node_size());
        Ok(ExtentWalk { cursor, _tree: tree, node_bytes, end: range.end })
    }
}

impl ExtentWalk<'_> {
    /// The next extent; none behind the last one.
    ///
    /// # Errors
    /// What reading the extent tree met, or an item that breaks its rules.
    pub fn next_extent(&mut self) -> Result<Option<FoundExtent>, ForestError> {
        while let Some((key, data)) = self.cursor.item().filter(|(key, _)| key.objectid.0 < self.end.0) {
            let length_bytes = match key.item_type {
                ItemType::EXTENT_ITEM => key.offset,
                ItemType::METADATA_ITEM => self.node_bytes,
                // References of their own, and items of block groups.
                _ => {
                    self.cursor.advance()?;
                    continue;
                }
            };
            let header =
                ExtentItem::decode_header(data).map_err(|fault| Damage::new(fault, self.cursor.place()))?;
            let extent = FoundExtent {
                start: Logical(key.objectid.0),
                length_bytes,
                is_data: header.flags.has(ExtentFlags::DATA),
                generation: header.generation,
                references: header.references,
            };
            self.cursor.advance()?;
            return Ok(Some(extent));
        }
        Ok(None)
    }
}
