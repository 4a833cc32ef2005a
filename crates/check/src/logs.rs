//! The fsync log: a tree of logs, one for each subvolume that was synced since the last commit, and the logs
//! themselves.
//!
//! Their blocks have no extent items, and what they refer to may have none yet: they lie in what is free.
//! Sources: Linux's `btrfs_recover_log_trees`, `walk_log_tree`; what kinds of items a log holds:
//! `btrfs_log_inode`, `log_csums`.

use std::iter::Peekable;

use vlinder_format::file_extent::{CompressionId, FileExtent, FileExtentContent};
use vlinder_format::inode::{InodeFlags, InodeItem};
use vlinder_format::{ItemType, Key, Logical, ObjectId, Place, RootId};

use crate::belongings::log_may_hold;
use crate::check_state::CheckState;
use crate::checked_tree::CheckedTree;
use crate::finding::FindingKind;
use crate::item::Item;
use crate::logged::{Inodes, odd_item};
use crate::ranges::{Gathering, Ranges};
use crate::roots::{FoundRoot, Roots};
use crate::sorted::take;
use crate::sorted::{Pass, Record, Sorted, Sorter};
use crate::walk::{ItemVisitor, walk};

/// A range that a log uses, and where it says so: for a block its leaf, for a data extent the item.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Logged {
    start: u64,
    length: u64,
    tree: RootId,
    leaf: Logical,
    /// Of data.
    item: Option<(u32, Key)>,
}

impl Logged {
    fn place(&self) -> Place {
        Place {
            tree: Some(self.tree),
            block: Some(self.leaf),
            slot: self.item.map(|(slot, _)| slot),
            key: self.item.map(|(_, key)| key),
        }
    }

    fn end(&self) -> u64 {
        self.start.saturating_add(self.length)
    }

    /// That something else lies there.
    fn in_use(&self) -> FindingKind {
        FindingKind::LogInUse { start: Logical(self.start), length: self.length }
    }
}

impl Record for Logged {
    const BYTES: usize = <[u64; 4]>::BYTES + 5 + Key::SIZE;

    fn encode(&self, bytes: &mut Vec<u8>) {
        [self.start, self.length, self.tree.0, self.leaf.0].encode(bytes);
        let (slot, key) = self.item.unwrap_or((0, Key::MIN));
        bytes.push(u8::from(self.item.is_some()));
        bytes.extend_from_slice(&slot.to_le_bytes());
        bytes.extend_from_slice(&key.encode());
    }

    fn decode(bytes: &[u8]) -> Self {
        let mut rest = bytes;
        let numbers: [u8; <[u64; 4]>::BYTES] = take(&mut rest);
        let [start, length, tree, leaf] = <[u64; 4]>::decode(&numbers);
        let [has_item] = take(&mut rest);
        let (slot, key) = (u32::from_le_bytes(take(&mut rest)), Key::decode(&take(&mut rest)));
        let item = (has_item == 1).then_some((slot, key));
        Self { start, length, tree: RootId(tree), leaf: Logical(leaf), item }
    }

    /// Each item is told by itself.
    fn absorb(&mut self, next: &Self) -> bool {
        self == next
    }
}

/// What the logs refer to.
#[derive(Default)]
pub(crate) struct Logs {
    extents: Sorted<Logged>,
    blocks: Sorted<Logged>,
    /// Data that must have checksums, and data that must not, after the flags of their inodes.
    summed: Sorted<Logged>,
    unsummed: Sorted<Logged>,
    /// The checksums in the logs themselves.
    checksums: Ranges,
}

/// The blocks of logs, while these are read.
struct Blocks {
    list: Sorter<Logged>,
    last: Option<Logical>,
    node_size: u64,
}

impl Blocks {
    fn new(context: &CheckState<'_>) -> Self {
        let node_size = u64::from(context.judge.rules.node_size);
        Self { list: context.sorter(), last: None, node_size }
    }

    /// Notes the block of an item, once.
    fn note(&mut self, item: &Item<'_>) {
        let leaf = item.leaf.logical();
        if self.last.replace(leaf) != Some(leaf) {
            let (start, length) = (leaf.0, self.node_size);
            self.list.add(Logged { start, length, tree: item.tree, leaf, item: None });
        }
    }
}

/// The tree of logs.
struct LogRoots<'a> {
    /// Whose log, and its tree.
    logs: Vec<(RootId, CheckedTree, Place)>,
    blocks: &'a mut Blocks,
}

impl ItemVisitor for LogRoots<'_> {
    fn item(&mut self, context: &mut CheckState<'_>, item: &Item<'_>) {
        self.blocks.note(item);
        if item.key.item_type != ItemType::ROOT_ITEM || RootId(item.key.objectid.0) != RootId::TREE_LOG {
            return context.find(FindingKind::LogItem { item_type: item.key.item_type }, item.place());
        }
        let subvolume = RootId(item.key.offset);
        let log = FoundRoot::of(item).map(|log| CheckedTree { has_references: false, ..log.tree() });
        self.logs.extend(log.map(|log| (subvolume, log, item.place())));
    }
}

