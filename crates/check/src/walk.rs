//! Walks of trees: all blocks in the order of their keys, the children of a node read ahead together.

use std::collections::VecDeque;

use vlinder_base::sync::Arc;
use vlinder_format::validate::{ItemContext, check_item};
use vlinder_format::{Block, Generation, Key, Level, Logical, Place, RootId};

use crate::context::Context;
use crate::finding::FindingKind;
use crate::reader::Expected;

/// Children of a node that are read together.
const READ_AHEAD: usize = 32;

/// A tree to be walked.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Tree {
    pub(crate) id: RootId,
    pub(crate) logical: Logical,
    pub(crate) generation: Generation,
    pub(crate) level: Level,
    /// Its blocks have extent items. (Those of the fsync log have none.)
    pub(crate) has_references: bool,
    /// Of a half-deleted subvolume: what lies before this key is gone, as far as nodes of this level or above lead there.
    pub(crate) dropped_to: Option<(Key, Level)>,
}

/// Whether a tree may share blocks with others.
pub(crate) fn is_shareable(tree: RootId) -> bool {
    tree.is_shareable() || tree == RootId::TREE_RELOCATION
}

/// An item that keeps the rules of its family.
pub(crate) struct Item<'a> {
    pub(crate) tree: RootId,
    pub(crate) leaf: &'a Block,
    pub(crate) slot: usize,
    pub(crate) key: Key,
    pub(crate) data: &'a [u8],
}

impl Item<'_> {
    pub(crate) fn place(&self) -> Place {
        place(self.tree, self.leaf, self.slot)
    }
}

fn place(tree: RootId, leaf: &Block, slot: usize) -> Place {
    Place {
        tree: Some(tree),
        block: Some(leaf.logical()),
        slot: u32::try_from(slot).ok(),
        key: Some(leaf.key(slot)),
    }
}

/// Who looks at the items of a tree.
pub(crate) trait Visitor {
    /// The next item.
    fn item(&mut self, context: &mut Context<'_>, item: &Item<'_>);

    /// Part of the tree could not be read: what comes next does not follow what came before.
    fn gap(&mut self) {}
}

/// A visitor of a tree whose items nobody asks about.
pub(crate) struct Nobody;

impl Visitor for Nobody {
    fn item(&mut self, _: &mut Context<'_>, _: &Item<'_>) {}
}

/// A node on the way.
struct Frame {
    node: Arc<Block>,
    /// The next child.
    slot: usize,
    /// The first key right of the node.
    upper: Option<Key>,
    /// Children that were read ahead, from `slot` on.
    ahead: VecDeque<Option<Arc<Block>>>,
    /// The node leads to what a half-deleted subvolume still has first.
    on_edge: bool,
}

/// Walks a tree.
pub(crate) fn walk(context: &mut Context<'_>, tree: &Tree, visitor: &mut dyn Visitor) {
    if tree.has_references {
        context.claim_root(tree);
    }
    let expected = Expected {
        tree: tree.id,
        logical: tree.logical,
        generation: tree.generation,
        level: tree.level,
        first_key: None,
    };
    let Some(root) = context.read(&[expected]).pop().flatten() else {
        visitor.gap();
        return;
    };
    let mut frames: Vec<Frame> = Vec::with_capacity(Level::COUNT);
    enter(context, tree, &mut frames, root, None, tree.dropped_to.is_some(), visitor);
    while let Some(frame) = frames.last_mut() {
        if frame.slot >= frame.node.len() {
            frames.pop();
            continue;
        }
        if frame.ahead.is_empty() {
            read_ahead(context, tree, frame);
        }
        let (slot, child) = (frame.slot, frame.ahead.pop_front().flatten());
        let next = slot.saturating_add(1);
        let upper = if next < frame.node.len() { Some(frame.node.key(next)) } else { frame.upper };
        let on_edge = frame.on_edge;
        frame.slot = next;
        frame.on_edge = false;
        match child {
            Some(child) => enter(context, tree, &mut frames, child, upper, on_edge, visitor),
            None => visitor.gap(),
        }
    }
}

/// Reads some of a node's children.
fn read_ahead(context: &mut Context<'_>, tree: &Tree, frame: &mut Frame) {
    let Some(level) = frame.node.level().below() else { return };
    let wanted: Vec<Expected> = frame
        .node
        .children()
        .skip(frame.slot)
        .take(READ_AHEAD)
        .map(|child| Expected {
            tree: tree.id,
            logical: child.logical,
            generation: child.generation,
            level,
            first_key: Some(child.key),
        })
        .collect();
    frame.ahead = context.read(&wanted).into();
}

/// A block is reached: a node waits for its children's turn, a leaf's items are judged and shown.
fn enter(
    context: &mut Context<'_>,
    tree: &Tree,
    frames: &mut Vec<Frame>,
    block: Arc<Block>,
    upper: Option<Key>,
    on_edge: bool,
    visitor: &mut dyn Visitor,
) {
    let edge = tree.dropped_to.filter(|(_, level)| on_edge && block.level() >= *level && !block.is_leaf());
    let first_slot = edge.map_or(0, |(key, _)| block.child_slot(&key));
    let is_first = context.reach(tree, &block, frames.is_empty(), first_slot);
    if let (Some(last), Some(bound)) = (block.last_key(), upper)
        && last >= bound
        && is_first
    {
        let slot = block.len().saturating_sub(1);
        context.find(FindingKind::KeyRange { bound }, place(tree.id, &block, slot));
    }
    if block.is_leaf() {
        show_items(context, tree, &block, is_first, visitor);
    } else {
        let on_edge = edge.is_some();
        frames.push(Frame { node: block, slot: first_slot, upper, ahead: VecDeque::new(), on_edge });
    }
}

fn show_items(
    context: &mut Context<'_>,
    tree: &Tree,
    leaf: &Block,
    is_first: bool,
    visitor: &mut dyn Visitor,
) {
    let rules = context.rules;
    let mut previous = None;
    for slot in 0..leaf.len() {
        let (key, data) = (leaf.key(slot), leaf.data(slot));
        let judged = check_item(&key, data, &ItemContext { rules: &rules, owner: leaf.owner(), previous });
        previous = Some((key, data));
        match judged {
            Ok(()) => visitor.item(context, &Item { tree: tree.id, leaf, slot, key, data }),
            Err(fault) => {
                if is_first {
                    context.find(FindingKind::Item { fault }, place(tree.id, leaf, slot));
                }
                visitor.gap();
            }
        }
    }
}
