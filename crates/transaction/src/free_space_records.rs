//! Reading the free-space tree: each block group's free ranges, as extents or as bitmaps. Changing it:
//! `free_space_tree.rs`.

use vlinder_base::sync::Arc;
use vlinder_format::free_space::{FreeSpaceFault, FreeSpaceInfo, bitmap_runs};
use vlinder_format::{Damage, ItemType, Key, Logical, ObjectId};
use vlinder_space::{FreeRanges, GroupRange};
use vlinder_tree::{Readahead, Root, TreeError, Trees};

use crate::metrics::Conversions;

/// How far ahead of itself a scan of a group's records reads.
const READAHEAD: Readahead = Readahead::Forward(16);

/// The key of a group's head among its records.
pub(crate) fn info_key(group: GroupRange) -> Key {
    FreeSpaceInfo::key(group.start, group.length)
}

/// The free-space tree of one file system.
pub(crate) struct FreeSpaceTree<'a> {
    pub(crate) root: &'a Arc<Root>,
    pub(crate) sector_size: u32,
    pub(crate) conversions: &'a Conversions,
}

impl FreeSpaceTree<'_> {
    /// Reads a group's free ranges.
    pub(crate) fn load(&self, trees: &Trees, group: GroupRange) -> Result<FreeRanges, TreeError> {
        let mut free = FreeRanges::default();
        let mut previous_end = group.start;
        let mut cursor = trees.cursor(self.root, &info_key(group), READAHEAD)?;
        cursor.advance()?;
        while let Some((key, data)) = cursor.item() {
            if key.objectid.0 >= group.end() || key.item_type == ItemType::FREE_SPACE_INFO {
                break;
            }
            let mut add = |start: u64, length: u64| {
                let end = start.checked_add(length).filter(|end| *end <= group.end());
                let (start, group_end) = (Logical(start), Logical(group.end()));
                let fault = match end {
                    None => FreeSpaceFault::BeyondGroup { start, length, group_end },
                    Some(_) if start < previous_end => FreeSpaceFault::Overlap { start, previous_end },
                    Some(end) => {
                        free.add(start.0, length);
                        previous_end = Logical(end);
                        return Ok(());
                    }
                };
                Err(Damage::new(fault, cursor.place()))
            };
            match key.item_type {
                ItemType::FREE_SPACE_EXTENT => add(key.objectid.0, key.offset)?,
                ItemType::FREE_SPACE_BITMAP => {
                    for (first, count) in bitmap_runs(data, key.offset / self.sector()) {
                        add(key.objectid.0 + first * self.sector(), count * self.sector())?;
                    }
                }
                _ => {}
            }
            cursor.advance()?;
        }
        Ok(free)
    }

    /// The keys of a group's records, its head first.
    pub(crate) fn records(&self, trees: &Trees, group: GroupRange) -> Result<Vec<Key>, TreeError> {
        let mut keys = Vec::new();
        let mut cursor =
            trees.cursor(self.root, &Key::new(ObjectId(group.start.0), ItemType(0), 0), READAHEAD)?;
        while let Some(key) = cursor.key()
            && key.objectid.0 < group.end()
        {
            keys.push(key);
            cursor.advance()?;
        }
        Ok(keys)
    }

    pub(crate) fn sector(&self) -> u64 {
        u64::from(self.sector_size)
    }
}
