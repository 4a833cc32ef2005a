//! Leaves and their items, as the rules see them.

use vlinder_base::sync::Arc;
use vlinder_format::{Block, Fault, Key, Place, RootId};

/// An item; where nothing else is said, one that keeps the rules of its family.
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

/// The place of an item.
pub(crate) fn place(tree: RootId, leaf: &Block, slot: usize) -> Place {
    Place {
        tree: Some(tree),
        block: Some(leaf.logical()),
        slot: u32::try_from(slot).ok(),
        key: Some(leaf.key(slot)),
    }
}

/// A leaf whose items were judged, or a part of it.
pub(crate) struct Leaf<'a> {
    pub(crate) tree: RootId,
    pub(crate) block: &'a Arc<Block>,
    /// Slots of items that break a rule, in order.
    pub(crate) faults: &'a [(usize, Fault)],
    /// The slots that are looked at.
    pub(crate) slots: core::ops::Range<usize>,
}

impl<'a> Leaf<'a> {
    /// All of a leaf.
    pub(crate) fn new(tree: RootId, block: &'a Arc<Block>, faults: &'a [(usize, Fault)]) -> Self {
        Self { tree, block, faults, slots: 0..block.len() }
    }

    /// A part of it.
    pub(crate) fn part(&self, slots: core::ops::Range<usize>) -> Self {
        Self { slots, ..*self }
    }
}

impl Leaf<'_> {
    /// The items in order; one that breaks a rule as an error.
    pub(crate) fn items(&self) -> impl Iterator<Item = Result<Item<'_>, Item<'_>>> {
        let mut faults = self.faults.iter().map(|(slot, _)| *slot).peekable();
        self.slots.clone().map(move |slot| {
            let (key, data) = (self.block.key(slot), self.block.data(slot));
            let item = Item { tree: self.tree, leaf: self.block, slot, key, data };
            if faults.next_if_eq(&slot).is_some() { Err(item) } else { Ok(item) }
        })
    }

    /// The items that keep the rules.
    pub(crate) fn sound_items(&self) -> impl Iterator<Item = Item<'_>> {
        self.items().flatten()
    }
}
