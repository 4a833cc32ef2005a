//! The inodes that a log speaks of: each is in the log or in its subvolume, and of the type that all who
//! speak of it mean. A replay would otherwise stop, or leave names and items that fit no inode. Sources:
//! Linux's `replay_one_buffer`, `replay_one_name`.

use vlinder_format::directory::{DirectoryEntries, DirectoryEntryType};
use vlinder_format::file_extent::FileExtent;
use vlinder_format::inode::{FileType, InodeFlags, InodeItem};
use vlinder_format::inode_ref::{ExtendedReferences, InodeReferences};
use vlinder_format::{ItemType, ObjectId};

use crate::check_state::CheckState;
use crate::checked_tree::CheckedTree;
use crate::finding::FindingKind;
use crate::item::Item;
use crate::judge::Judge;
use crate::single_item::{odd_entries, odd_extent, odd_flags, odd_index, odd_owner, odd_reference};

/// What an inode is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum FoundInode {
    /// Of this type, where it is one.
    Is(Option<FileType>),
    /// There is none.
    Missing,
    /// What would say so could not be read.
    Unreadable,
}

/// Judges the items of a log, one after the other.
pub(crate) struct Inodes {
    log: CheckedTree,
    subvolume: CheckedTree,
    /// The inode of the items that come, and whether it was found missing.
    current: Option<(ObjectId, FoundInode)>,
    /// The inode that was looked for last: names come by directory.
    last: Option<(ObjectId, FoundInode)>,
}

impl Inodes {
    pub(crate) fn new(log: CheckedTree, subvolume: CheckedTree) -> Self {
        Self { log, subvolume, current: None, last: None }
    }

    /// The next item of the log, whose kind logs may hold.
    pub(crate) fn judge(&mut self, context: &mut CheckState<'_>, item: &Item<'_>) {
        let (inode, item_type) = (item.key.objectid, item.key.item_type);
        // A log's checksums are of no inode; and what a directory has lost is of no matter where it is gone
        // itself.
        if [ItemType::EXTENT_CHECKSUM, ItemType::DIR_LOG_ITEM, ItemType::DIR_LOG_INDEX].contains(&item_type) {
            return;
        }
        let is = self.current(context, item);
        let mut find = |inode, reason| context.find(FindingKind::LogInode { inode, reason }, item.place());
        match item_type {
            ItemType::DIR_ITEM | ItemType::DIR_INDEX if is_other(is, &[FileType::Directory]) => {
                return find(inode, "has names in it and is no directory");
            }
            ItemType::EXTENT_DATA if is_other(is, &[FileType::Regular, FileType::SymbolicLink]) => {
                return find(inode, "has data and is no file");
            }
            _ => {}
        }
        match item_type {
            ItemType::DIR_ITEM | ItemType::DIR_INDEX => {
                for entry in DirectoryEntries::new(item.data).flatten() {
                    if entry.location.item_type == ItemType::INODE_ITEM {
                        self.judge_child(context, item, entry.location.objectid, entry.entry_type);
                    }
                }
            }
            ItemType::INODE_REF => self.judge_parent(context, item, ObjectId(item.key.offset)),
            ItemType::INODE_EXTREF => {
                for reference in ExtendedReferences::new(item.data).flatten() {
                    self.judge_parent(context, item, reference.parent);
                }
            }
            _ => {}
        }
    }

    /// The inode of an item. The first of its items comes to a finding if it is missing, or changes its type.
    fn current(&mut self, context: &mut CheckState<'_>, item: &Item<'_>) -> FoundInode {
        let inode = item.key.objectid;
        if let Some((_, known)) = self.current.filter(|(current, _)| *current == inode) {
            return known;
        }
        let committed = look(&context.judge, &self.subvolume, inode);
        let logged = (item.key.item_type == ItemType::INODE_ITEM).then(|| type_in(item.data));
        let known = logged.unwrap_or(committed);
        let reason = match (known, committed) {
            (FoundInode::Missing, _) => Some("is neither in the log nor in the subvolume"),
            (FoundInode::Is(logged), FoundInode::Is(committed)) if logged != committed => {
                Some("is of another type than in the subvolume")
            }
            _ => None,
        };
        if let Some(reason) = reason {
            context.find(FindingKind::LogInode { inode, reason }, item.place());
        }
        self.current = Some((inode, known));
        known
    }

