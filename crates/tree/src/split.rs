//! Splits: a full leaf gives items to a neighbour, or becomes two; so does a full node, and a full root grows
//! a new one above it.

use std::ops::Range;

use vlinder_base::sync::Arc;
use vlinder_format::block::ChildPointer;
use vlinder_format::{Block, Key, Logical};

use crate::apply::{WritablePath, Writer};
use crate::full_leaf::{FullLeaf, Gift, Lack, LeafSplit, WORTHWHILE_PART};
use crate::wanted::child_block;

impl Writer<'_> {
    /// Makes room for an item in a path's leaf, or at least brings it nearer: the caller descends again. Two
    /// splits always do. `growths` are what it and those that follow it take in this leaf.
    pub(crate) fn split_leaf(&mut self, path: &WritablePath, lack: &Lack, growths: &[(Key, usize)]) {
        let leaf = self.trees.cache.writable(path.leaf);
        assert!(!leaf.is_empty(), "{} bytes do not fit the empty leaf {}", lack.need, path.leaf);
        let full = FullLeaf { leaf: &leaf, lack, growths };
        if let Some(given) = self.push_left(path, &full) {
            let first_key = leaf.key(given);
            drop(leaf);
            self.trees.cache.change(path.leaf, |leaf| leaf.items_mut().remove(0, given));
            self.set_child_key(path, 0, &first_key);
            return;
        }
        if let Some(given) = self.push_right(path, &full) {
            let kept = leaf.len().saturating_sub(given.items);
            let first_key = if given.takes_new_item { lack.key } else { leaf.key(kept) };
            drop(leaf);
            self.trees.cache.change(path.leaf, |leaf| leaf.items_mut().remove(kept, given.items));
            self.set_child_key(path, 1, &first_key);
            return;
        }
        self.trees.metrics.splits.increment();
        let decision = full.split();
        let first_key = match decision {
            LeafSplit::At(middle) => leaf.key(middle),
            LeafSplit::EmptyBefore | LeafSplit::EmptyAfter => lack.key,
        };
        let mut fresh = self.create(&leaf, leaf.level(), &first_key);
        drop(leaf);
        if let LeafSplit::At(middle) = decision {
            self.trees.cache.change(path.leaf, |leaf| leaf.items_mut().split_into(middle, &mut fresh));
        }
        let pointer = ChildPointer { key: first_key, logical: fresh.logical(), generation: self.generation };
        self.insert_made(Arc::new(fresh));
        self.insert_pointer(&path.nodes, path.leaf, &pointer, decision != LeafSplit::EmptyBefore);
    }

    /// Copies a leaf's first items to the leaf on its left. Gives how many that has now, which are this one's
    /// to lose.
    fn push_left(&mut self, path: &WritablePath, full: &FullLeaf<'_>) -> Option<usize> {
        let (parent, slot) = path.nodes.last()?;
        let beside = slot.checked_sub(1)?;
        let sibling = self.willing_child(*parent, beside)?;
        let Gift { items, .. } = full.gift_to_left(&sibling)?;
        let at = sibling.len();
        drop(sibling);
        self.give(full.leaf, 0..items, (*parent, beside), at);
        Some(items)
    }

    /// As [`push_left`](Self::push_left), with a leaf's last items and the leaf on its right.
    fn push_right(&mut self, path: &WritablePath, full: &FullLeaf<'_>) -> Option<Gift> {
        let (parent, slot) = path.nodes.last()?;
        let beside = slot.checked_add(1)?;
        let sibling = self.willing_child(*parent, beside)?;
        let gift = full.gift_to_right(&sibling)?;
        drop(sibling);
        let count = full.leaf.len();
        self.give(full.leaf, count.saturating_sub(gift.items)..count, (*parent, beside), 0);
        Some(gift)
    }

    /// Gives the child that lies so many slots behind a path's leaf another first key.
    fn set_child_key(&self, path: &WritablePath, behind: usize, key: &Key) {
        if let Some((parent, slot)) = path.nodes.last() {
            self.trees.cache.change(*parent, |node| node.set_key(slot.saturating_add(behind), key));
        }
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
        self.trees.cache.change(sibling, |sibling| sibling.items_mut().insert(at, &items));
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
                node.children_mut().insert(slot, &[*pointer]);
            }
            full
        });
        if full {
            if !self.push_pointers(above, *node, slot, pointer) {
                self.split_node(above, *node, slot, pointer);
            }
        } else if slot == 0 {
            self.lower_keys(above, &pointer.key);
        }
    }

    /// Gives pointers of a full node to a neighbour, and inserts a pointer where it belongs then. Gives
    /// whether that was done.
    fn push_pointers(
        &mut self,
        above: &[(Logical, usize)],
        node: Logical,
        slot: usize,
        pointer: &ChildPointer,
    ) -> bool {
        let Some((parent, at)) = above.last().copied() else { return false };
        self.push_pointers_left(parent, at, (node, slot), pointer).is_some()
            || self.push_pointers_right(parent, at, (node, slot), pointer).is_some()
    }

    /// The first pointers go to the node on the left: as many as fit there and lie before the new one.
    fn push_pointers_left(
        &mut self,
        parent: Logical,
        at: usize,
        (node, slot): (Logical, usize),
        pointer: &ChildPointer,
    ) -> Option<()> {
        let beside = at.checked_sub(1)?;
        let sibling = self.willing_child(parent, beside)?;
        let old = self.trees.cache.writable(node);
        let count = room_for_pointers(&sibling).min(slot.saturating_sub(1));
        if count < worthwhile_pointers(&old) {
            return None;
        }
        let (end, moved) = (sibling.len(), old.children().take(count).collect::<Vec<_>>());
        let first_key = old.key(count);
        drop((sibling, old));
        self.give_pointers((parent, beside), end, &moved);
        self.trees.cache.change(node, |node| {
            node.children_mut().remove(0, count);
            node.children_mut().insert(slot.saturating_sub(count), &[*pointer]);
        });
        self.trees.cache.change(parent, |parent| parent.set_key(at, &first_key));
        Some(())
    }

    /// The last pointers go to the node on the right: as many as fit there and lie behind the new one; or all
    /// of these, and the new one before them.
    fn push_pointers_right(
        &mut self,
        parent: Logical,
        at: usize,
        (node, slot): (Logical, usize),
        pointer: &ChildPointer,
    ) -> Option<()> {
        let beside = at.saturating_add(1);
        let sibling = self.willing_child(parent, beside)?;
        let (old, room) = (self.trees.cache.writable(node), room_for_pointers(&sibling));
        let behind = old.len().saturating_sub(slot);
        let stays = behind.min(room) >= worthwhile_pointers(&old);
        if !stays && behind >= room {
            return None;
        }
        let kept = old.len().saturating_sub(behind.min(room));
        let mut moved: Vec<ChildPointer> = old.children().skip(kept).collect();
        if !stays {
            moved.insert(0, *pointer);
        }
        drop((sibling, old));
        let first_key = moved.first()?.key;
        self.give_pointers((parent, beside), 0, &moved);
        self.trees.cache.change(node, |node| {
            let count = node.len().saturating_sub(kept);
            node.children_mut().remove(kept, count);
            if stays {
                node.children_mut().insert(slot, &[*pointer]);
            }
        });
        self.trees.cache.change(parent, |parent| parent.set_key(beside, &first_key));
        Some(())
    }

    /// Puts pointers into a child of a parent.
    fn give_pointers(&mut self, (parent, slot): (Logical, usize), at: usize, moved: &[ChildPointer]) {
        let node = self.trees.cache.writable(parent);
        let sibling = self.writable_child(&node, slot).logical();
        drop(node);
        self.trees.metrics.pushes.increment();
        self.trees.cache.change(sibling, |sibling| sibling.children_mut().insert(at, moved));
    }

    /// Splits a full node and inserts a pointer into the half where it belongs.
    fn split_node(&mut self, above: &[(Logical, usize)], node: Logical, slot: usize, pointer: &ChildPointer) {
        let old = self.trees.cache.writable(node);
        self.trees.metrics.splits.increment();
        // A pointer at the end, or close to it, opens a node of its own: appending and sweeps keep the nodes
        // before it full.
        let close = old.len().saturating_sub(old.len() / 8);
        let middle = if slot >= close { slot } else { old.len() / 2 };
        let moved: Vec<ChildPointer> = old.children().skip(middle).collect();
        let first_key = moved.first().map_or(pointer.key, |first| first.key);
        let mut fresh = self.create(&old, old.level(), &first_key);
        fresh.children_mut().insert(0, &moved);
        drop(old);
        self.trees.cache.change(node, |node| node.children_mut().remove(middle, moved.len()));
        if slot > middle || moved.is_empty() {
            fresh.children_mut().insert(slot.saturating_sub(middle), &[*pointer]);
        } else {
            self.trees.cache.change(node, |node| node.children_mut().insert(slot, &[*pointer]));
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
        root.children_mut().insert(0, &[first, second]);
        self.point_root_to(&root);
        self.insert_made(Arc::new(root));
    }
}

/// How many pointers a node has room for.
fn room_for_pointers(node: &Block) -> usize {
    node.pointer_capacity().saturating_sub(node.len())
}

/// From so many on, moving pointers of a node pays.
fn worthwhile_pointers(node: &Block) -> usize {
    (node.pointer_capacity() / WORTHWHILE_PART).max(1)
}
