//! One inode: its item against its names, its entries and its extents.

use vlinder_format::directory::{DirectoryEntries, DirectoryEntry, DirectoryEntryType, DirectoryIndex};
use vlinder_format::file_extent::{CompressionId, FileExtent, FileExtentContent};
use vlinder_format::inode::{FileType, InodeFlags, InodeItem, Mode};
use vlinder_format::inode_ref::{ExtendedReferences, InodeReferences};
use vlinder_format::{ItemType, Logical, ObjectId, Place, RootId};

use crate::collector::Collector;
use crate::finding::FindingKind;
use crate::item::Item;
use crate::single_item::{odd_entries, odd_extent, odd_flags, odd_owner, odd_reference};

/// An inode whose items are coming.
#[derive(Clone, Debug)]
pub(crate) struct Inode {
    pub(crate) number: ObjectId,
    item: Option<InodeItem>,
    place: Place,
    /// Names that lead to it, by its own references.
    names: u64,
    /// Twice the lengths of the names in it.
    entries_bytes: u64,
    /// Bytes of its extents that are no holes.
    allocated_bytes: u64,
    /// Where the last extent ends.
    end: u64,
    /// Where the first gap between extents begins.
    first_gap: Option<u64>,
    /// Bytes of its inline extents.
    inline_bytes: u64,
    /// That it has written bytes past its end was found.
    is_past_end: bool,
    /// Of a directory: where its name lies.
    parent: Option<ObjectId>,
    /// Its item breaks a rule, or lies in what could not be read: what depends on it is not judged.
    has_unknown_item: bool,
    /// Some items could not be read: sums say nothing.
    pub(crate) is_incomplete: bool,
}

/// What an inode's items that come later are judged by.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Facts {
    number: ObjectId,
    file_type: Option<FileType>,
    is_linked: Option<bool>,
    has_no_checksums: bool,
    size_bytes: u64,
    sums: [u64; 4],
    end: u64,
    first_gap: Option<u64>,
    flags: [bool; 3],
    parent: Option<ObjectId>,
}

/// What is known of an inode when all its items were seen.
pub(crate) struct Finished {
    /// It has no name left.
    pub(crate) is_unlinked: bool,
    /// Of a directory: where its name lies.
    pub(crate) parent: Option<ObjectId>,
}

impl Inode {
    pub(crate) fn new(number: ObjectId, place: Place) -> Self {
        Self {
            number,
            item: None,
            place,
            names: 0,
            entries_bytes: 0,
            allocated_bytes: 0,
            end: 0,
            first_gap: None,
            inline_bytes: 0,
            is_past_end: false,
            parent: None,
            has_unknown_item: false,
            is_incomplete: false,
        }
    }

    /// One whose first items lie in what could not be read.
    pub(crate) fn behind_gap(number: ObjectId) -> Self {
        Self { has_unknown_item: true, is_incomplete: true, ..Self::new(number, Place::default()) }
    }

    /// A directory that is in use, of which nothing else is known yet: what is added to it is added to any.
    pub(crate) fn any_directory(number: ObjectId) -> Self {
        let item =
            InodeItem { mode: Mode::new(FileType::Directory, 0), link_count: 1, ..InodeItem::default() };
        Self { item: Some(item), ..Self::new(number, Place::default()) }
    }

    /// Whether what is found of [`Self::any_directory`] is true of it.
    pub(crate) fn is_used_directory(&self) -> bool {
        self.file_type() == Some(FileType::Directory) && self.item.is_some_and(|item| item.link_count > 0)
    }

    /// Adds what was found in the entries of [`Self::any_directory`].
    pub(crate) fn add_entries_of(&mut self, other: &Self) {
        self.entries_bytes = self.entries_bytes.saturating_add(other.entries_bytes);
        self.is_incomplete |= other.is_incomplete;
    }

    /// Everything that later items are judged by: where two inodes have equal facts, equal items lead to
    /// equal findings.
    pub(crate) fn facts(&self) -> Facts {
        let item = self.item.unwrap_or_default();
        Facts {
            number: self.number,
            file_type: self.file_type(),
            is_linked: self.item.map(|item| item.link_count > 0),
            has_no_checksums: item.flags.has(InodeFlags::NODATASUM),
            size_bytes: item.size_bytes,
            sums: [self.names, self.entries_bytes, self.allocated_bytes, self.inline_bytes],
            end: self.end,
            first_gap: self.first_gap,
            flags: [self.is_past_end, self.is_incomplete, self.has_unknown_item],
            parent: self.parent,
        }
    }

    /// This inode, with what was found by the items of another of equal [`facts`](Self::facts).
    pub(crate) fn advanced_to(&self, other: &Self) -> Self {
        Self { item: self.item, place: self.place, ..other.clone() }
    }

    fn file_type(&self) -> Option<FileType> {
        self.item.and_then(|item| item.mode.file_type())
    }

    /// What directories should call it.
    fn entry_type(&self) -> DirectoryEntryType {
        self.file_type().map_or(DirectoryEntryType::UNKNOWN, DirectoryEntryType::from)
    }

