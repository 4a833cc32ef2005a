//! Reading the EXTENT_DATA items of a file.

use vlinder_extent_state::ByteRange;
use vlinder_forest::OpenTree;
use vlinder_format::file_extent::FileExtent;
use vlinder_format::{Damage, FileOffset, ItemType, Key, ObjectId, Place};
use vlinder_transaction::Engine;
use vlinder_tree::{Cursor, Readahead};

use crate::Result;
use crate::extent::Extent;

/// Leaves that a walk over many items reads ahead.
const LEAVES_AHEAD: usize = 16;
/// So many bytes of a file are likely to have items in more than one leaf.
const LONG_RANGE: u64 = 16 << 20;

/// The items that overlap a range, as far as they were loaded.
#[derive(Debug, Default)]
pub struct Items {
    /// In order.
    pub extents: Vec<Extent>,
    /// Up to here (at most the end of the range) every item is among them.
    pub(crate) complete_to: u64,
}

/// Loads the items of an inode that overlap a range, at most about `limit` of them.
///
/// # Errors
/// What reading the tree met, damaged items among it.
pub fn load(
    engine: &Engine,
    tree: &OpenTree,
    inode: ObjectId,
    range: ByteRange,
    limit: usize,
) -> Result<Items> {
    let first = FileExtent::key(inode, FileOffset(range.start()));
    let mut cursor = engine.forest().trees().cursor(tree.root(), &first, readahead_of(range))?;
    let mut items = Items { extents: Vec::new(), complete_to: range.end() };
    gather(engine, tree, &mut cursor, (&first, range), limit, &mut items)?;
    Ok(items)
}

/// Loads all items of an inode that overlap ranges, range by range. The caller keeps others from changing
/// items of the inode, so one descent serves ranges that follow one another and have their items in one leaf.
pub(crate) fn load_each(
    engine: &Engine,
    tree: &OpenTree,
    inode: ObjectId,
    ranges: &[ByteRange],
) -> Result<Vec<Extent>> {
    let Some(longest) = ranges.iter().max_by_key(|range| range.length_bytes()) else { return Ok(Vec::new()) };
    let readahead = readahead_of(*longest);
    let mut cursor: Option<Cursor<'_>> = None;
    let mut items = Items::default();
    for range in ranges {
        let first = FileExtent::key(inode, FileOffset(range.start()));
        let cursor = match &mut cursor {
            Some(cursor) => {
                cursor.seek_near(&first)?;
                cursor
            }
            none => none.insert(engine.forest().trees().cursor(tree.root(), &first, readahead)?),
        };
        gather(engine, tree, cursor, (&first, *range), usize::MAX, &mut items)?;
    }
    Ok(items.extents)
}

fn readahead_of(range: ByteRange) -> Readahead {
    if range.length_bytes() >= LONG_RANGE { Readahead::Forward(LEAVES_AHEAD) } else { Readahead::None }
}

/// Takes what overlaps a range that begins at `first`, where the cursor is.
fn gather(
    engine: &Engine,
    tree: &OpenTree,
    cursor: &mut Cursor<'_>,
    (first, range): (&Key, ByteRange),
    limit: usize,
    items: &mut Items,
) -> Result<()> {
    let sector_size = u64::from(engine.sector_size());
    let inode = first.objectid;
    let before = reaching(engine, tree, cursor, first)?;
    items.extents.extend(before.filter(|extent| extent.file_range(sector_size).overlaps(range)));
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
    Ok(())
}

/// Loads the items of an inode from an offset on, at most about `limit` and none behind the leaf where they
/// begin: what a descent has at hand. An item that can't be decoded ends them, unless it is the first.
pub(crate) fn load_leaf(
    engine: &Engine,
    tree: &OpenTree,
    inode: ObjectId,
    from: u64,
    limit: usize,
    readahead: bool,
) -> Result<Items> {
    let sector_size = u64::from(engine.sector_size());
    let readahead = if readahead { Readahead::Forward(LEAVES_AHEAD) } else { Readahead::None };
    let first = FileExtent::key(inode, FileOffset(from));
    let mut cursor = engine.forest().trees().cursor(tree.root(), &first, readahead)?;
    let before = reaching(engine, tree, &cursor, &first)?;
    let mut items = Items {
        extents: before.filter(|extent| extent.file_range(sector_size).end() > from).into_iter().collect(),
        complete_to: u64::MAX,
    };
    while let Some((key, data)) = cursor.item() {
        let extent = match decode_of(inode, key, data, cursor.place()) {
            Ok(Some(extent)) if items.extents.len() < limit => extent,
            Ok(None) => break,
            Err(damage) if key.offset == from => return Err(damage.into()),
            Ok(Some(_)) | Err(_) => {
                items.complete_to = key.offset;
                break;
            }
        };
        let end = extent.file_range(sector_size).end();
        items.extents.push(extent);
        if !cursor.advance_in_leaf() {
            items.complete_to = end;
            break;
        }
    }
    Ok(items)
}

/// What lies before a cursor's first item and may reach into the range that it was made for.
fn reaching(engine: &Engine, tree: &OpenTree, cursor: &Cursor<'_>, first: &Key) -> Result<Option<Extent>> {
    if cursor.key() == Some(*first) {
        return Ok(None);
    }
    let inode = first.objectid;
    let in_leaf = cursor.position().and_then(|position| position.previous_in_leaf());
    match in_leaf {
        Some((key, data)) => {
            let block = cursor.position().map(|position| position.leaf().logical());
            let place = Place { tree: Some(tree.id()), block, slot: None, key: Some(key) };
            Ok(decode_of(inode, key, data, place)?)
        }
        None => match engine.forest().trees().floor(tree.root(), first)? {
            Some(found) => Ok(decode_of(inode, found.key(), found.data(), found.place(tree.id()))?),
            None => Ok(None),
        },
    }
}

/// The last item of an inode, if it has any.
pub(crate) fn last(engine: &Engine, tree: &OpenTree, inode: ObjectId) -> Result<Option<Extent>> {
    last_at(engine, tree, inode, u64::MAX)
}

/// The last item of an inode that begins at or before an offset.
pub(crate) fn last_at(
    engine: &Engine,
    tree: &OpenTree,
    inode: ObjectId,
    offset: u64,
) -> Result<Option<Extent>> {
    match engine.forest().trees().floor(tree.root(), &FileExtent::key(inode, FileOffset(offset)))? {
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
