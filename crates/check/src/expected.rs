//! What is known of a block before it is read.

use vlinder_format::{Block, Generation, Key, Level, Logical, Place, RootId};

/// What a parent says of a block.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Expected {
    pub(crate) tree: RootId,
    pub(crate) logical: Logical,
    pub(crate) generation: Generation,
    pub(crate) level: Level,
    pub(crate) first_key: Option<Key>,
}

impl Expected {
    /// What a node says of the child in a slot that it has.
    pub(crate) fn of_child(tree: RootId, node: &Block, slot: usize) -> Self {
        let level = node.level().below().unwrap_or(Level::LEAF);
        let child = node.child(slot);
        Self { tree, logical: child.logical, generation: child.generation, level, first_key: Some(child.key) }
    }

    pub(crate) fn place(&self) -> Place {
        Place { tree: Some(self.tree), block: Some(self.logical), ..Place::default() }
    }
}
