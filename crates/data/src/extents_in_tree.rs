//! The extents of a file in a range, from a tree that stands still.

use vlinder_extent_state::ByteRange;
use vlinder_forest::{ForestError, SubvolumeTree};
use vlinder_format::file_extent::FileExtent;
use vlinder_format::{Damage, FileOffset, ItemType, Key, ObjectId};
use vlinder_tree::Readahead;

use crate::extent::Extent;

/// The extents of a file that overlap a range, in order, at most `limit` of them. A hole of any size costs
/// nothing.
///
/// # Errors
/// What reading met; an item that breaks its rules.
pub fn extents_in_tree(
    tree: &SubvolumeTree<'_>,
    inode: ObjectId,
    range: ByteRange,
    sector_bytes: u64,
    limit: usize,
) -> Result<Vec<Extent>, ForestError> {
    let first = FileExtent::key(inode, FileOffset(range.start()));
    let before = tree.trees().floor(tree.root(), &first)?;
    let is_of_file = |key: Key| (key.objectid, key.item_type) == (inode, ItemType::EXTENT_DATA);
    let start = before.map(|found| found.key()).filter(|key| is_of_file(*key)).unwrap_or(first);
    let mut cursor = tree.trees().cursor(tree.root(), &start, Readahead::None)?;
    let mut extents = Vec::new();
    while let Some((key, data)) = cursor.item() {
        if !is_of_file(key) || key.offset >= range.end() || extents.len() == limit {
            break;
        }
        let extent = Extent::decode(key.offset, data).map_err(|fault| Damage::new(fault, cursor.place()))?;
        let shown = extent.file_range(sector_bytes);
        if shown.overlaps(range) {
            extents.push(extent);
        }
        // The next leaf is read for nothing if the range ends here.
        if shown.end() >= range.end() {
            break;
        }
        cursor.advance()?;
    }
    Ok(extents)
}
