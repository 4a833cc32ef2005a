//! The fsync log: a tree of logs, one for each subvolume that was synced since the last commit, and the logs themselves.
//!
//! Their blocks have no extent items, and what they refer to may have none yet: they lie in what is free. Sources: Linux's
//! `btrfs_recover_log_trees`, `walk_log_tree`; what kinds of items a log holds: `btrfs_log_inode`, `log_csums`.

use vlinder_format::file_extent::FileExtent;
use vlinder_format::{ItemType, Key, Logical, Place, RootId};

use crate::context::Context;
use crate::finding::FindingKind;
use crate::logged::Inodes;
use crate::ranges::Ranges;
use crate::roots::{FoundRoot, Roots};
use crate::walk::{Item, ItemVisitor, Tree, walk};

/// What a log may hold.
const ITEMS: &[ItemType] = &[
    ItemType::INODE_ITEM,
    ItemType::INODE_REF,
    ItemType::INODE_EXTREF,
    ItemType::XATTR_ITEM,
    ItemType::VERITY_DESCRIPTOR_ITEM,
    ItemType::VERITY_MERKLE_ITEM,
    ItemType::DIR_ITEM,
    ItemType::DIR_INDEX,
    ItemType::DIR_LOG_ITEM,
    ItemType::DIR_LOG_INDEX,
    ItemType::EXTENT_DATA,
    ItemType::EXTENT_CHECKSUM,
];

/// A data extent that a log refers to.
struct LoggedExtent {
    start: u64,
    length: u64,
    place: Place,
}

/// What the logs refer to.
#[derive(Default)]
pub(crate) struct Logs {
    extents: Vec<LoggedExtent>,
    blocks: Vec<(Logical, Place)>,
}

/// The tree of logs.
#[derive(Default)]
struct LogRoots {
    /// Whose log, and its tree.
    logs: Vec<(RootId, Tree, Place)>,
    blocks: Vec<(Logical, Place)>,
}

/// Notes the block of an item, once.
fn note_block(blocks: &mut Vec<(Logical, Place)>, item: &Item<'_>) {
    let logical = item.leaf.logical();
    if blocks.last().is_none_or(|(last, _)| *last != logical) {
        let place = Place { tree: Some(item.tree), block: Some(logical), ..Place::default() };
        blocks.push((logical, place));
    }
}

impl ItemVisitor for LogRoots {
    fn item(&mut self, context: &mut Context<'_>, item: &Item<'_>) {
        note_block(&mut self.blocks, item);
        if item.key.item_type != ItemType::ROOT_ITEM || RootId(item.key.objectid.0) != RootId::TREE_LOG {
            return context.find(FindingKind::LogItem { item_type: item.key.item_type }, item.place());
        }
        let subvolume = RootId(item.key.offset);
        let log = FoundRoot::of(item).map(|log| Tree { has_references: false, ..log.tree() });
        self.logs.extend(log.map(|log| (subvolume, log, item.place())));
    }
}

/// A log.
struct Log<'a> {
    logs: &'a mut Logs,
    /// Where its subvolume is there.
    inodes: Option<Inodes>,
}

impl ItemVisitor for Log<'_> {
    fn item(&mut self, context: &mut Context<'_>, item: &Item<'_>) {
        note_block(&mut self.logs.blocks, item);
        let item_type = item.key.item_type;
        if !ITEMS.contains(&item_type) {
            return context.find(FindingKind::LogItem { item_type }, item.place());
        }
        if let Some(inodes) = &mut self.inodes {
            inodes.judge(context, item);
        }
        if item_type != ItemType::EXTENT_DATA {
            return;
        }
        let range = FileExtent::decode(item.data).ok().and_then(|extent| extent.range());
        if let Some(range) = range.filter(|range| !range.is_hole()) {
            let (start, length) = (range.address.0, range.disk_bytes);
            self.logs.extents.push(LoggedExtent { start, length, place: item.place() });
        }
    }
}

/// Reads the logs, if there are any.
pub(crate) fn read(context: &mut Context<'_>, roots: &Roots) -> Logs {
    let mut logs = Logs::default();
    let superblock = context.judge.superblock;
    if !superblock.has_log() {
        return logs;
    }
    let newest = superblock.generation.next();
    let tree = Tree {
        id: RootId::TREE_LOG,
        logical: superblock.log_root,
        generation: newest,
        level: superblock.log_root_level,
        has_references: false,
        dropped_to: None,
    };
    let mut of_subvolumes = LogRoots::default();
    walk(context, &tree, &mut of_subvolumes);
    logs.blocks.append(&mut of_subvolumes.blocks);
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
        walk(context, &log, &mut Log { logs: &mut logs, inodes });
    }
    logs
}

impl Logs {
    /// The data extents that only a replay makes known, each its first byte and the byte behind the last: they may have
    /// checksums already.
    pub(crate) fn extents(&self) -> impl Iterator<Item = (u64, u64)> {
        self.extents.iter().map(|extent| (extent.start, extent.start.saturating_add(extent.length)))
    }

    /// Compares what the logs use with what is used: a log's blocks must be free, and so must a data extent that is no
    /// extent yet.
    pub(crate) fn judge(&self, context: &mut Context<'_>, used: &Ranges, extent_tree: Option<Tree>) {
        let node_size = u64::from(context.judge.rules.node_size);
        for (logical, place) in &self.blocks {
            if used.touches(logical.0, logical.0.saturating_add(node_size)) {
                let kind = FindingKind::LogInUse { start: *logical, length: node_size };
                context.find(kind, *place);
            }
        }
        let is_taken =
            |extent: &&LoggedExtent| used.touches(extent.start, extent.start.saturating_add(extent.length));
        let mut taken: Vec<&LoggedExtent> = self.extents.iter().filter(is_taken).collect();
        taken.sort_unstable_by_key(|extent| (extent.start, extent.length));
        let mut known = KnownExtents { wanted: &taken, found: vec![false; taken.len()] };
        if let Some(tree) = extent_tree.filter(|_| !taken.is_empty()) {
            let tree = Tree { has_references: false, ..tree };
            context.quietly(|context| walk(context, &tree, &mut known));
        }
        let unknown: Vec<&LoggedExtent> =
            taken.iter().zip(&known.found).filter(|(_, found)| !**found).map(|(extent, _)| *extent).collect();
        for extent in unknown {
            let kind = FindingKind::LogInUse { start: Logical(extent.start), length: extent.length };
            context.find(kind, extent.place);
        }
    }
}

/// Looks for extents of just these places and lengths.
struct KnownExtents<'a> {
    wanted: &'a [&'a LoggedExtent],
    found: Vec<bool>,
}

impl ItemVisitor for KnownExtents<'_> {
    fn item(&mut self, _: &mut Context<'_>, item: &Item<'_>) {
        let Key { objectid, item_type, offset } = item.key;
        if item_type != ItemType::EXTENT_ITEM {
            return;
        }
        let extent = (objectid.0, offset);
        let first = self.wanted.partition_point(|wanted| (wanted.start, wanted.length) < extent);
        let same = self.wanted.iter().zip(&mut self.found).skip(first);
        for (_, found) in same.take_while(|(wanted, _)| (wanted.start, wanted.length) == extent) {
            *found = true;
        }
    }
}
