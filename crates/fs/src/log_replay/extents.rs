//! Runs of files: each takes the place of whatever the file has there; extents on disk get their references,
//! data their checksums.

use vlinder_codec::compress::Compression;
use vlinder_data::Extent;
use vlinder_format::file_extent::{CompressionId, ExtentRange, FileExtent, FileExtentFault};
use vlinder_format::log::LogFault;
use vlinder_format::{FileOffset, ItemType, Key, ObjectId};
use vlinder_transaction::DataExtent;
use vlinder_tree::{Change, Edit};

use super::ReplayError;
use super::logged_items::LoggedItems;
use super::subvolume::ReplayedSubvolume;

/// Brings the runs of files of a log into the subvolume.
pub(super) struct ExtentReplay<'s, 'r, 'a> {
    subvolume: &'s mut ReplayedSubvolume<'r, 'a>,
    log: LoggedItems<'r>,
}

impl<'s, 'r, 'a> ExtentReplay<'s, 'r, 'a> {
    pub(super) fn new(subvolume: &'s mut ReplayedSubvolume<'r, 'a>, log: LoggedItems<'r>) -> Self {
        Self { subvolume, log }
    }
}

impl ExtentReplay<'_, '_, '_> {
    /// Brings one run into the subvolume.
    pub(super) fn replay(&mut self, key: Key, data: &[u8]) -> Result<(), ReplayError> {
        let inode = key.objectid;
        // Also judges what no rule of a single leaf does.
        let run = Extent::decode(key.offset, data).map_err(|fault| self.log.damage(key, fault))?;
        let item = FileExtent::decode(data).map_err(|fault| self.log.damage(key, fault))?;
        self.subvolume.known_inode(inode)?;
        if let Some(algorithm) = algorithm_with_feature(item.compression) {
            self.subvolume.note_compression(algorithm);
        }
        if item.range().is_some() && self.subvolume.item(&key)?.as_deref() == Some(data) {
            return Ok(());
        }
        let sector_size = u64::from(self.subvolume.engine().sector_size());
        let dropped = self.drop_range(inode, key.offset, run.file_range(sector_size).end())?;
        if !(item.is_hole() && self.subvolume.engine().no_holes()) {
            self.subvolume.edit(&[Edit::new(key, Change::Insert(data))])?;
        }
        if let Some(range) = item.range().filter(|range| !range.is_hole()) {
            let extent = DataExtent { logical: range.address, length: range.disk_bytes };
            let offset = key.offset.wrapping_sub(range.offset_bytes);
            let fresh = self.log.is_new(extent);
            self.subvolume.add_reference(extent, fresh, inode, offset);
            self.replay_checksums(&item, range)?;
        }
        let mut item = self.subvolume.known_inode(inode)?;
        let counted = item.allocated_bytes.saturating_add(run.counted_bytes());
        item.allocated_bytes = counted.saturating_sub(dropped);
        self.subvolume.put_inode(inode, item)
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
        self.log.each_checksums(start, end, |start, length, sums| {
            self.subvolume.replace_checksums(start, length, sums)
        })
    }

    /// Takes the bytes from `start` up to `end` out of every run of a file; gives how many bytes of extents
    /// those were. Runs are cut as Linux cuts them: a hole that is cut counts an offset, too.
    pub(super) fn drop_range(&mut self, inode: ObjectId, start: u64, end: u64) -> Result<u64, ReplayError> {
        let first = FileExtent::key(inode, FileOffset(start));
        let is_run = |key: &Key| key.objectid == inode && key.item_type == ItemType::EXTENT_DATA;
        let before = self.subvolume.item_before(&first)?;
        let mut from = before.map(|found| found.key()).filter(is_run).unwrap_or(first);
        let mut dropped: u64 = 0;
        while let Some(found) = self.subvolume.next_item(&from)? {
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
        let damage = |fault: FileExtentFault| self.subvolume.damage(key, fault);
        let run = Extent::decode(key.offset, data).map_err(damage)?;
        let item = FileExtent::decode(data).map_err(damage)?;
        let run_end = key.offset.saturating_add(item.file_bytes());
        if run_end <= start {
            return Ok(0);
        }
        let generation = self.subvolume.generation();
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
            return Err(self.subvolume.damage(key, fault).into());
        }
        let pieces = usize::from(left.is_some()) + usize::from(right.is_some());
        let (left, right) = (left.flatten(), right.flatten());
        let mut edits = vec![Edit::new(key, left.as_deref().map_or(Change::Remove, Change::Put))];
        let right_key = FileExtent::key(key.objectid, FileOffset(end));
        edits.extend(right.as_deref().map(|right| Edit::new(right_key, Change::Insert(right))));
        self.subvolume.edit(&edits)?;
        if let Some((stored, offset)) = run.reference() {
            let extent = DataExtent { logical: stored.address, length: stored.bytes };
            let inode = key.objectid;
            match pieces {
                0 => self.subvolume.drop_reference(extent, inode, offset),
                1 => {}
                _ => self.subvolume.add_reference(extent, false, inode, offset),
            }
        }
        let is_counted = run.counted_bytes() > 0;
        Ok(if is_counted { run_end.min(end) - key.offset.max(start) } else { 0 })
    }
}

/// The algorithm of a compression that the superblock must name. It names no feature for zlib.
fn algorithm_with_feature(compression: CompressionId) -> Option<Compression> {
    match compression {
        CompressionId::LZO => Some(Compression::Lzo),
        CompressionId::ZSTD => Some(Compression::Zstd),
        _ => None,
    }
}
