//! What a damaged tree still has of directories, files and attributes, a batch at a time.

use std::ops::RangeInclusive;

use vlinder_data::{Content, Extent};
use vlinder_format::directory::{DirectoryEntries, DirectoryEntry};
use vlinder_format::file_extent::CompressionId;
use vlinder_format::inode_ref::{ExtendedReferences, InodeReferences};
use vlinder_format::{Damage, ItemType, Key, Logical, ObjectId, Place, RootId};
use vlinder_transaction::EngineError;
use vlinder_tree::{Lost, Position, TreeError};

use super::{ListedRoot, Salvage};
use crate::{FileType, FsError, InodeId, Result};

/// Items looked at for one batch, so that none takes long or much memory.
const BATCH_ITEMS: usize = 256;

/// Part of what was asked for that can't be read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LostPart {
    /// Every key that was lost is one of these.
    pub keys: RangeInclusive<Key>,
    /// Why.
    pub reason: String,
    /// What was left out of its leaf, if that is all that was lost.
    pub item: Option<ItemPlace>,
}

/// An item on disk: its block and its key.
pub type ItemPlace = (Logical, Key);

/// An item that breaks a rule, in a tree block that is sound but for such items.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LeftOutItem {
    /// The tree that was being read. Snapshots share blocks: others may lack the item, too.
    pub tree: RootId,
    /// Where it is.
    pub place: ItemPlace,
    /// Where it is and what is wrong with it, in words.
    pub reason: String,
}

/// Where the next batch begins; none at the end.
pub type Next = Option<Key>;

/// A name in a directory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Name {
    /// The name, as it is on disk: it may hold anything.
    pub name: Vec<u8>,
    /// What it stands for.
    pub id: InodeId,
}

/// Some names of a directory.
#[derive(Debug, Default)]
pub struct SalvagedNames {
    /// In the directory's order, then those of its look-up index.
    pub names: Vec<Name>,
    /// What could not be read.
    pub lost: Vec<LostPart>,
    /// Where to go on.
    pub next: Next,
}

/// A run of a file that has bytes on disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Run {
    /// Its first byte.
    pub start: u64,
    /// Behind its last.
    pub end: u64,
    /// It can be decoded only as a whole.
    pub is_compressed: bool,
}

/// Some runs of a file.
#[derive(Debug, Default)]
pub struct SalvagedRuns {
    /// In order; what lies between them reads as zeros, or was lost.
    pub runs: Vec<Run>,
    /// What could not be read, in order.
    pub lost: Vec<LostPart>,
    /// Where to go on.
    pub next: Next,
}

/// An extended attribute: name and value.
pub type ExtendedAttribute = (Vec<u8>, Vec<u8>);

/// Items of one batch.
struct Batch {
    items: Vec<Position>,
    lost: Vec<LostPart>,
    next: Next,
}

impl LostPart {
    fn of(lost: Lost) -> Self {
        let item = match &*lost.error {
            TreeError::Damage(damage) if lost.is_item => item_place(&damage.place),
            _ => None,
        };
        Self { keys: lost.keys, reason: lost.error.to_string(), item }
    }
}

fn item_place(place: &Place) -> Option<ItemPlace> {
    place.block.zip(place.key)
}

/// The item that an error is about, if it is about one alone.
#[must_use]
pub fn item_of(error: &FsError) -> Option<ItemPlace> {
    match error {
        FsError::Tree(TreeError::Damage(damage))
        | FsError::Damage(damage)
        | FsError::Engine(EngineError::Damage(damage) | EngineError::Tree(TreeError::Damage(damage))) => {
            item_place(&damage.place)
        }
        _ => None,
    }
}

impl Salvage {
    fn batch(&self, root: RootId, range: RangeInclusive<Key>) -> Result<Batch> {
        let last = *range.end();
        let tree = self.filesystem().subvolume(root)?;
        Ok(batch_of(self.filesystem().engine().forest().trees().salvage(tree.tree().root(), range), last))
    }

