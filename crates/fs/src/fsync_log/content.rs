//! The items of a log: what the plan names, as it is now.

use std::collections::BTreeMap;

use vlinder_base::sync::Arc;
use vlinder_data::{Extent, InodeId, Rewrite, load_items};
use vlinder_extent_state::ByteRange;
use vlinder_format::file_extent::{CompressionId, FileExtent};
use vlinder_format::inode::{FileType, InodeFlags, InodeItem};
use vlinder_format::log::DirectoryLogRange;
use vlinder_format::{Damage, FileOffset, Generation, ItemType, Key, Logical, ObjectId};
use vlinder_transaction::LogEdit;
use vlinder_tree::{Edit, Readahead};

use super::closure::Plan;
use super::journal::{InodeRecord, Logged, Ranges, Record};
use super::outcome::Unlogged;
use crate::inode::Inode;
use crate::inode::table::InodeTable;
use crate::subvolume::place_in_tree;
use crate::{FsError, Subvolume};

/// Items that change: their data, or none where one goes.
type Edits = BTreeMap<Key, Option<Vec<u8>>>;

/// Brings the log up to date with a plan and the inode that is fsynced.
pub(super) fn write(
    inodes: &InodeTable,
    subvolume: &Subvolume,
    record: &mut Record,
    log: &mut LogEdit<'_>,
    inode: &Arc<Inode>,
    plan: &Plan,
) -> Result<(), Unlogged> {
    let mut writer = Writer { inodes, subvolume, generation: record.generation, log, edits: Edits::new() };
    for number in &plan.inodes {
        let is_stale = record.stale.remove(number);
        let known = record.inodes.entry(*number).or_default();
        if *number == inode.number() {
            writer.log_whole(inode, known, is_stale)?;
        } else if known.is_dead() {
            if known.logged.take().is_some() {
                writer.remove_all(*number)?;
                record.logged_removals.retain(|(directory, _)| directory != number);
            }
        } else {
            writer.log_existence(*number, known, is_stale)?;
        }
    }
    for (directory, index) in &plan.removals {
        if record.logged_removals.insert((*directory, *index)) {
            let range = DirectoryLogRange { last: *index };
            let key = DirectoryLogRange::key(*directory, *index);
            writer.edits.insert(key, Some(range.encode().to_vec()));
        }
    }
    writer.apply()
}

struct Writer<'a, 'b> {
    inodes: &'a InodeTable,
    subvolume: &'a Subvolume,
    generation: Generation,
    log: &'a mut LogEdit<'b>,
    edits: Edits,
}

impl Writer<'_, '_> {
    fn apply(&mut self) -> Result<(), Unlogged> {
        let edits = std::mem::take(&mut self.edits);
        let edits: Vec<Edit<'_>> =
            edits.iter().map(|(key, data)| Edit::put_or_remove(*key, data.as_deref())).collect();
        Ok(self.log.edit(self.subvolume.id(), &edits)?)
    }

    /// The inode that is fsynced.
    fn log_whole(
        &mut self,
        inode: &Arc<Inode>,
        known: &mut InodeRecord,
        is_stale: bool,
    ) -> Result<(), Unlogged> {
        let number = inode.number();
        let (item, disk_size) = {
            let state = inode.state();
            (state.item, state.disk_size)
        };
        // Without a name the replay leaves it out, with all that follows it. It is logged as ever, since with
        // a name that it gets later (`O_TMPFILE`) it has to be as it was fsynced.
        let link_count = if known.is_dead() { 0 } else { item.link_count };
        let item = InodeItem { link_count, ..item };
        self.put_item(number, item, disk_size);
        if known.logged.is_none() || is_stale {
            self.copy_items(number, ItemType::INODE_REF, ItemType::INODE_EXTREF)?;
        }
        if known.logged.is_none() || known.attributes_changed {
            self.copy_items(number, ItemType::XATTR_ITEM, ItemType::XATTR_ITEM)?;
            known.attributes_changed = false;
        }
        if inode.file_type() == FileType::SymbolicLink {
            self.copy_items(number, ItemType::EXTENT_DATA, ItemType::EXTENT_DATA)?;
        }
        if inode.file_type() == FileType::Regular {
            let end = disk_size.next_multiple_of(u64::from(self.inodes.store().sector_size()));
            let mut ranges = std::mem::take(&mut known.ranges);
            known.behind_end.take_below(end).iter().for_each(|grown_over| ranges.add(grown_over));
            let mut behind = ranges.clone();
            behind.take_below(end);
            behind.iter().for_each(|behind| known.behind_end.add(behind));
            if known.logged != Some(Logged::All) {
                // The replay drops what lies behind the end, committed or not.
                ranges.add(ByteRange::new(end, u64::MAX).unwrap_or_default());
            }
            self.log_ranges(inode, disk_size, &ranges)?;
        }
        known.logged = Some(Logged::All);
        Ok(())
    }