    pub(crate) fn set_item(&mut self, item: &Item<'_>, collector: &mut Collector<'_>) {
        self.item = InodeItem::decode(item.data).ok();
        self.place = item.place();
        if let Some(kind) = self.item.and_then(|item| odd_owner(self.number, &item)) {
            collector.find(kind, self.place);
        }
    }

    /// Its item breaks a rule.
    pub(crate) fn set_faulty_item(&mut self, place: Place) {
        (self.has_unknown_item, self.is_incomplete) = (true, true);
        self.place = place;
    }

    /// Names in one parent.
    pub(crate) fn add_references(&mut self, item: &Item<'_>, collector: &mut Collector<'_>) {
        let parent = ObjectId(item.key.offset);
        for reference in InodeReferences::new(item.data).flatten() {
            self.add_name(parent, reference.index, reference.name, collector, item);
        }
    }

    /// Names in any parents.
    pub(crate) fn add_extended_references(&mut self, item: &Item<'_>, collector: &mut Collector<'_>) {
        for reference in ExtendedReferences::new(item.data).flatten() {
            self.add_name(reference.parent, reference.index, reference.name, collector, item);
        }
    }

    fn add_name(
        &mut self,
        parent: ObjectId,
        index: DirectoryIndex,
        name: &[u8],
        collector: &mut Collector<'_>,
        item: &Item<'_>,
    ) {
        self.names = self.names.saturating_add(1);
        if let Some(kind) = odd_reference(parent, self.number, index, name) {
            collector.find(kind, item.place());
        }
        if parent != self.number {
            self.parent = Some(parent);
            collector.names.add_reference(parent, index, name, self.number, self.entry_type());
        }
    }

    /// Entries of a directory by hash, or one of its index.
    pub(crate) fn add_entries(&mut self, collector: &mut Collector<'_>, item: &Item<'_>) {
        self.judge_item(collector, item, &[FileType::Directory]);
        odd_entries(item).into_iter().for_each(|kind| collector.find(kind, item.place()));
        for entry in DirectoryEntries::new(item.data).flatten() {
            let length = u64::try_from(entry.name.len()).unwrap_or(u64::MAX);
            self.entries_bytes = self.entries_bytes.saturating_add(length);
            // The entries of a directory that is being deleted go one by one, in no step with their inodes.
            if self.item.is_none_or(|item| item.link_count > 0) {
                self.add_entry(collector, item, &entry);
            }
        }
    }

    fn add_entry(&self, collector: &mut Collector<'_>, item: &Item<'_>, entry: &DirectoryEntry<'_>) {
        if item.key.item_type == ItemType::DIR_INDEX {
            collector.names.add_indexed(self.number, DirectoryIndex(item.key.offset), entry);
        } else {
            collector.names.add_hashed(self.number, entry);
        }
    }

    /// Inodes of these types alone have such items.
    fn judge_item(&self, collector: &mut Collector<'_>, item: &Item<'_>, types: &[FileType]) {
        if let Some(file_type) = self.file_type().filter(|file_type| !types.contains(file_type)) {
            collector.find(FindingKind::InodeOddItem { inode: self.number, file_type }, item.place());
        }
    }

    /// A run of the file's bytes.
    pub(crate) fn add_extent(&mut self, collector: &mut Collector<'_>, item: &Item<'_>) {
        let Ok(extent) = FileExtent::decode(item.data) else { return };
        self.judge_item(collector, item, &[FileType::Regular, FileType::SymbolicLink]);
        let (inode, start) = (self.number, item.key.offset);
        let (judge, flags) = (collector.judge, self.item.map(|item| item.flags));
        for kind in odd_extent(inode, &extent, flags, &judge.rules, judge.superblock.generation) {
            collector.find(kind, item.place());
        }
        if self.end > start {
            let kind = FindingKind::FileExtentOverlap { inode, previous_end: self.end };
            collector.find(kind, item.place());
        } else if self.end < start {
            self.first_gap.get_or_insert(self.end);
        }
        // Others may follow an inline extent: Linux leaves it so where copy_file_range(2) adds bytes behind
        // it, and reads it.
        let sector = u64::from(collector.judge.rules.sector_size).max(1);
        let length = extent.file_bytes();
        let end = start.saturating_add(length);
        self.end = end.checked_next_multiple_of(sector).unwrap_or(u64::MAX);
        if matches!(extent.content, FileExtentContent::Inline(_)) {
            let is_ended = self.ends_with_nul(&extent, length);
            self.inline_bytes = self.inline_bytes.saturating_add(length.saturating_sub(u64::from(is_ended)));
        }
        if let Some(size) = self.size_before(&extent, start, sector) {
            self.is_past_end = true;
            collector.find(FindingKind::FilePastEnd { inode, size }, item.place());
        }
        if !extent.is_hole() {
            self.allocated_bytes = self.allocated_bytes.saturating_add(length);
        }
        self.judge_range(collector, item, &extent);
    }

