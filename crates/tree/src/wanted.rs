//! What a parent says of a block, and whether a block is the one that its parent speaks of.

use vlinder_format::block::BlockFault;
use vlinder_format::{Block, Damage, Generation, Key, Level, Logical, Place, RootId};

use crate::root::{Root, RootState};

/// A block to read, with all that its parent says of it. Each copy is tried until one keeps to that.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct WantedBlock {
    /// Where it lies.
    pub logical: Logical,
    /// The generation that the parent recorded.
    pub generation: Generation,
    /// One below the parent's level.
    pub level: Level,
    /// The first key that the parent recorded; none for a root.
    pub first_key: Option<Key>,
    /// The key that the parent recorded for the next child, which all keys of this block lie before; none for
    /// a root and for a last child. An older version of a block can have the same first key and reach
    /// further.
    pub before: Option<Key>,
    /// The tree that is being read.
    pub tree: RootId,
}

impl WantedBlock {
    /// What a tree's handle says of its root block.
    pub fn root(root: &Root) -> Self {
        root_block(root.id(), &root.read())
    }

    /// What a node says of the child at a slot.
    pub fn child(tree: RootId, node: &Block, slot: usize) -> Self {
        child_block(tree, node, slot)
    }
}

/// What a root's state says of its root block.
pub(crate) fn root_block(tree: RootId, state: &RootState) -> WantedBlock {
    WantedBlock {
        logical: state.pointer.logical,
        generation: state.pointer.generation,
        level: state.pointer.level,
        first_key: None,
        before: None,
        tree,
    }
}

/// What a node says of the child at a slot.
pub(crate) fn child_block(tree: RootId, node: &Block, slot: usize) -> WantedBlock {
    let child = node.child(slot);
    let next = slot.saturating_add(1);
    WantedBlock {
        logical: child.logical,
        generation: child.generation,
        level: node.level().below().unwrap_or(Level::LEAF),
        first_key: Some(child.key),
        before: (next < node.len()).then(|| node.key(next)),
        tree,
    }
}

/// The first and the last key of a block; none if it is empty.
pub(crate) fn span_of(block: &Block) -> Option<(Key, Key)> {
    block.first_key().zip(block.last_key())
}

/// Whether a block is the one that its parent speaks of: generation, level, first and last key (`span`),
/// owner.
///
/// # Errors
/// The first difference, with the block's place.
pub(crate) fn verify(block: &Block, span: Option<(Key, Key)>, wanted: &WantedBlock) -> Result<(), Damage> {
    verify_block(block, span, wanted).map_err(|fault| {
        Damage::new(
            fault,
            Place { tree: Some(wanted.tree), block: Some(wanted.logical), slot: None, key: None },
        )
    })
}

/// [`verify`] without the place.
pub(crate) fn verify_block(
    block: &Block,
    span: Option<(Key, Key)>,
    wanted: &WantedBlock,
) -> Result<(), BlockFault> {
    if block.logical() != wanted.logical {
        return Err(BlockFault::Address { found: block.logical() });
    }
    if block.generation() != wanted.generation {
        return Err(BlockFault::Generation { found: block.generation(), expected: wanted.generation });
    }
    if block.level() != wanted.level {
        return Err(BlockFault::Level { found: block.level(), expected: wanted.level });
    }
    if let Some(expected) = wanted.first_key {
        let found = span.map_or(Key::MAX, |(first, _)| first);
        if found != expected {
            return Err(BlockFault::FirstKey { found, expected });
        }
    }
    if let (Some(next), Some((_, key))) = (wanted.before, span)
        && key >= next
    {
        return Err(BlockFault::KeyOrder { key, next });
    }
    if !owner_fits(block.owner(), wanted.tree) {
        return Err(BlockFault::Owner { found: block.owner(), tree: wanted.tree });
    }
    Ok(())
}

/// Fixed trees hold their own blocks; a subvolume may hold those of any subvolume; log and relocation trees
/// any.
fn owner_fits(owner: RootId, tree: RootId) -> bool {
    if tree == RootId::TREE_LOG || tree == RootId::TREE_RELOCATION {
        return true;
    }
    if tree.is_subvolume() {
        return owner.is_subvolume() || owner == RootId::TREE_RELOCATION;
    }
    owner == tree || (tree == RootId::DATA_RELOCATION_TREE && owner == RootId::TREE_RELOCATION)
}
