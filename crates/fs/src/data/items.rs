//! Reading the EXTENT_DATA items of a file.

use vlinder_extent_state::ByteRange;
use vlinder_format::file_extent::FileExtent;
use vlinder_format::{Damage, FileOffset, ItemType, Key, ObjectId, Place};
use vlinder_transaction::{Engine, Tree};
use vlinder_tree::Readahead;

use super::extent::Extent;
use crate::Result;

/// Leaves that a walk over many items reads ahead.
const LEAVES_AHEAD: usize = 16;
/// So many bytes of a file are likely to have items in more than one leaf.
const LONG_RANGE: u64 = 16 << 20;

/// The items that overlap a range, as far as they were loaded.
#[derive(Debug, Default)]
pub(crate) struct Items {
    /// In order.
    pub(crate) extents: Vec<Extent>,
    /// Up to here (at most the end of the range) every item is among them.
    pub(crate) complete_to: u64,
}

/// Loads the items of an inode that overlap a range, at most about `limit` of them.
pub(crate) fn load(
    engine: &Engine,
    tree: &Tree,
    inode: ObjectId,
    range: ByteRange,
    limit: usize,
) -> Result<Items> {
    let sector_size = u64::from(engine.sector_size());
    let readahead =
        if range.length_bytes() >= LONG_RANGE { Readahead::Forward(LEAVES_AHEAD) } else { Readahead::None };
    let mut items = Items { extents: Vec::new(), complete_to: range.end() };
    let first = FileExtent::key(inode, FileOffset(range.start()));
    let mut cursor = engine.trees().cursor(tree.root(), &first, readahead)?;
    if cursor.key() != Some(first) {
        // What lies before the range may reach into it.
        let in_leaf = cursor.position().and_then(|position| position.previous_in_leaf());
        let before = match in_leaf {
            Some((key, data)) => {
                let block = cursor.position().map(|position| position.leaf().logical());
                let place = Place { tree: Some(tree.id()), block, slot: None, key: Some(key) };
                decode_of(inode, key, data, place)?
            }
            None => match engine.trees().floor(tree.root(), &first)? {
                Some(found) => decode_of(inode, found.key(), found.data(), found.place(tree.id()))?,
                None => None,
            },
        };
        items.extents.extend(before.filter(|extent| extent.file_range(sector_size).overlaps(range)));
    }
    while let Some((key, data)) = cursor.item() {
        if key.offset >= range.end() {
            break;
        }
        let Some(extent) = decode_of(inode, key, data, cursor.place())? else { break };
        if items.extents.len() >= limit {
            items.complete_to = key.offset;
            break;
        }
        let reaches_end = extent.file_range(sector_size).end() >= range.end();
        items.extents.push(extent);
        // The next leaf may be damaged, and has nothing of the range.
        if reaches_end {
            break;
        }
        cursor.advance()?;
    }
    Ok(items)
}

/// The last item of an inode, if it has any.
pub(crate) fn last(engine: &Engine, tree: &Tree, inode: ObjectId) -> Result<Option<Extent>> {
    last_at(engine, tree, inode, u64::MAX)
}

/// The last item of an inode that begins at or before an offset.
pub(crate) fn last_at(engine: &Engine, tree: &Tree, inode: ObjectId, offset: u64) -> Result<Option<Extent>> {
    match engine.trees().floor(tree.root(), &FileExtent::key(inode, FileOffset(offset)))? {
        Some(found) => Ok(decode_of(inode, found.key(), found.data(), found.place(tree.id()))?),
        None => Ok(None),
    }
}

/// The item, if it is an extent of this inode.
fn decode_of(inode: ObjectId, key: Key, data: &[u8], place: Place) -> Result<Option<Extent>, Damage> {
    if key.objectid != inode || key.item_type != ItemType::EXTENT_DATA {
        return Ok(None);
    }
    Extent::decode(key.offset, data).map(Some).map_err(|fault| Damage::new(fault, place))
}
