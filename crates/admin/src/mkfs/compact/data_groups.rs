//! What the data of a filled file system take, by group.

use vlinder_format::chunk::{BlockGroupFlags, STRIPE_LENGTH};
use vlinder_format::extent::{ExtentFlags, ExtentItem};
use vlinder_format::{ItemType, Key, Logical};
use vlinder_fs::{Filesystem, FsError};
use vlinder_tree::Readahead;
use vlinder_volume::MappedChunk;

/// Leaves that a walk reads ahead, where they are not in memory.
pub(super) const READAHEAD: Readahead = Readahead::Forward(32);

/// A data group that holds something.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct DataGroup {
    /// As it was filled.
    pub(super) chunk: MappedChunk,
    /// Bytes of its extents.
    pub(super) used_bytes: u64,
    /// What lies between extents: start and length.
    pub(super) holes: Vec<(Logical, u64)>,
    /// Behind the last extent.
    pub(super) end: Logical,
}

impl DataGroup {
    /// The least length of its chunk.
    pub(super) fn least_length(&self) -> u64 {
        (self.end.0 - self.chunk.logical.0).next_multiple_of(STRIPE_LENGTH)
    }

    fn add(&mut self, start: Logical, length: u64) {
        if start > self.end {
            self.holes.push((self.end, start.0 - self.end.0));
        }
        self.used_bytes += length;
        self.end = Logical(start.0 + length);
    }
}

/// The groups by address.
pub(super) fn data_groups(filesystem: &Filesystem) -> Result<Vec<DataGroup>, FsError> {
    let chunks = filesystem.engine().volume().chunks().snapshot();
    let data = chunks.iter().filter(|chunk| chunk.chunk.flags.has(BlockGroupFlags::DATA));
    let mut groups: Vec<DataGroup> = data
        .map(|chunk| DataGroup {
            chunk: MappedChunk::clone(chunk),
            used_bytes: 0,
            holes: Vec::new(),
            end: chunk.logical,
        })
        .collect();
    groups.sort_by_key(|group| group.chunk.logical);
    let mut current = 0;
    visit_extent_items(filesystem, |key, data| {
        if !is_extent(&key, data) {
            return Ok(());
        }
        let start = Logical(key.objectid.0);
        while groups.get(current).is_some_and(|group| group.chunk.end() <= start) {
            current += 1;
        }
        let group = groups.get_mut(current).filter(|group| group.chunk.contains(start, key.offset));
        group.expect("an extent lies in the chunk that it was allocated in").add(start, key.offset);
        Ok(())
    })?;
    groups.retain(|group| group.used_bytes > 0);
    Ok(groups)
}

fn is_extent(key: &Key, data: &[u8]) -> bool {
    key.item_type == ItemType::EXTENT_ITEM
        && ExtentItem::decode_header(data).is_ok_and(|header| !header.flags.has(ExtentFlags::TREE_BLOCK))
}

/// Gives every item of the extent tree that tells of data: extents, and references beside them.
pub(super) fn visit_extent_items(
    filesystem: &Filesystem,
    mut take: impl FnMut(Key, &[u8]) -> Result<(), FsError>,
) -> Result<(), FsError> {
    let engine = filesystem.engine();
    let tree = engine.tree(vlinder_format::RootId::EXTENT_TREE)?;
    let mut cursor = engine.forest().trees().cursor(tree.root(), &Key::MIN, READAHEAD)?;
    while let Some((key, data)) = cursor.item() {
        let is_data = match key.item_type {
            ItemType::EXTENT_ITEM => is_extent(&key, data),
            ItemType::EXTENT_DATA_REF | ItemType::SHARED_DATA_REF => true,
            _ => false,
        };
        if is_data {
            take(key, data)?;
        }
        cursor.advance()?;
    }
    Ok(())
}