    /// An inode that belongs to the names of another: that it exists, with its names. Generation 0 tells the
    /// replay to leave the item of one that there is already. What has no data of its own to wait for is
    /// logged whole.
    fn log_existence(
        &mut self,
        number: ObjectId,
        known: &mut InodeRecord,
        is_stale: bool,
    ) -> Result<(), Unlogged> {
        if known.logged.is_some() && !is_stale {
            return Ok(());
        }
        let Some(item) = self.item(number)? else {
            return Err(FsError::from(crate::Refusal::Stale).into());
        };
        self.copy_items(number, ItemType::INODE_REF, ItemType::INODE_EXTREF)?;
        if known.logged.is_some() {
            self.give_name(number, item.link_count)?;
        } else {
            self.copy_items(number, ItemType::XATTR_ITEM, ItemType::XATTR_ITEM)?;
            known.attributes_changed = false;
            // Between a change of names and that of the item the count may lag behind.
            let item = InodeItem { link_count: item.link_count.max(1), ..item };
            let file_type = item.file_type();
            let has_content = matches!(file_type, Some(FileType::Regular | FileType::Directory));
            if has_content {
                let exists = InodeItem { generation: Generation(0), ..item };
                self.put_item(number, exists, 0);
            } else {
                self.put_item(number, item, item.size_bytes);
                self.copy_items(number, ItemType::EXTENT_DATA, ItemType::EXTENT_DATA)?;
            }
            known.logged = Some(Logged::Exists);
        }
        Ok(())
    }

    /// An inode that the log has as one without a name has one now.
    fn give_name(&mut self, number: ObjectId, link_count: u32) -> Result<(), Unlogged> {
        let key = InodeItem::key(number);
        for (key, data) in self.log.items(self.subvolume.id(), key, key)? {
            let item = InodeItem::decode(&data)
                .map_err(|fault| FsError::from(Damage::new(fault, place_in_tree(self.subvolume, key))))?;
            if item.link_count == 0 {
                let named = InodeItem { link_count: link_count.max(1), ..item };
                self.edits.insert(key, Some(named.encode().to_vec()));
            }
        }
        Ok(())
    }

    /// An inode's item as it is now.
    fn item(&self, number: ObjectId) -> Result<Option<InodeItem>, FsError> {
        if let Some(inode) = self.inodes.inode_in_memory(InodeId::new(self.subvolume.id(), number)) {
            return Ok(Some(inode.state().item));
        }
        let key = InodeItem::key(number);
        let Some(data) = self.inodes.store().engine().reader().item(self.subvolume.tree(), &key)? else {
            return Ok(None);
        };
        let item = InodeItem::decode(&data);
        Ok(Some(item.map_err(|fault| Damage::new(fault, place_in_tree(self.subvolume, key)))?))
    }

    fn put_item(&mut self, number: ObjectId, item: InodeItem, size_bytes: u64) {
        let item = InodeItem { size_bytes, transaction: self.generation, ..item };
        self.edits.insert(InodeItem::key(number), Some(item.encode().to_vec()));
    }

    /// Takes all items of an inode out of the log.
    fn remove_all(&mut self, number: ObjectId) -> Result<(), Unlogged> {
        self.remove_between(Key::new(number, ItemType(0), 0), Key::new(number, ItemType(u8::MAX), u64::MAX))
    }

    fn remove_between(&mut self, from: Key, to: Key) -> Result<(), Unlogged> {
        for (key, _) in self.log.items(self.subvolume.id(), from, to)? {
            self.edits.insert(key, None);
        }
        Ok(())
    }

