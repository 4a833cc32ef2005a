//! The extents of a file in a range, from a tree that stands still.

use vlinder_extent_state::ByteRange;
use vlinder_forest::{ForestError, SubvolumeTree};
use vlinder_format::file_extent::FileExtent;
use vlinder_format::{Damage, FileOffset, ItemType, Key, ObjectId};

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
    let is_of_file = |key: &Key| (key.objectid, key.item_type) == (inode, ItemType::EXTENT_DATA);
    let mut cursor = tree.trees().cursor_at_or_before(tree.root(), &first, is_of_file)?;
    let mut extents = Vec::new();
    while let Some((key, data)) = cursor.item() {
        if !is_of_file(&key) || key.offset >= range.end() || extents.len() == limit {
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