    /// What an inode is that an item of another names.
    fn other(&mut self, judge: &Judge<'_>, inode: ObjectId) -> FoundInode {
        if let Some((_, known)) = self.last.filter(|(last, _)| *last == inode) {
            return known;
        }
        let known = match look(judge, &self.log, inode) {
            FoundInode::Missing => look(judge, &self.subvolume, inode),
            known => known,
        };
        self.last = Some((inode, known));
        known
    }

    /// A name of a log for what is gone is passed over.
    fn judge_child(
        &mut self,
        context: &mut CheckState<'_>,
        item: &Item<'_>,
        inode: ObjectId,
        entry_type: DirectoryEntryType,
    ) {
        let known = self.other(&context.judge, inode);
        if matches!(known, FoundInode::Is(found) if found != entry_type.file_type()) {
            let reason = "is of another type than its name says";
            context.find(FindingKind::LogInode { inode, reason }, item.place());
        }
    }

    fn judge_parent(&mut self, context: &mut CheckState<'_>, item: &Item<'_>, inode: ObjectId) {
        let known = self.other(&context.judge, inode);
        if is_other(known, &[FileType::Directory]) {
            let reason = "has a name in it and is no directory";
            context.find(FindingKind::LogInode { inode, reason }, item.place());
        }
    }
}

/// What of a log's item is wrong by itself: a replay takes it over as it is. `flags` are those of its inode,
/// where the log has told them.
pub(crate) fn odd_item(judge: &Judge<'_>, item: &Item<'_>, flags: Option<InodeFlags>) -> Vec<FindingKind> {
    let (inode, newest) = (item.key.objectid, judge.superblock.generation.next());
    let of_name = |directory, index, name| {
        let at = if directory == inode { None } else { odd_index(directory, index) };
        at.into_iter().chain(odd_reference(directory, inode, index, name))
    };
    match item.key.item_type {
        ItemType::INODE_ITEM => InodeItem::decode(item.data).map_or_else(
            |_| Vec::new(),
            |decoded| odd_owner(inode, &decoded).into_iter().chain(odd_flags(inode, &decoded)).collect(),
        ),
        ItemType::DIR_ITEM | ItemType::DIR_INDEX => odd_entries(item),
        ItemType::INODE_REF => InodeReferences::new(item.data)
            .flatten()
            .flat_map(|reference| of_name(ObjectId(item.key.offset), reference.index, reference.name))
            .collect(),
        ItemType::INODE_EXTREF => ExtendedReferences::new(item.data)
            .flatten()
            .flat_map(|reference| of_name(reference.parent, reference.index, reference.name))
            .collect(),
        ItemType::EXTENT_DATA => FileExtent::decode(item.data).map_or_else(
            |_| Vec::new(),
            |extent| odd_extent(inode, &extent, flags, &judge.rules, newest).collect(),
        ),
        _ => Vec::new(),
    }
}

/// Whether an inode is of none of these types.
fn is_other(known: FoundInode, types: &[FileType]) -> bool {
    matches!(known, FoundInode::Is(found) if !found.is_some_and(|found| types.contains(&found)))
}

fn type_in(data: &[u8]) -> FoundInode {
    InodeItem::decode(data).map_or(FoundInode::Unreadable, |item| FoundInode::Is(item.file_type()))
}

/// Looks for the item of an inode. What is wrong on the way is found when the tree is walked.
fn look(judge: &Judge<'_>, tree: &CheckedTree, inode: ObjectId) -> FoundInode {
    let key = InodeItem::key(inode);
    let Some(leaf) = judge.leaf_of(tree, &key) else { return FoundInode::Unreadable };
    leaf.search(&key).map_or(FoundInode::Missing, |slot| type_in(leaf.data(slot)))
}
