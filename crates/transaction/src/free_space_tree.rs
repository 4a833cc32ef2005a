//! The free-space tree: each block group's free ranges, as extents or, where those would cost more, as
//! bitmaps.
//!
//! Only the committer changes it, between delayed references, so that it always equals what the extent tree
//! leaves free (the fourth of the four knots: these items describe the space that they take; it ends because
//! each block is copied at most once in a commit).

use std::collections::BTreeMap;

use vlinder_format::free_space::{
    ConversionThresholds, FREE_SPACE_USING_BITMAPS, FreeSpaceFault, FreeSpaceInfo, bitmap_bit, bitmap_bytes,
    bitmap_key, bitmap_range, bitmap_set, extent_key,
};
use vlinder_format::{Damage, ItemType, Key, Logical, ObjectId, Place, RootId};
use vlinder_tree::{TreeError, Trees};

use vlinder_space::{FreeRanges, GroupRange};

use crate::editor::{Editor, ItemChange};
use crate::free_space_records::{FreeSpaceTree, info_key};

/// A group's items as a change goes on.
type Changes = BTreeMap<Key, Option<Vec<u8>>>;

impl FreeSpaceTree<'_> {
    /// Enters a new group, all of it free.
    pub(crate) fn add_group(&self, editor: &mut Editor<'_>, group: GroupRange) -> Result<(), TreeError> {
        let info = FreeSpaceInfo { extent_count: 1, flags: 0 };
        editor.change_items(
            self.root,
            &[
                (info_key(group), Some(info.encode().to_vec())),
                (extent_key(group.start, group.length), Some(Vec::new())),
            ],
        )
    }

    /// Removes a group's records.
    pub(crate) fn remove_group(&self, editor: &mut Editor<'_>, group: GroupRange) -> Result<(), TreeError> {
        let changes: Vec<ItemChange> =
            self.records(editor.trees, group)?.into_iter().map(|key| (key, None)).collect();
        editor.change_items(self.root, &changes)
    }

    /// A range of a group becomes free, or taken.
    pub(crate) fn change(
        &self,
        editor: &mut Editor<'_>,
        group: GroupRange,
        start: u64,
        length: u64,
        free: bool,
    ) -> Result<(), TreeError> {
        assert!(
            start >= group.start.0 && start + length <= group.end() && length > 0,
            "{start}+{length} is not in the group at {}",
            group.start
        );
        let (mut info, place) = self.info(editor.trees, group)?;
        let mut changes = Changes::new();
        let delta = if info.uses_bitmaps() {
            self.change_bitmaps(editor.trees, group, start, length, free, &mut changes)?
        } else if free {
            self.free_extent(editor.trees, group, start, length, &mut changes)?
        } else {
            self.take_extent(editor.trees, start, length, &mut changes)?
        };
        let found = info.extent_count;
        // No more runs than the group has sectors were counted when the item was read.
        info.extent_count = found
            .checked_add_signed(delta)
            .ok_or_else(|| Damage::new(FreeSpaceFault::CountTooLow { found }, place))?;
        changes.insert(info_key(group), Some(info.encode().to_vec()));
        editor.change_items(self.root, &changes.into_iter().collect::<Vec<_>>())?;
        self.convert(editor, group, info)
    }

    fn free_extent(
        &self,
        trees: &Trees,
        group: GroupRange,
        start: u64,
        length: u64,
        changes: &mut Changes,
    ) -> Result<i32, TreeError> {
        let (mut first, mut last) = (start, start + length);
        let mut delta = 1;
        let before = Key::new(ObjectId(start), ItemType(0), 0);
        if let Some(found) = trees.floor(self.root, &before)? {
            let key = found.key();
            let is_extent = key.item_type == ItemType::FREE_SPACE_EXTENT && key.objectid.0 >= group.start.0;
            let previous_end = key.objectid.0 + key.offset;
            if is_extent && previous_end > start {
                let fault =
                    FreeSpaceFault::Overlap { start: Logical(start), previous_end: Logical(previous_end) };
                return Err(Damage::new(fault, found.place(self.root.id())).into());
            }
            if is_extent && previous_end == start {
                changes.insert(key, None);
                first = key.objectid.0;
                delta -= 1;
            }
        }
        let after = extent_key(Logical(last), 0);
        if last < group.end()
            && let Some(found) = trees.ceiling(self.root, &after)?
        {
            let key = found.key();
            if key.item_type == ItemType::FREE_SPACE_EXTENT && key.objectid.0 == last {
                changes.insert(key, None);
                last += key.offset;
                if last > group.end() {
                    let (start, length) = (Logical(key.objectid.0), key.offset);
                    let group_end = Logical(group.end());
                    let fault = FreeSpaceFault::BeyondGroup { start, length, group_end };
                    return Err(Damage::new(fault, found.place(self.root.id())).into());
                }
                delta -= 1;
            }
        }
        changes.insert(extent_key(Logical(first), last - first), Some(Vec::new()));
        Ok(delta)
    }

    fn take_extent(
        &self,
        trees: &Trees,
        start: u64,
        length: u64,
        changes: &mut Changes,
    ) -> Result<i32, TreeError> {
        let sought = extent_key(Logical(start), u64::MAX);
        let missing =
            || TreeError::Missing { root: RootId::FREE_SPACE_TREE, key: extent_key(Logical(start), length) };
        let key = trees.floor(self.root, &sought)?.ok_or_else(missing)?.key();
        let (free, free_end) = (key.objectid.0, key.objectid.0 + key.offset);
        if key.item_type != ItemType::FREE_SPACE_EXTENT || free > start || free_end < start + length {
            return Err(missing());
        }
        changes.insert(key, None);
        let mut delta = -1;
        if free < start {
            changes.insert(extent_key(Logical(free), start - free), Some(Vec::new()));
            delta += 1;
        }
        if free_end > start + length {
            changes.insert(extent_key(Logical(start + length), free_end - start - length), Some(Vec::new()));
            delta += 1;
        }
        Ok(delta)
    }

    fn change_bitmaps(
        &self,
        trees: &Trees,
        group: GroupRange,
        start: u64,
        length: u64,
        free: bool,
        changes: &mut Changes,
    ) -> Result<i32, TreeError> {
        let before = start > group.start.0 && self.is_free(trees, start - self.sector())?;
        let after = start + length < group.end() && self.is_free(trees, start + length)?;
        let mut at = start;
        while at < start + length {
            let (key, mut bitmap) = self.bitmap(trees, at)?;
            let end = (key.objectid.0 + key.offset).min(start + length);
            let first = (at - key.objectid.0) / self.sector();
            let place = self.place(key);
            bitmap_set(&mut bitmap, first, (end - at) / self.sector(), free)
                .map_err(|_| Damage::new(FreeSpaceFault::Size { found: bitmap.len(), expected: 0 }, place))?;
            changes.insert(key, Some(bitmap));
            at = end;
        }
        let joined = i32::from(before) + i32::from(after);
        Ok(if free { 1 - joined } else { joined - 1 })
    }

    fn is_free(&self, trees: &Trees, at: u64) -> Result<bool, TreeError> {
        let (key, bitmap) = self.bitmap(trees, at)?;
        Ok(bitmap_bit(&bitmap, (at - key.objectid.0) / self.sector()).unwrap_or(false))
    }

    /// The bitmap that covers an address.
    fn bitmap(&self, trees: &Trees, at: u64) -> Result<(Key, Vec<u8>), TreeError> {
        let sought = bitmap_key(Logical(at), u64::MAX);
        let missing =
            || TreeError::Missing { root: RootId::FREE_SPACE_TREE, key: bitmap_key(Logical(at), 0) };
        let found = trees.floor(self.root, &sought)?.ok_or_else(missing)?;
        let key = found.key();
        if key.item_type != ItemType::FREE_SPACE_BITMAP || at >= key.objectid.0 + key.offset {
            return Err(missing());
        }
        Ok((key, found.data().to_vec()))
    }

    /// Changes a group to the other form when it has crossed Linux's threshold.
    fn convert(
        &self,
        editor: &mut Editor<'_>,
        group: GroupRange,
        mut info: FreeSpaceInfo,
    ) -> Result<(), TreeError> {
        let thresholds = ConversionThresholds::of(group.length, self.sector_size);
        let to_bitmaps = !info.uses_bitmaps() && info.extent_count > thresholds.to_bitmaps_above;
        let to_extents = info.uses_bitmaps() && info.extent_count < thresholds.to_extents_below;
        if !to_bitmaps && !to_extents {
            return Ok(());
        }
        let free = self.load(editor.trees, group)?;
        let mut changes: Changes = self
            .records(editor.trees, group)?
            .into_iter()
            .filter(|key| *key != info_key(group))
            .map(|key| (key, None))
            .collect();
        if to_bitmaps {
            self.conversions.to_bitmaps.increment();
            self.as_bitmaps(group, &free, &mut changes);
            info.flags |= FREE_SPACE_USING_BITMAPS;
        } else {
            self.conversions.to_extents.increment();
            changes.extend(
                free.iter().map(|(start, length)| (extent_key(Logical(start), length), Some(Vec::new()))),
            );
            info.flags &= !FREE_SPACE_USING_BITMAPS;
        }
        changes.insert(info_key(group), Some(info.encode().to_vec()));
        editor.change_items(self.root, &changes.into_iter().collect::<Vec<_>>())
    }

    /// Bitmaps for all of a group.
    fn as_bitmaps(&self, group: GroupRange, free: &FreeRanges, changes: &mut Changes) {
        let span = bitmap_range(self.sector_size);
        let mut start = group.start.0;
        let mut ranges = free.iter().peekable();
        while start < group.end() {
            let end = (start + span).min(group.end());
            let mut bitmap = vec![0u8; bitmap_bytes(end - start, self.sector_size).unwrap_or_default()];
            while let Some((range, length)) = ranges.peek().copied()
                && range < end
            {
                let (from, to) = (range.max(start), (range + length).min(end));
                let set = bitmap_set(
                    &mut bitmap,
                    (from - start) / self.sector(),
                    (to - from) / self.sector(),
                    true,
                );
                assert!(set.is_ok(), "free range {from}..{to} lies outside its bitmap");
                if range + length > end {
                    break;
                }
                ranges.next();
            }
            changes.insert(bitmap_key(Logical(start), end - start), Some(bitmap));
            start = end;
        }
    }

    /// A group's record, and where it is.
    fn info(&self, trees: &Trees, group: GroupRange) -> Result<(FreeSpaceInfo, Place), TreeError> {
        let key = info_key(group);
        let found =
            trees.get(self.root, &key)?.ok_or(TreeError::Missing { root: RootId::FREE_SPACE_TREE, key })?;
        let place = found.place(self.root.id());
        let info = FreeSpaceInfo::decode(found.data()).map_err(|fault| Damage::new(fault, place))?;
        Ok((info, place))
    }

    fn place(&self, key: Key) -> Place {
        Place { tree: Some(self.root.id()), key: Some(key), ..Place::default() }
    }
}