    /// Makes an inode's items of some types in the log those of the subvolume.
    fn copy_items(&mut self, number: ObjectId, first: ItemType, last: ItemType) -> Result<(), Unlogged> {
        let (from, to) = (Key::new(number, first, 0), Key::new(number, last, u64::MAX));
        self.remove_between(from, to)?;
        let tree = self.subvolume.tree();
        let engine = self.inodes.store().engine();
        let mut cursor =
            engine.forest().trees().cursor(tree.root(), &from, Readahead::None).map_err(FsError::from)?;
        while let Some((key, data)) = cursor.item().filter(|(key, _)| *key <= to) {
            self.edits.insert(key, Some(data.to_vec()));
            cursor.advance().map_err(FsError::from)?;
        }
        Ok(())
    }

    /// Makes the log show ranges of a file as they are now: runs cut to the ranges, and holes, which would
    /// else have no item.
    fn log_ranges(&mut self, inode: &Inode, disk_size: u64, ranges: &Ranges) -> Result<(), Unlogged> {
        let engine = self.inodes.store().engine();
        let sector_size = u64::from(self.inodes.store().sector_size());
        let end = disk_size.next_multiple_of(sector_size);
        let (tree, number) = (self.subvolume.tree(), inode.number());
        let has_sums = !inode.flags().has(InodeFlags::NODATASUM);
        // All at once: a run of the log may reach over several of the ranges.
        let mut logged = Vec::new();
        for range in ranges.iter() {
            logged.extend(self.logged_runs(number, range)?);
        }
        let mut rewrite = Rewrite::new(sector_size, logged);
        for range in ranges.iter() {
            // Inline data have no parts; whatever replaces them is of their whole sector.
            rewrite.drop_range(range).map_err(|_| FsError::from(crate::Refusal::NotSupported))?;
            let present = load_items(engine, tree, number, range, usize::MAX).map_err(FsError::from)?.extents;
            for run in present {
                let part = if run.range().is_none() { Some(run) } else { run.part(range) };
                let Some(part) = part else { continue };
                if has_sums {
                    self.log_checksums(&part)?;
                }
                rewrite.insert(part);
            }
            if let Some(inside) = ByteRange::new(range.start(), range.end().min(end)) {
                rewrite.fill_holes(inside, self.generation);
            }
        }
        let items = rewrite.finish().items.into_iter();
        self.edits.extend(items.map(|(offset, data)| (FileExtent::key(number, FileOffset(offset)), data)));
        Ok(())
    }

    /// The log's runs that overlap a range.
    fn logged_runs(&self, number: ObjectId, range: ByteRange) -> Result<Vec<Extent>, Unlogged> {
        let subvolume = self.subvolume.id();
        let sector_size = u64::from(self.inodes.store().sector_size());
        let first = FileExtent::key(number, FileOffset(range.start()));
        let last = FileExtent::key(number, FileOffset(range.end().saturating_sub(1)));
        let is_run = |key: &Key| key.objectid == number && key.item_type == ItemType::EXTENT_DATA;
        let mut runs = Vec::new();
        for (key, data) in self.log.items_and_before(subvolume, first, last, is_run)? {
            let run = Extent::decode(key.offset, &data)
                .map_err(|fault| FsError::from(Damage::new(fault, place_in_tree(self.subvolume, key))))?;
            if run.file_range(sector_size).overlaps(range) {
                runs.push(run);
            }
        }
        Ok(runs)
    }

    /// The checksums of the data that a run shows, of all of a compressed extent.
    fn log_checksums(&mut self, run: &Extent) -> Result<(), Unlogged> {
        if run.is_hole() || run.is_preallocated() {
            return Ok(());
        }
        let Some(range) = run.range() else { return Ok(()) };
        let (start, length) = if run.compression == CompressionId::NONE {
            (range.address.0.saturating_add(range.offset_bytes), range.file_bytes)
        } else {
            (range.address.0, range.disk_bytes)
        };
        let lookup = self.inodes.store().engine().reader().checksum_lookup().map_err(FsError::from)?;
        let found = lookup.expected(Logical(start), length).map_err(FsError::from)?;
        // Without checksums the data are in the tree as well, or the file would not be read there either.
        if let Ok(expected) = found {
            self.log.put_checksums(self.subvolume.id(), Logical(start), expected.bytes())?;
        }
        Ok(())
    }
}