    /// Names of a directory from a place on; none for the beginning. The same name may come twice: once by
    /// its index, and once more, where `doubtful` says that indexes were lost, by its hash.
    ///
    /// # Errors
    /// Where the subvolume's root item can't be read.
    pub fn names(&self, directory: InodeId, from: Option<Key>, doubtful: bool) -> Result<SalvagedNames> {
        let number = directory.number;
        let by_index = Key::new(number, ItemType::DIR_INDEX, 0);
        let by_hash = Key::new(number, ItemType::DIR_ITEM, 0);
        let from = from.unwrap_or(by_index);
        let (last, then) = match from.item_type {
            ItemType::DIR_INDEX => (Key::new(number, ItemType::DIR_INDEX, u64::MAX), Some(by_hash)),
            _ => (Key::new(number, ItemType::DIR_ITEM, u64::MAX), None),
        };
        let batch = self.batch(directory.root, from..=last)?;
        let is_doubtful = doubtful || !batch.lost.is_empty();
        let next = batch.next.or(then.filter(|_| is_doubtful));
        let mut found = SalvagedNames { names: Vec::new(), lost: batch.lost, next };
        for position in &batch.items {
            for entry in DirectoryEntries::new(position.data()).flatten() {
                found.names.push(name_of(directory.root, &entry));
            }
        }
        Ok(found)
    }

    /// Runs of a file from a place on; none for the beginning.
    ///
    /// # Errors
    /// As [`Salvage::names`].
    pub fn runs(&self, file: InodeId, from: Option<Key>) -> Result<SalvagedRuns> {
        let key = |offset| Key::new(file.number, ItemType::EXTENT_DATA, offset);
        let batch = self.batch(file.root, from.unwrap_or(key(0))..=key(u64::MAX))?;
        let mut found = SalvagedRuns { runs: Vec::new(), lost: batch.lost, next: batch.next };
        let sector_size = u64::from(self.filesystem().sector_size());
        for (number, position) in batch.items.iter().enumerate() {
            let extent = match Extent::decode(position.key().offset, position.data()) {
                Ok(extent) => extent,
                Err(fault) => {
                    let place = position.place(file.root);
                    // What it describes may reach to where the next one begins, if that is known.
                    let next = batch.items.get(number + 1).map(Position::key);
                    let lost = found.lost.iter().map(|part| *part.keys.start());
                    let next = next.into_iter().chain(lost.filter(|start| *start > position.key())).min();
                    let last = next.and_then(Key::previous).unwrap_or(key(u64::MAX));
                    let reason = Damage::new(fault, place).to_string();
                    let keys = position.key()..=last;
                    found.lost.push(LostPart { keys, reason, item: item_place(&place) });
                    continue;
                }
            };
            let has_bytes = match &extent.content {
                Content::Inline(_) => true,
                Content::Regular(range) => !range.is_hole(),
                Content::Preallocated(_) => false,
            };
            let range = extent.file_range(sector_size);
            if has_bytes && !range.is_empty() {
                let is_compressed = extent.compression != CompressionId::NONE;
                found.runs.push(Run { start: range.start(), end: range.end(), is_compressed });
            }
        }
        found.lost.sort_by_key(|part| *part.keys.start());
        Ok(found)
    }

    /// Gives each extended attribute of an inode, and tells what of them is lost.
    ///
    /// # Errors
    /// As [`Salvage::names`].
    pub fn attributes(
        &self,
        inode: InodeId,
        take: &mut dyn FnMut(ExtendedAttribute),
    ) -> Result<Vec<LostPart>> {
        let key = |offset| Key::new(inode.number, ItemType::XATTR_ITEM, offset);
        let (mut from, mut lost) = (Some(key(0)), Vec::new());
        while let Some(start) = from {
            let batch = self.batch(inode.root, start..=key(u64::MAX))?;
            for position in &batch.items {
                for entry in DirectoryEntries::new(position.data()).flatten() {
                    take((entry.name.to_vec(), entry.data.to_vec()));
                }
            }
            lost.extend(batch.lost);
            from = batch.next;
        }
        Ok(lost)
    }

    /// The next inode with a number at or above this one, whether a directory has its name or not.
    ///
    /// # Errors
    /// As [`Salvage::names`].
    pub fn next_inode(&self, root: RootId, at_or_above: ObjectId) -> Result<Option<ObjectId>> {
        let tree = self.filesystem().subvolume(root)?;
        let engine = self.filesystem().engine();
        let last = Key::new(ObjectId::LAST_FREE, ItemType(u8::MAX), u64::MAX);
        let mut from = Key::new(at_or_above, ItemType(0), 0);
        while from <= last {
            let mut walk = engine.forest().trees().salvage(tree.tree().root(), from..=last);
            let Some(position) = walk.by_ref().flatten().next() else { return Ok(None) };
            let number = position.key().objectid;
            if position.key() == Key::new(number, ItemType::INODE_ITEM, 0) {
                return Ok(Some(number));
            }
            let Some(next) = number.0.checked_add(1) else { return Ok(None) };
            from = if position.key().item_type < ItemType::INODE_ITEM {
                Key::new(number, ItemType::INODE_ITEM, 0)
            } else {
                Key::new(ObjectId(next), ItemType(0), 0)
            };
        }
        Ok(None)
    }

