//! The extents of a file in a range.

use vlinder_data::Extent;
use vlinder_extent_state::ByteRange;
use vlinder_forest::ForestError;
use vlinder_format::file_extent::FileExtent;
use vlinder_format::{FileOffset, ItemType, ObjectId};
use vlinder_tree::Readahead;

use crate::send::SendError;
use crate::send::tree_names::{TreeNames, damage};

/// The extents of a file that overlap a range, in order, at most `limit` of them. A hole of any size costs
/// nothing.
pub(super) fn extents_in(
    tree: &TreeNames<'_>,
    inode: ObjectId,
    range: ByteRange,
    sector_bytes: u64,
    limit: usize,
) -> Result<Vec<Extent>, SendError> {
    let first = FileExtent::key(inode, FileOffset(range.start()));
    let before = tree.trees().floor(tree.root(), &first).map_err(ForestError::from)?;
    let is_of_file =
        |key: vlinder_format::Key| (key.objectid, key.item_type) == (inode, ItemType::EXTENT_DATA);
    let start = before.map(|found| found.key()).filter(|key| is_of_file(*key)).unwrap_or(first);
    let mut cursor = tree.trees().cursor(tree.root(), &start, Readahead::None).map_err(ForestError::from)?;
    let mut extents = Vec::new();
    while let Some((key, data)) = cursor.item() {
        if !is_of_file(key) || key.offset >= range.end() || extents.len() == limit {
            break;
        }
        let extent = Extent::decode(key.offset, data).map_err(|fault| damage(fault, cursor.place()))?;
        let shown = extent.file_range(sector_bytes);
        if shown.overlaps(range) {
            extents.push(extent);
        }
        // The next leaf is read for nothing if the range ends here.
        if shown.end() >= range.end() {
            break;
        }
        cursor.advance().map_err(ForestError::from)?;
    }
    Ok(extents)
}