/// The data of logs, while these are read.
struct Data {
    extents: Sorter<Logged>,
    summed: Sorter<Logged>,
    unsummed: Sorter<Logged>,
    checksums: Gathering,
    checksum_size: u64,
    sector_size: u64,
}

impl Data {
    fn new(context: &CheckState<'_>) -> Self {
        let rules = &context.judge.rules;
        Self {
            extents: context.sorter(),
            summed: context.sorter(),
            unsummed: context.sorter(),
            checksums: context.gathering(),
            checksum_size: u64::from(rules.checksum_size),
            sector_size: u64::from(rules.sector_size),
        }
    }

    /// The data that an item of a file refers to.
    fn note_extent(&mut self, item: &Item<'_>, flags: Option<InodeFlags>) {
        let Ok(extent) = FileExtent::decode(item.data) else { return };
        let Some(range) = extent.range().filter(|range| !range.is_hole()) else { return };
        let slot = u32::try_from(item.slot).unwrap_or(u32::MAX);
        let (tree, leaf, item_of) = (item.tree, item.leaf.logical(), Some((slot, item.key)));
        let logged = |start, length| Logged { start, length, tree, leaf, item: item_of };
        self.extents.add(logged(range.address.0, range.disk_bytes));
        // What was preallocated has none where nothing was written.
        let (Some(flags), FileExtentContent::Regular(_)) = (flags, &extent.content) else { return };
        let stored = match extent.compression {
            CompressionId::NONE => {
                logged(range.address.0.saturating_add(range.offset_bytes), range.file_bytes)
            }
            _ => logged(range.address.0, range.disk_bytes),
        };
        let list = if flags.has(InodeFlags::NODATASUM) { &mut self.unsummed } else { &mut self.summed };
        list.add(stored);
    }

    /// An item of checksums.
    fn note_checksums(&mut self, item: &Item<'_>) {
        let sums = u64::try_from(item.data.len()).unwrap_or(0).checked_div(self.checksum_size).unwrap_or(0);
        let start = item.key.offset;
        self.checksums.add(start, start.saturating_add(sums.saturating_mul(self.sector_size)));
    }

    fn finish(self, blocks: Sorted<Logged>) -> Logs {
        Logs {
            extents: self.extents.finish(),
            blocks,
            summed: self.summed.finish(),
            unsummed: self.unsummed.finish(),
            checksums: self.checksums.finish(),
        }
    }
}

/// A log.
struct Log<'a> {
    found: &'a mut Data,
    blocks: &'a mut Blocks,
    /// The inode whose items come, if its item is in the log.
    flags: Option<(ObjectId, InodeFlags)>,
    /// Where its subvolume is there.
    inodes: Option<Inodes>,
}

impl ItemVisitor for Log<'_> {
    fn item(&mut self, context: &mut CheckState<'_>, item: &Item<'_>) {
        self.blocks.note(item);
        let item_type = item.key.item_type;
        if !log_may_hold(item_type) {
            return context.find(FindingKind::LogItem { item_type }, item.place());
        }
        let inode = item.key.objectid;
        let flags = self.flags.filter(|(of, _)| *of == inode).map(|(_, flags)| flags);
        for kind in odd_item(&context.judge, item, flags) {
            context.find(kind, item.place());
        }
        if let Some(inodes) = &mut self.inodes {
            inodes.judge(context, item);
        }
        match item_type {
            ItemType::INODE_ITEM => {
                self.flags = InodeItem::decode(item.data).ok().map(|decoded| (inode, decoded.flags));
            }
            ItemType::EXTENT_DATA => self.found.note_extent(item, flags),
            ItemType::EXTENT_CHECKSUM => self.found.note_checksums(item),
            _ => {}
        }
    }
}