    /// The directory in which an inode says that it is, and its name there.
    ///
    /// # Errors
    /// As [`Salvage::names`].
    pub fn own_name(&self, inode: InodeId) -> Result<Option<(ObjectId, Vec<u8>)>> {
        let first = Key::new(inode.number, ItemType::INODE_REF, 0);
        let last = Key::new(inode.number, ItemType::INODE_EXTREF, u64::MAX);
        let batch = self.batch(inode.root, first..=last)?;
        Ok(batch.items.iter().find_map(|position| {
            let (key, data) = (position.key(), position.data());
            if key.item_type == ItemType::INODE_REF {
                let entry = InodeReferences::new(data).flatten().next()?;
                return Some((ObjectId(key.offset), entry.name.to_vec()));
            }
            let entry = ExtendedReferences::new(data).flatten().next()?;
            Some((entry.parent, entry.name.to_vec()))
        }))
    }

    /// Gives every tree that the root tree names, and tells what of them is lost.
    pub fn roots(&self, take: &mut dyn FnMut(ListedRoot)) -> Vec<LostPart> {
        let engine = self.filesystem().engine();
        let mut lost = Vec::new();
        for found in engine.forest().trees().salvage(engine.forest().root_tree(), Key::MIN..=Key::MAX) {
            let position = match found {
                Ok(position) => position,
                Err(part) => {
                    lost.push(LostPart::of(part));
                    continue;
                }
            };
            let key = position.key();
            if key.item_type != ItemType::ROOT_ITEM {
                continue;
            }
            match vlinder_format::root_item::RootItem::decode(position.data()) {
                Ok(item) => take(ListedRoot {
                    id: RootId(key.objectid.0),
                    address: item.address,
                    level: item.level,
                    generation: item.generation,
                    is_snapshot: key.offset != 0,
                    is_deleted: item.is_deleted(),
                }),
                Err(fault) => {
                    let reason = Damage::new(fault, position.place(RootId::ROOT_TREE)).to_string();
                    lost.push(LostPart { keys: key..=key, reason, item: None });
                }
            }
        }
        lost
    }

    /// Every item that was left out of a tree block so far, because it breaks a rule. Of some of them nobody
    /// was told: the reader of the block looked for others.
    #[must_use]
    pub fn left_out(&self) -> Vec<LeftOutItem> {
        let trees = self.filesystem().engine().forest().trees();
        let all = trees.left_out().map(|left_out| left_out.all()).unwrap_or_default();
        let items = all.into_iter().filter_map(|damage| {
            let (tree, place) = (damage.place.tree?, item_place(&damage.place)?);
            Some(LeftOutItem { tree, place, reason: damage.to_string() })
        });
        items.collect()
    }

    /// Whether a subvolume is a snapshot of another.
    ///
    /// # Errors
    /// As [`Salvage::names`].
    pub fn is_snapshot(&self, root: RootId) -> Result<bool> {
        Ok(self.filesystem().subvolume(root)?.tree().item_key().offset != 0)
    }

    /// What kind of file an inode is, if its item can be read.
    ///
    /// # Errors
    /// Where it can't.
    pub fn file_type(&self, inode: InodeId) -> Result<FileType> {
        Ok(self.filesystem().inode(inode)?.file_type())
    }
}

fn batch_of(walk: impl Iterator<Item = Result<Position, Lost>>, last: Key) -> Batch {
    let mut batch = Batch { items: Vec::new(), lost: Vec::new(), next: None };
    for found in walk {
        let end = match found {
            Ok(position) => {
                let key = position.key();
                batch.items.push(position);
                key
            }
            Err(lost) => {
                let end = *lost.keys.end();
                batch.lost.push(LostPart::of(lost));
                end
            }
        };
        if batch.items.len() + batch.lost.len() >= BATCH_ITEMS {
            batch.next = end.next().filter(|next| *next <= last);
            break;
        }
    }
    batch
}

fn name_of(root: RootId, entry: &DirectoryEntry<'_>) -> Name {
    let id = match entry.location.item_type {
        ItemType::ROOT_ITEM => InodeId::root_of(RootId(entry.location.objectid.0)),
        _ => InodeId::new(root, entry.location.objectid),
    };
    Name { name: entry.name.to_vec(), id }
}