    /// Whether this is the target of a link with one NUL behind its size: btrfs-convert put it there until
    /// 6.3, and everybody reads up to the size.
    fn ends_with_nul(&self, extent: &FileExtent<'_>, length: u64) -> bool {
        let size = self.item.map(|item| item.size_bytes).unwrap_or_default();
        let FileExtentContent::Inline(target) = &extent.content else { return false };
        self.file_type() == Some(FileType::SymbolicLink)
            && size.checked_add(1) == Some(length)
            && target.last() == Some(&0)
    }

    /// The size of the file, if a written extent begins behind it and none did before.
    fn size_before(&self, extent: &FileExtent<'_>, start: u64, sector: u64) -> Option<u64> {
        let item = self.item.filter(|item| item.link_count > 0 && !self.is_past_end)?;
        let is_written = matches!(extent.content, FileExtentContent::Regular(_)) && !extent.is_hole();
        let end = item.size_bytes.checked_next_multiple_of(sector)?;
        (is_written && start >= end).then_some(item.size_bytes)
    }

    /// An extent on disk has the checksums that it should.
    fn judge_range(&self, collector: &mut Collector<'_>, item: &Item<'_>, extent: &FileExtent<'_>) {
        let Some(range) = extent.range().filter(|range| !range.is_hole()) else { return };
        let is_plain = extent.compression == CompressionId::NONE;
        // Data under relocation have the checksums of those that they came from, or none.
        if item.tree == RootId::DATA_RELOCATION_TREE {
            return;
        }
        let address = range.address.0;
        let (start, length) = if is_plain {
            (address.saturating_add(range.offset_bytes), range.file_bytes)
        } else {
            (address, range.disk_bytes)
        };
        // Of a preallocated extent another file, or another part of this one, may have been written.
        if !matches!(extent.content, FileExtentContent::Regular(_)) {
            return;
        }
        let end = start.saturating_add(length);
        // Of a subvolume that is being deleted the inode's item may be gone, and with it whether there should
        // be any.
        if self.has_unknown_item || (self.item.is_none() && !collector.is_whole) {
            return;
        }
        let flags = self.item.map_or(InodeFlags::NONE, |item| item.flags);
        let has_none = flags.has(InodeFlags::NODATASUM);
        if has_none && collector.checksums.touches(start, end) {
            collector.find(FindingKind::ChecksumOdd { start: Logical(start) }, item.place());
        } else if !has_none && collector.checksums.first_gap(start, end).is_some() {
            let (start, end) = (Logical(start), Logical(end));
            collector.find(FindingKind::ChecksumMissing { start, end }, item.place());
        }
    }

    /// All items were seen. Nothing is missed in a subvolume that is being deleted, of which a part is gone.
    pub(crate) fn finish(&self, collector: &mut Collector<'_>) -> Option<Finished> {
        let (inode, place) = (self.number, self.place);
        let Some(item) = self.item else {
            if collector.is_whole && !self.is_incomplete {
                collector.find(FindingKind::InodeMissing { inode }, place);
            }
            return None;
        };
        let links = u64::from(item.link_count);
        let parent = self.parent.filter(|_| item.mode.is_directory());
        let finished = Finished { is_unlinked: links == 0, parent };
        if !collector.is_whole || self.is_incomplete {
            return Some(finished);
        }
        if links != self.names {
            collector.find(FindingKind::InodeLinks { inode, found: links, expected: self.names }, place);
        }
        if let Some(kind) = odd_flags(inode, &item) {
            collector.find(kind, place);
        }
        // Of an inode that is being deleted some items may be gone already.
        if links == 0 {
            return Some(finished);
        }
        match item.mode.file_type() {
            Some(FileType::Directory) => self.finish_directory(collector, &item),
            Some(FileType::Regular | FileType::SymbolicLink) => self.finish_file(collector, &item),
            _ => {}
        }
        Some(finished)
    }

    fn finish_directory(&self, collector: &mut Collector<'_>, item: &InodeItem) {
        let inode = self.number;
        if item.size_bytes != self.entries_bytes {
            let (found, expected) = (item.size_bytes, self.entries_bytes);
            collector.find(FindingKind::DirectorySize { inode, found, expected }, self.place);
        }
        if self.names > 1 {
            collector.find(FindingKind::DirectoryLinks { inode }, self.place);
        }
    }

    fn finish_file(&self, collector: &mut Collector<'_>, item: &InodeItem) {
        let inode = self.number;
        if item.allocated_bytes != self.allocated_bytes {
            let (found, expected) = (item.allocated_bytes, self.allocated_bytes);
            collector.find(FindingKind::InodeBytes { inode, found, expected }, self.place);
        }
        if item.mode.file_type() == Some(FileType::SymbolicLink) && item.size_bytes != self.inline_bytes {
            let (found, expected) = (item.size_bytes, self.inline_bytes);
            collector.find(FindingKind::LinkSize { inode, found, expected }, self.place);
        }
        if collector.judge.no_holes() {
            return;
        }
        let gap = self.first_gap.or((self.end < item.size_bytes).then_some(self.end));
        if let Some(start) = gap.filter(|start| *start < item.size_bytes) {
            collector.find(FindingKind::FileHole { inode, start }, self.place);
        }
    }
}
