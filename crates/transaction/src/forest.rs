//! The trees that are open, each with its root item.

use std::collections::HashMap;

use vlinder_base::sync::atomic::{AtomicBool, Ordering};
use vlinder_base::sync::{Arc, Mutex};
use vlinder_format::inode::InodeFlags;
use vlinder_format::root_item::{RootFlags, RootItem, RootItemBase};
use vlinder_format::{Damage, Generation, ItemType, Key, ObjectId, RootId};
use vlinder_tree::{Root, RootPointer, Trees};

use crate::EngineError;

/// A root item as it will be written.
#[derive(Clone, Debug)]
struct ItemState {
    item: RootItem,
    dirty: bool,
}

/// An open tree: its root, and its root item.
pub struct Tree {
    root: Arc<Root>,
    key: Key,
    state: Mutex<ItemState>,
}

impl Tree {
    pub(crate) fn new(root: Arc<Root>, key: Key, item: RootItem, dirty: bool) -> Arc<Self> {
        Arc::new(Self { root, key, state: Mutex::new(ItemState { item, dirty }) })
    }

    /// What stands for a tree that can't be read. It has no blocks: looking for an item in it is an error.
    pub(crate) fn without_blocks(id: RootId) -> Arc<Self> {
        let pointer = RootPointer::default();
        let key = Key::new(ObjectId(id.0), ItemType::ROOT_ITEM, 0);
        Self::new(Root::new(id, pointer, Generation(0)), key, new_root_item(pointer), false)
    }

    /// The tree's number.
    pub fn id(&self) -> RootId {
        self.root.id()
    }

    /// The tree itself, for searches.
    pub fn root(&self) -> &Arc<Root> {
        &self.root
    }

    /// Where the root item lies in the root tree.
    pub fn item_key(&self) -> Key {
        self.key
    }

    /// Whether another tree may reference blocks of this one, because one is a snapshot of the other.
    #[must_use]
    pub fn may_share_blocks(&self) -> bool {
        self.root.id().is_shareable() && self.root.last_snapshot() > Generation(0)
    }

    /// The root item as it stands; where the root block lies is up to date only after a commit.
    pub fn item(&self) -> RootItem {
        self.state.lock().item
    }

    /// Changes the root item; the commit writes it. Called with a handle open.
    pub fn change_item(&self, change: impl FnOnce(&mut RootItem)) {
        let mut state = self.state.lock();
        change(&mut state.item);
        state.dirty = true;
    }

    /// Whether the subvolume cannot be written.
    pub fn is_read_only(&self) -> bool {
        self.state.lock().item.flags.has(RootFlags::READ_ONLY)
    }

    /// The root item to write in `generation`, if it or the root block changed; `balance` blocks more than before.
    pub(crate) fn item_to_write(&self, generation: Generation, balance_bytes: i64) -> Option<RootItem> {
        let pointer = self.root.pointer();
        let mut state = self.state.lock();
        let moved = state.item.address != pointer.logical || state.item.level != pointer.level;
        if !moved && !state.dirty {
            return None;
        }
        state.item.address = pointer.logical;
        state.item.level = pointer.level;
        state.item.last_snapshot = self.root.last_snapshot().max(state.item.last_snapshot);
        state.item.bytes_used = state.item.bytes_used.saturating_add_signed(balance_bytes);
        // The item's generation is that of its root block.
        if moved {
            state.item.set_generation(generation);
        }
        state.dirty = false;
        Some(state.item)
    }
}

/// All trees that are open.
#[derive(Default)]
pub(crate) struct Forest {
    open: Mutex<HashMap<RootId, Arc<Tree>>>,
    /// A tree was open, once, that may share blocks with another.
    has_snapshots: AtomicBool,
}

impl Forest {
    pub(crate) fn get(&self, id: RootId) -> Option<Arc<Tree>> {
        self.open.lock().get(&id).map(Arc::clone)
    }

    /// Whether trees that are open may share blocks with others.
    pub(crate) fn may_share_blocks(&self) -> bool {
        self.has_snapshots.load(Ordering::Relaxed)
    }

    pub(crate) fn insert(&self, tree: &Arc<Tree>) {
        self.note_sharing(tree);
        self.open.lock().insert(tree.id(), Arc::clone(tree));
    }

    fn note_sharing(&self, tree: &Tree) {
        if tree.may_share_blocks() {
            self.has_snapshots.store(true, Ordering::Relaxed);
        }
    }

    pub(crate) fn remove(&self, id: RootId) {
        self.open.lock().remove(&id);
    }

    /// All open trees by number.
    pub(crate) fn all(&self) -> Vec<Arc<Tree>> {
        let mut all: Vec<Arc<Tree>> = self.open.lock().values().map(Arc::clone).collect();
        all.sort_by_key(|tree| tree.id());
        all
    }

    /// The tree of a number, opened if it was not.
    pub(crate) fn open(
        &self,
        trees: &Trees,
        root_tree: &Arc<Root>,
        id: RootId,
    ) -> Result<Arc<Tree>, EngineError> {
        if let Some(tree) = self.get(id) {
            return Ok(tree);
        }
        let (key, item) =
            find_root_item(trees, root_tree, id)?.ok_or(EngineError::NoSuchTree { root: id })?;
        let pointer = RootPointer { logical: item.address, generation: item.generation, level: item.level };
        let root = Root::new(id, pointer, item.last_snapshot);
        let tree = Tree::new(root, key, item, false);
        self.note_sharing(&tree);
        // Another thread may have opened it meanwhile; there must be one root for all.
        Ok(Arc::clone(self.open.lock().entry(id).or_insert(tree)))
    }
}

/// The root item of a tree: of several (Linux may leave an older one) the last.
pub(crate) fn find_root_item(
    trees: &Trees,
    root_tree: &Arc<Root>,
    id: RootId,
) -> Result<Option<(Key, RootItem)>, EngineError> {
    let sought = Key::new(ObjectId(id.0), ItemType::ROOT_ITEM, u64::MAX);
    let Some(found) = trees.floor(root_tree, &sought)? else { return Ok(None) };
    let key = found.key();
    if key.objectid.0 != id.0 || key.item_type != ItemType::ROOT_ITEM {
        return Ok(None);
    }
    let mut item =
        RootItem::decode(found.data()).map_err(|fault| Damage::new(fault, found.place(RootId::ROOT_TREE)))?;
    if id.is_subvolume() && !item.inode.flags.has(InodeFlags::ROOT_ITEM_INITIALIZED) {
        // Flags and limit of such an item were never set, and may be anything (Linux: `btrfs_check_and_init_root_item`).
        item.inode.flags = item.inode.flags.with(InodeFlags::ROOT_ITEM_INITIALIZED);
        item.flags = RootFlags::NONE;
        item.byte_limit = 0;
    }
    Ok(Some((key, item)))
}

/// A root item for a tree that is just being made.
pub(crate) fn new_root_item(pointer: RootPointer) -> RootItem {
    let base = RootItemBase {
        address: pointer.logical,
        level: pointer.level,
        reference_count: 1,
        ..RootItemBase::default()
    };
    let mut item = RootItem { base, extension: None };
    item.set_generation(pointer.generation);
    item
}
