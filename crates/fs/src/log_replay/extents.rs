//! Runs of files: each takes the place of whatever the file has there; extents on disk get their references,
//! data their checksums.

use vlinder_format::checksum_item::ChecksumGeometry;
use vlinder_format::file_extent::{CompressionId, ExtentRange, FileExtent, FileExtentFault};
use vlinder_format::log::LogFault;
use vlinder_format::{FileOffset, ItemType, Key, Logical, ObjectId};
use vlinder_transaction::DataExtent;
use vlinder_tree::{Change, Edit, Readahead};

use super::ReplayError;
use super::target::Target;
use crate::data::Extent;

impl Target<'_, '_> {
    /// Brings one run into the subvolume.
    pub(super) fn replay_extent(&mut self, key: Key, data: &[u8]) -> Result<(), ReplayError> {
        let inode = key.objectid;
        // Also judges what no rule of a single leaf does.
        let run = Extent::decode(key.offset, data).map_err(|fault| self.log_damage(key, fault))?;
        let item = FileExtent::decode(data).map_err(|fault| self.log_damage(key, fault))?;
        self.known_inode(inode)?;
        self.note_compression(item.compression);
        if item.range().is_some() && self.item(&key)?.as_deref() == Some(data) {
            return Ok(());
        }
        let sector_size = u64::from(self.engine.sector_size());
        let dropped = self.drop_extents(inode, key.offset, run.file_range(sector_size).end())?;
        if !(item.is_hole() && self.engine.no_holes()) {
            self.edit(&[Edit::new(key, Change::Insert(data))])?;
        }
        if let Some(range) = item.range().filter(|range| !range.is_hole()) {
            let extent = DataExtent { logical: range.address, length: range.disk_bytes };
            let offset = key.offset.wrapping_sub(range.offset_bytes);
            let fresh = self.whole_log.is_new(extent);
            self.handle.add_data_reference(extent, fresh, self.tree.id(), inode, offset);
            self.replay_checksums(&item, range)?;
        }
        let mut item = self.known_inode(inode)?;
        let counted = item.allocated_bytes.saturating_add(run.counted_bytes());
        item.allocated_bytes = counted.saturating_sub(dropped);
        self.put_inode(inode, item)
    }

    /// The checksums that the log has of the data that a run shows (of all of a compressed extent) take the
    /// place of those that there are: several runs of one extent may each bring a part of them.
    fn replay_checksums(&mut self, item: &FileExtent<'_>, range: ExtentRange) -> Result<(), ReplayError> {
        let (start, length) = if item.compression == CompressionId::NONE {
            (range.address.0.saturating_add(range.offset_bytes), range.file_bytes)
        } else {
            (range.address.0, range.disk_bytes)
        };
        let end = start.saturating_add(length);
        let geometry = self.engine.checksum_geometry();
        let first = ChecksumGeometry::key(Logical(start));
        let before = self.engine.forest().trees().floor(self.log, &first)?;
        let from = before.map(|found| found.key()).filter(|key| key.item_type == ItemType::EXTENT_CHECKSUM);
        let mut cursor =
            self.engine.forest().trees().cursor(self.log, &from.unwrap_or(first), Readahead::None)?;
        while let Some((key, data)) = cursor.item() {
            if key.item_type != ItemType::EXTENT_CHECKSUM || key.offset >= end {
                break;
            }
            let item_end = key.offset.saturating_add(geometry.covered(data.len()));
            let (part_start, part_end) = (start.max(key.offset), end.min(item_end));
            if part_start < part_end {
                let skipped = geometry.bytes_for(part_start - key.offset).unwrap_or(usize::MAX);
                let taken = geometry.bytes_for(part_end - part_start).unwrap_or(usize::MAX);
                let sums = skipped.checked_add(taken).and_then(|end| data.get(skipped..end));
                let sums = sums.unwrap_or_default().to_vec();
                self.handle.remove_checksums(Logical(part_start), part_end - part_start)?;
                self.handle.insert_checksums(Logical(part_start), &sums)?;
            }
            cursor.advance()?;
        }
        Ok(())
    }

    /// Takes the bytes from `start` up to `end` out of every run of a file; gives how many bytes of extents
    /// those were. Runs are cut as Linux cuts them: a hole that is cut counts an offset, too.
    pub(super) fn drop_extents(&mut self, inode: ObjectId, start: u64, end: u64) -> Result<u64, ReplayError> {
        let first = FileExtent::key(inode, FileOffset(start));
        let is_run = |key: &Key| key.objectid == inode && key.item_type == ItemType::EXTENT_DATA;
        let before = self.engine.forest().trees().floor(self.tree.root(), &first)?;
        let mut from = before.map(|found| found.key()).filter(is_run).unwrap_or(first);
        let mut dropped: u64 = 0;
        while let Some(found) = self.next_item(&from)? {
            let key = found.key();
            if !is_run(&key) || key.offset >= end {
                break;
            }
            dropped = dropped.saturating_add(self.cut(key, found.data(), start, end)?);
            match key.offset.checked_add(1) {
                Some(next) => from = FileExtent::key(inode, FileOffset(next)),
                None => break,
            }
        }
        Ok(dropped)
    }

    /// Cuts one run; gives how many bytes of extents it lost.
    fn cut(&mut self, key: Key, data: &[u8], start: u64, end: u64) -> Result<u64, ReplayError> {
        let damage = |fault: FileExtentFault| self.damage(key, fault);
        let run = Extent::decode(key.offset, data).map_err(damage)?;
        let item = FileExtent::decode(data).map_err(damage)?;
        let run_end = key.offset.saturating_add(item.file_bytes());
        if run_end <= start {
            return Ok(0);
        }
        let generation = self.handle.generation();
        let piece = |from: u64, to: u64| {
            let range = item.range()?;
            let offset_bytes = range.offset_bytes.saturating_add(from - key.offset);
            let cut = item.with_range(ExtentRange { offset_bytes, file_bytes: to - from, ..range });
            Some(FileExtent { generation, ..cut }.encode())
        };
        let left = (key.offset < start).then(|| piece(key.offset, start));
        let right = (end < run_end).then(|| piece(end, run_end));
        if left == Some(None) || right == Some(None) {
            let fault = LogFault::PartOfInline { inode: key.objectid };
            return Err(self.damage(key, fault).into());
        }
        let pieces = usize::from(left.is_some()) + usize::from(right.is_some());
        let (left, right) = (left.flatten(), right.flatten());
        let mut edits = vec![Edit::new(key, left.as_deref().map_or(Change::Remove, Change::Put))];
        let right_key = FileExtent::key(key.objectid, FileOffset(end));
        edits.extend(right.as_deref().map(|right| Edit::new(right_key, Change::Insert(right))));
        self.edit(&edits)?;
        if let Some((stored, offset)) = run.reference() {
            let extent = DataExtent { logical: stored.address, length: stored.bytes };
            let (root, inode) = (self.tree.id(), key.objectid);
            match pieces {
                0 => self.handle.drop_data_reference(extent, root, inode, offset),
                1 => {}
                _ => self.handle.add_data_reference(extent, false, root, inode, offset),
            }
        }
        let is_counted = run.counted_bytes() > 0;
        Ok(if is_counted { run_end.min(end) - key.offset.max(start) } else { 0 })
    }
}
