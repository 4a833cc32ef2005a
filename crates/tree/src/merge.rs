//! Merges: what became empty goes, what became small joins a sibling, and a root with one child gives way to
//! it.
//!
//! A merge is a saving, not a duty: it is done where the sibling is in memory and may be copied with what the
//! plan holds. A sibling that others share is left alone: its copy would add a reference to each of its
//! children, more than the merge saves. (Linux copies it.)

use vlinder_base::sync::Arc;
use vlinder_format::block::ChildPointer;
use vlinder_format::{Block, Key, Level, Logical};

use crate::apply::{WritablePath, Writer};
use crate::root::RootPointer;
use crate::wanted::child_block;

impl Writer<'_> {
    /// After removals: drops the leaf if it is empty, or joins it with a sibling if both fit in one.
    pub(crate) fn tidy_leaf(&mut self, path: &WritablePath) {
        let leaf = self.trees.cache.writable(path.leaf);
        let Some(((parent, slot), above)) = path.nodes.split_last() else { return };
        if leaf.is_empty() {
            if self.is_only_leaf(&path.nodes) {
                self.make_root_of_leaf(path);
                return;
            }
            drop(leaf);
            self.discard(path.leaf);
            self.remove_pointer(above, *parent, *slot);
            return;
        }
        self.join(above, *parent, *slot, &leaf);
    }

    /// Joins the child at `slot` with its left or right sibling, if they fit in one block.
    fn join(&mut self, above: &[(Logical, usize)], parent: Logical, slot: usize, child: &Arc<Block>) {
        let node = self.trees.cache.writable(parent);
        let left = slot.checked_sub(1).filter(|left| self.joins(&node, *left, child));
        if let Some(left) = left {
            let sibling = self.writable_child(&node, left);
            append(self, sibling.logical(), child);
            self.discard(child.logical());
            drop(node);
            self.remove_pointer(above, parent, slot);
            return;
        }
        let right = slot.saturating_add(1);
        if right < node.len() && self.joins(&node, right, child) {
            let sibling = self.writable_child(&node, right);
            append(self, child.logical(), &sibling);
            self.discard(sibling.logical());
            drop(node);
            self.remove_pointer(above, parent, right);
        }
    }

    /// Whether the sibling at a slot may be made writable and has room for the child's content.
    fn joins(&mut self, parent: &Block, slot: usize, child: &Block) -> bool {
        let wanted = child_block(self.root.id(), parent, slot);
        let Ok(Some(sibling)) = self.find(&wanted) else { return false };
        let fits = if child.is_leaf() {
            sibling.used_bytes().saturating_add(child.used_bytes()) <= child.capacity_bytes()
        } else {
            sibling.len().saturating_add(child.len()) <= child.pointer_capacity()
        };
        fits && self.may_make_writable(parent, slot)
    }

    /// Whether the child at a slot is in memory and may be copied with what the plan holds, which is an
    /// address and no references.
    pub(crate) fn may_make_writable(&mut self, parent: &Block, slot: usize) -> bool {
        let wanted = child_block(self.root.id(), parent, slot);
        let Ok(Some(block)) = self.find(&wanted) else { return false };
        !self.must_cow(&block)
            || (self.pool.held() > 0
                && (!self.root.may_share(&block, false) || self.learned.is_copied_alone(block.logical())))
    }

    /// Removes a pointer from a writable node; what becomes of the node then follows.
    fn remove_pointer(&mut self, above: &[(Logical, usize)], node: Logical, slot: usize) {
        self.trees.cache.change(node, |node| node.children_mut().remove(slot, 1));
        let rest = self.trees.cache.writable(node);
        let Some(((parent, parent_slot), higher)) = above.split_last() else {
            self.collapse_root();
            return;
        };
        match rest.first_key() {
            None => {
                drop(rest);
                self.discard(node);
                self.remove_pointer(higher, *parent, *parent_slot);
            }
            Some(first_key) => {
                if slot == 0 {
                    self.lower_keys(above, &first_key);
                }
                if rest.len() < rest.pointer_capacity() / 4 {
                    self.join(higher, *parent, *parent_slot, &rest);
                }
            }
        }
    }

    /// While the root is a node with one child, the child is the root. It is made this tree's own first: a
    /// root block is never shared.
    fn collapse_root(&mut self) {
        for _ in 0..Level::COUNT {
            let root = self.trees.cache.writable(self.state.pointer.logical);
            if root.is_leaf() || root.len() != 1 || !self.may_make_writable(&root, 0) {
                return;
            }
            let child = self.writable_child(&root, 0);
            self.point_root_to(&child);
            self.discard(root.logical());
        }
    }

    /// Whether every node on a path has one child only, so that its leaf is all there is.
    fn is_only_leaf(&self, nodes: &[(Logical, usize)]) -> bool {
        nodes.iter().all(|(node, _)| self.trees.cache.writable(*node).len() == 1)
    }

    /// The last leaf of a tree is empty: it becomes the root, and the nodes above it go.
    fn make_root_of_leaf(&mut self, path: &WritablePath) {
        self.state.pointer =
            RootPointer { logical: path.leaf, generation: self.generation, level: Level::LEAF };
        for (node, _) in &path.nodes {
            self.discard(*node);
        }
    }
}

/// Appends the content of `from` to the writable block `to`, its left neighbour.
fn append(writer: &mut Writer<'_>, to: Logical, from: &Block) {
    writer.trees.metrics.merges.increment();
    writer.trees.cache.change(to, |block| {
        let end = block.len();
        if from.is_leaf() {
            let items: Vec<(Key, &[u8])> =
                (0..from.len()).map(|slot| (from.key(slot), from.data(slot))).collect();
            block.items_mut().insert(end, &items);
        } else {
            let children: Vec<ChildPointer> = from.children().collect();
            block.children_mut().insert(end, &children);
        }
    });
}
