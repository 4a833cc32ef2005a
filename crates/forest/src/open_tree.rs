//! A tree that is open: its root, and its root item.

use vlinder_base::sync::{Arc, Mutex};
use vlinder_format::root_item::{RootFlags, RootItem};
use vlinder_format::{Generation, ItemType, Key, ObjectId, RootId};
use vlinder_tree::{Root, RootPointer};

use crate::new_root_item;

/// A root item as it will be written.
#[derive(Clone, Debug)]
struct ItemState {
    item: RootItem,
    dirty: bool,
}

/// An open tree: its root, and its root item.
pub struct OpenTree {
    root: Arc<Root>,
    key: Key,
    state: Mutex<ItemState>,
}

impl OpenTree {
    /// A tree that was found, with its root item as the root tree has it under `key`.
    #[must_use]
    pub fn found(root: Arc<Root>, key: Key, item: RootItem) -> Arc<Self> {
        Arc::new(Self { root, key, state: Mutex::new(ItemState { item, dirty: false }) })
    }

    /// A tree that was made: its root item is still to be written.
    #[must_use]
    pub fn made(root: Arc<Root>, key: Key, item: RootItem) -> Arc<Self> {
        Arc::new(Self { root, key, state: Mutex::new(ItemState { item, dirty: true }) })
    }

    /// A stand-in for a tree that can't be read. It has no blocks: a search in it is an error.
    #[must_use]
    pub fn without_blocks(id: RootId) -> Arc<Self> {
        let pointer = RootPointer::default();
        let key = Key::new(ObjectId(id.0), ItemType::ROOT_ITEM, 0);
        Self::found(Root::new(id, pointer, Generation(0)), key, new_root_item(pointer))
    }

    /// The tree's number.
    pub fn id(&self) -> RootId {
        self.root.id()
    }

    /// The tree itself, for searches.
    pub fn root(&self) -> &Arc<Root> {
        &self.root
    }

    /// The key of the root item in the root tree.
    pub fn item_key(&self) -> Key {
        self.key
    }

    /// Whether another tree may reference blocks of this one, because one is a snapshot of the other.
    #[must_use]
    pub fn may_share_blocks(&self) -> bool {
        self.root.id().is_shareable() && self.root.last_snapshot() > Generation(0)
    }

    /// The root item as it stands; the address of the root block is up to date only after a commit.
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

    /// The root item that the commit of `generation` has to write; none where neither the item nor the root
    /// block changed. `balance_bytes` is how much more the tree's blocks take than the item says.
    pub fn take_item_to_write(&self, generation: Generation, balance_bytes: i64) -> Option<RootItem> {
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
