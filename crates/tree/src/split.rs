//! Splits: a full leaf or node becomes two, and a full root grows a new one above it.

use std::ops::Range;

use vlinder_base::sync::Arc;
use vlinder_format::block::{ChildPointer, ITEM_HEADER_SIZE};
use vlinder_format::{Block, Key, Logical};

use crate::apply::{Lack, WritablePath, Writer};
use crate::search::child_block;

/// Moving items to a neighbour pays from this part of a leaf on.
const WORTHWHILE_PUSH: usize = 64;

/// Where the new block goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum LeafSplit {
    /// An empty leaf before this one.
    EmptyBefore,
    /// An empty leaf behind this one: appending keeps the leaves before it full.
    EmptyAfter,
    /// The items from this slot on go into a new leaf behind this one.
    At(usize),
}

impl Writer<'_> {
    /// Makes room for an item in a path's leaf, or at least brings it nearer: the caller descends again. Two
    /// splits always do.
    pub(crate) fn split_leaf(&mut self, path: &WritablePath, lack: &Lack) {
        let leaf = self.trees.cache.writable(path.leaf);
        assert!(!leaf.is_empty(), "{} bytes do not fit the empty leaf {}", lack.need, path.leaf);
        if let Some(count) = self.push_left(path, &leaf, lack) {
            let first_key = leaf.key(count);
            drop(leaf);
            self.trees.cache.change(path.leaf, |leaf| leaf.remove_items(0, count));
            if let Some((parent, slot)) = path.nodes.last() {
                self.trees.cache.change(*parent, |node| node.set_key(*slot, &first_key));
            }
            return;
        }
        if let Some(from) = self.push_right(path, &leaf, lack) {
            let (first_key, count) = (leaf.key(from), leaf.len().saturating_sub(from));
            drop(leaf);
            self.trees.cache.change(path.leaf, |leaf| leaf.remove_items(from, count));
            if let Some((parent, slot)) = path.nodes.last() {
                self.trees.cache.change(*parent, |node| node.set_key(slot.saturating_add(1), &first_key));
            }
            return;
        }
        self.trees.metrics.splits.increment();
        let decision = choose_split(&leaf, lack);
        let first_key = match decision {
            LeafSplit::At(middle) => leaf.key(middle),
            LeafSplit::EmptyBefore | LeafSplit::EmptyAfter => lack.key,
        };
        let mut fresh = self.create(&leaf, leaf.level(), &first_key);
        drop(leaf);
        if let LeafSplit::At(middle) = decision {
            self.trees.cache.change(path.leaf, |leaf| leaf.split_items_into(middle, &mut fresh));
        }
        let pointer = ChildPointer { key: first_key, logical: fresh.logical(), generation: self.generation };
        self.insert_made(Arc::new(fresh));
        self.insert_pointer(&path.nodes, path.leaf, &pointer, decision != LeafSplit::EmptyBefore);
    }

    /// Makes room by moving a leaf's first items to the leaf on its left, as Linux does before it splits:
    /// items that come in several sweeps over the same leaves (references, then inodes, then data) would else
    /// leave all of them half full. Only where that makes room for the item and is worth it. Gives how many
    /// items the other leaf has now, which are this one's to lose.
    fn push_left(&mut self, path: &WritablePath, leaf: &Block, lack: &Lack) -> Option<usize> {
        let (parent, slot) = path.nodes.last()?;
        let beside = slot.checked_sub(1)?;
        let sibling = self.willing_child(*parent, beside)?;
        // The item that lacks room stays behind another one, so that it is looked for in this leaf again.
        let most = lack.slot.min(leaf.len().saturating_sub(1)).saturating_sub(1);
        let lengths = (0..most).map(|slot| leaf.data_len(slot));
        let count = how_many_pay(lengths, &sibling, lack)?;
        let at = sibling.len();
        drop(sibling);
        self.give(leaf, 0..count, (*parent, beside), at);
        Some(count)
    }

    /// As [`push_left`](Self::push_left), with a leaf's last items and the leaf on its right. Gives the first
    /// slot that this leaf has to lose.
    fn push_right(&mut self, path: &WritablePath, leaf: &Block, lack: &Lack) -> Option<usize> {
        let (parent, slot) = path.nodes.last()?;
        let beside = slot.checked_add(1)?;
        let sibling = self.willing_child(*parent, beside)?;
        let least = lack.slot.saturating_add(usize::from(lack.exists)).max(1);
        let lengths = (least..leaf.len()).rev().map(|slot| leaf.data_len(slot));
        let count = how_many_pay(lengths, &sibling, lack)?;
        drop(sibling);
        let from = leaf.len().saturating_sub(count);
        self.give(leaf, from..leaf.len(), (*parent, beside), 0);
        Some(from)
    }

    /// The child at a slot, if it is in memory and may be changed with what the plan holds. (Copying it takes
    /// the address that the split would have taken.)
    fn willing_child(&mut self, parent: Logical, slot: usize) -> Option<Arc<Block>> {
        let node = self.trees.cache.writable(parent);
        if slot >= node.len() || !self.may_make_writable(&node, slot) {
            return None;
        }
        let wanted = child_block(self.root.id(), &node, slot);
        self.find(&wanted).ok().flatten()
    }

    /// Copies items of a leaf into another, a child of `parent`.
    fn give(&mut self, leaf: &Block, slots: Range<usize>, to: (Logical, usize), at: usize) {
        let (parent, slot) = to;
        let node = self.trees.cache.writable(parent);
        let sibling = self.writable_child(&node, slot).logical();
        drop(node);
        self.trees.metrics.pushes.increment();
        let items: Vec<(Key, &[u8])> = slots.map(|slot| (leaf.key(slot), leaf.data(slot))).collect();
        self.trees.cache.change(sibling, |sibling| sibling.insert_items(at, &items));
    }

    /// Inserts a pointer beside the child that a path leads to, splitting nodes on the way up.
    fn insert_pointer(
        &mut self,
        nodes: &[(Logical, usize)],
        child: Logical,
        pointer: &ChildPointer,
        after: bool,
    ) {
        let Some(((node, slot), above)) = nodes.split_last() else {
            self.grow_root(child, pointer, after);
            return;
        };
        let slot = if after { slot.saturating_add(1) } else { *slot };
        let full = self.trees.cache.change(*node, |node| {
            let full = node.len() >= node.pointer_capacity();
            if !full {
                node.insert_children(slot, &[*pointer]);
            }
            full
        });
        if full {
            self.split_node(above, *node, slot, pointer);
        } else if slot == 0 {
            self.lower_keys(above, &pointer.key);
        }
    }

    /// Splits a full node and inserts a pointer into the half where it belongs.
    fn split_node(&mut self, above: &[(Logical, usize)], node: Logical, slot: usize, pointer: &ChildPointer) {
        let old = self.trees.cache.writable(node);
        self.trees.metrics.splits.increment();
        // A pointer at the very end opens a node of its own: appending keeps the nodes before it full.
        let middle = if slot == old.len() { old.len() } else { old.len() / 2 };
        let moved: Vec<ChildPointer> = old.children().skip(middle).collect();
        let first_key = moved.first().map_or(pointer.key, |first| first.key);
        let mut fresh = self.create(&old, old.level(), &first_key);
        fresh.insert_children(0, &moved);
        drop(old);
        self.trees.cache.change(node, |node| node.remove_children(middle, moved.len()));
        if slot > middle || moved.is_empty() {
            fresh.insert_children(slot.saturating_sub(middle), &[*pointer]);
        } else {
            self.trees.cache.change(node, |node| node.insert_children(slot, &[*pointer]));
        }
        let key = fresh.first_key().unwrap_or(first_key);
        let up = ChildPointer { key, logical: fresh.logical(), generation: self.generation };
        self.insert_made(Arc::new(fresh));
        if slot == 0 {
            self.lower_keys(above, &pointer.key);
        }
        self.insert_pointer(above, node, &up, true);
    }

    /// Puts a new root above the old one.
    fn grow_root(&mut self, old: Logical, pointer: &ChildPointer, after: bool) {
        let old = self.trees.cache.writable(old);
        let own = ChildPointer {
            key: old.first_key().unwrap_or(pointer.key),
            logical: old.logical(),
            generation: old.generation(),
        };
        let (first, second) = if after { (own, *pointer) } else { (*pointer, own) };
        let mut root = self.create(&old, old.level().above(), &first.key);
        root.insert_children(0, &[first, second]);
        self.point_root_to(&root);
        self.insert_made(Arc::new(root));
    }
}