/// Reads the logs, if there are any.
pub(crate) fn read(context: &mut CheckState<'_>, roots: &Roots) -> Logs {
    let superblock = context.judge.superblock;
    if !superblock.has_log() {
        return Logs::default();
    }
    let newest = superblock.generation.next();
    let tree = CheckedTree {
        id: RootId::TREE_LOG,
        logical: superblock.log_root,
        generation: newest,
        level: superblock.log_root_level,
        has_references: false,
        dropped_to: None,
        last_snapshot: None,
    };
    let (mut blocks, mut found) = (Blocks::new(context), Data::new(context));
    let mut of_subvolumes = LogRoots { logs: Vec::new(), blocks: &mut blocks };
    walk(context, &tree, &mut of_subvolumes);
    for (subvolume, log, place) in of_subvolumes.logs {
        let committed = roots.get(subvolume).filter(|_| subvolume.is_subvolume());
        if !subvolume.is_subvolume() {
            context.find(FindingKind::LogSubvolume { subvolume, reason: "can have none" }, place);
        } else if committed.is_none() && !roots.faulty.has_root(subvolume) {
            // It was deleted after the fsync: Linux passes its log over.
            context.find(FindingKind::LogLeftover { subvolume }, place);
        }
        if log.generation != newest {
            let (found, expected) = (log.generation, newest);
            context.find(FindingKind::LogGeneration { found, expected }, place);
        }
        let inodes = committed.map(|committed| Inodes::new(log, committed));
        walk(context, &log, &mut Log { found: &mut found, blocks: &mut blocks, flags: None, inodes });
    }
    found.finish(blocks.list.finish())
}

impl Logs {
    /// The data extents that only a replay makes known, each its first byte and the byte behind the last:
    /// they may have checksums already.
    pub(crate) fn extents(&self) -> impl Iterator<Item = (u64, u64)> {
        self.extents.iter().map(|extent| (extent.start, extent.end()))
    }

    /// Data that a log knows have checksums, in the log or in the tree of the last commit, unless their inode
    /// has none.
    pub(crate) fn judge_checksums(&self, context: &mut CheckState<'_>, committed: &Ranges) {
        for data in self.unsummed.iter() {
            if [committed, &self.checksums].iter().any(|sums| sums.touches(data.start, data.end())) {
                context.find(FindingKind::ChecksumOdd { start: Logical(data.start) }, data.place());
            }
        }
        for data in self.summed.iter() {
            if !is_covered(data.start, data.end(), committed, &self.checksums) {
                let (start, end) = (Logical(data.start), Logical(data.end()));
                context.find(FindingKind::ChecksumMissing { start, end }, data.place());
            }
        }
    }

    /// Compares what the logs use with what is used: a log's blocks must be free, and so must a data extent
    /// that is no extent yet.
    pub(crate) fn judge(
        &self,
        context: &mut CheckState<'_>,
        used: &Ranges,
        extent_tree: Option<CheckedTree>,
    ) {
        let is_taken = |logged: &Logged| used.touches(logged.start, logged.end());
        for block in self.blocks.iter().filter(is_taken) {
            context.find(block.in_use(), block.place());
        }
        let mut known = KnownExtents { wanted: self.extents.iter().peekable(), unknown: context.sorter() };
        if let Some(tree) = extent_tree.filter(|_| self.extents.iter().any(|extent| is_taken(&extent))) {
            let tree = CheckedTree { has_references: false, ..tree };
            context.quietly(|context| walk(context, &tree, &mut known));
        }
        let KnownExtents { wanted, unknown } = known;
        let unknown = unknown.finish();
        for extent in unknown.iter().chain(wanted).filter(is_taken) {
            context.find(extent.in_use(), extent.place());
        }
    }
}

/// Whether a range is covered by two sets together.
fn is_covered(start: u64, end: u64, one: &Ranges, other: &Ranges) -> bool {
    let mut at = start;
    while let Some((gap, to)) = one.first_gap(at, end) {
        if other.first_gap(gap, to).is_some() {
            return false;
        }
        at = to;
    }
    true
}

/// Passes over the extents that are wanted and those that there are, both in order.
struct KnownExtents<'a> {
    wanted: Peekable<Pass<'a, Logged>>,
    /// Those that there is no extent of just this place and length for.
    unknown: Sorter<Logged>,
}

impl ItemVisitor for KnownExtents<'_> {
    fn item(&mut self, _: &mut CheckState<'_>, item: &Item<'_>) {
        let Key { objectid, item_type, offset } = item.key;
        if item_type != ItemType::EXTENT_ITEM {
            return;
        }
        let extent = (objectid.0, offset);
        while let Some(wanted) = self.wanted.next_if(|wanted| (wanted.start, wanted.length) <= extent) {
            if (wanted.start, wanted.length) != extent {
                self.unknown.add(wanted);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_logs_use_comes_back_from_its_bytes() {
        let of_block = Logged {
            start: 0x0102_0304_0506_0708,
            length: 0x1112_1314_1516_1718,
            tree: RootId(256),
            leaf: Logical(0x2122_2324_2526_2728),
            item: None,
        };
        let key = Key::new(ObjectId(257), ItemType::EXTENT_DATA, 0x3132_3334_3536_3738);
        for logged in [of_block, Logged { item: Some((0x4142_4344, key)), ..of_block }] {
            let mut bytes = Vec::new();
            logged.encode(&mut bytes);
            assert_eq!(bytes.len(), Logged::BYTES);
            assert_eq!(Logged::decode(&bytes), logged);
        }
    }
}