/// How many items with data of these lengths fit into a sibling; none unless that makes room for the item
/// that lacks it and is worth it.
fn how_many_pay(lengths: impl Iterator<Item = usize>, sibling: &Block, lack: &Lack) -> Option<usize> {
    let room = sibling.free_bytes();
    let (mut count, mut bytes) = (0usize, 0usize);
    for length in lengths {
        let with = bytes.saturating_add(length).saturating_add(ITEM_HEADER_SIZE);
        if with > room {
            break;
        }
        (count, bytes) = (count.saturating_add(1), with);
    }
    (bytes >= lack.need && bytes >= sibling.capacity_bytes() / WORTHWHILE_PUSH).then_some(count)
}

/// Where to split a leaf for an item that lacks room: in the middle, if the item then fits its half; else
/// right at the item, so that the next split, at an end, leaves it alone.
fn choose_split(leaf: &Block, lack: &Lack) -> LeafSplit {
    let slot = lack.slot;
    if !lack.exists && slot == leaf.len() {
        return LeafSplit::EmptyAfter;
    }
    if !lack.exists && slot == 0 {
        return LeafSplit::EmptyBefore;
    }
    let (middle, left) = middle_of(leaf);
    let half = if slot < middle || (slot == middle && !lack.exists) {
        left
    } else {
        leaf.used_bytes().saturating_sub(left)
    };
    if half.saturating_add(lack.need) <= leaf.capacity_bytes() && middle > 0 && middle < leaf.len() {
        return LeafSplit::At(middle);
    }
    LeafSplit::At(slot.max(1))
}

/// The slot where the halves of a leaf are most even, and the bytes before it.
fn middle_of(leaf: &Block) -> (usize, usize) {
    let half = leaf.used_bytes() / 2;
    let mut left = 0usize;
    for slot in 0..leaf.len() {
        let with = left.saturating_add(leaf.data_len(slot)).saturating_add(ITEM_HEADER_SIZE);
        if with > half {
            let rounds_up = with.saturating_sub(half) < half.saturating_sub(left);
            return if rounds_up { (slot.saturating_add(1), with) } else { (slot, left) };
        }
        left = with;
    }
    (leaf.len(), left)
}
