//! Descents. Each is tried in memory under the root's shared lock; what is missing is named, the lock
//! dropped, the blocks loaded and pinned, and the descent begun again, so that no lock is held over I/O.

use std::collections::HashMap;

use vlinder_base::sync::Arc;
use vlinder_format::block::BlockFault;
use vlinder_format::{Block, Damage, Key, Level, Logical, Place, RootId};

use crate::root::{Root, RootState, Unlocked};
use crate::{Readahead, TreeError, Trees, WantedBlock};

/// How often a search may find something missing before the tree is called unsound: every round loads at
/// least one block more of a path, and only changes of the tree under the search take away what was loaded.
const ROUNDS: usize = 10_000;

/// An item, with the leaf that holds it kept alive.
#[derive(Clone, Debug)]
pub struct Position {
    leaf: Arc<Block>,
    slot: usize,
}

impl Position {
    /// The item at a slot, which the leaf must have.
    pub(crate) const fn new(leaf: Arc<Block>, slot: usize) -> Self {
        Self { leaf, slot }
    }

    /// The item's key.
    pub fn key(&self) -> Key {
        self.leaf.key(self.slot)
    }

    /// The item's data.
    pub fn data(&self) -> &[u8] {
        self.leaf.data(self.slot)
    }

    /// The leaf.
    pub fn leaf(&self) -> &Arc<Block> {
        &self.leaf
    }

    /// The slot in the leaf.
    pub fn slot(&self) -> usize {
        self.slot
    }

    /// The item before this one in the same leaf.
    pub fn previous_in_leaf(&self) -> Option<(Key, &[u8])> {
        let slot = self.slot.checked_sub(1)?;
        Some((self.leaf.key(slot), self.leaf.data(slot)))
    }

    /// Moves on within the leaf; false at its end.
    pub(crate) fn advance_in_leaf(&mut self) -> bool {
        let next = self.slot.saturating_add(1);
        let inside = next < self.leaf.len();
        if inside {
            self.slot = next;
        }
        inside
    }

    /// Moves to the first item at or after a key, if that is in this leaf for certain and what lies before it
    /// is, too; false otherwise.
    pub(crate) fn seek_in_leaf(&mut self, key: &Key) -> bool {
        let slot = self.leaf.search(key);
        let (Ok(at) | Err(at)) = slot;
        let inside = at < self.leaf.len() && (at > 0 || slot.is_ok());
        if inside {
            self.slot = at;
        }
        inside
    }

    /// Where this item lies, for errors.
    pub fn place(&self, tree: RootId) -> Place {
        Place {
            tree: Some(tree),
            block: Some(self.leaf.logical()),
            slot: u32::try_from(self.slot).ok(),
            key: Some(self.key()),
        }
    }
}

/// Blocks that one operation loaded or plans with, kept until it is done: so a small cache cannot starve it,
/// and whatever others bring into the cache meanwhile cannot drive out what a plan relies on.
#[derive(Default)]
pub(crate) struct Pins(HashMap<Logical, Arc<Block>>);

impl Pins {
    fn get(&self, wanted: &WantedBlock) -> Option<Arc<Block>> {
        self.0.get(&wanted.logical).filter(|block| block.generation() == wanted.generation).map(Arc::clone)
    }

    /// Keeps a block.
    pub(crate) fn hold(&mut self, block: &Arc<Block>) {
        self.0.insert(block.logical(), Arc::clone(block));
    }
}

/// Where a search ends.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Direction {
    /// At the first item at or after the key.
    Ceiling,
    /// At the last item at or before the key.
    Floor,
    /// As the floor, for who wants the key itself or nothing.
    Exact,
}

enum Attempt {
    Found(Option<Position>),
    Missing(Vec<WantedBlock>),
}

/// A node on the way down, and the slot that was taken.
type Step = (Arc<Block>, usize);

impl Trees {
    /// The item of a key.
    ///
    /// # Errors
    /// What reading the path met; what is wrong with the item, if it was [left out](crate::LeftOut).
    pub fn get(&self, root: &Root, key: &Key) -> Result<Option<Position>, TreeError> {
        let position = self.search(root, key, Direction::Exact, Readahead::None)?;
        Ok(position.filter(|position| position.key() == *key))
    }

    /// The first item at or after a key. Items that were [left out](crate::LeftOut) are passed by.
    ///
    /// # Errors
    /// What reading the path met.
    pub fn ceiling(&self, root: &Root, key: &Key) -> Result<Option<Position>, TreeError> {
        self.search(root, key, Direction::Ceiling, Readahead::None)
    }

    /// The last item at or before a key.
    ///
    /// # Errors
    /// What reading the path met; what is wrong with an item behind the one to give, if it was [left
    /// out](crate::LeftOut): nobody shall take an older or a lower one for it.
    pub fn floor(&self, root: &Root, key: &Key) -> Result<Option<Position>, TreeError> {
        self.search(root, key, Direction::Floor, Readahead::None)
    }

    /// One block, by what its parent says of it: for walks that follow pointers themselves.
    ///
    /// # Errors
    /// What reading it met.
    pub fn block(&self, wanted: &WantedBlock) -> Result<Arc<Block>, TreeError> {
        let mut pins = Pins::default();
        if let Some(block) = self.resident(wanted, &pins)? {
            return Ok(block);
        }
        self.load(&[*wanted], &mut pins)?;
        match pins.get(wanted) {
            Some(block) => Ok(block),
            None => {
                Err(TreeError::Unsettled { root: wanted.tree, key: wanted.first_key.unwrap_or_default() })
            }
        }
    }

    pub(crate) fn ceiling_ahead(
        &self,
        root: &Root,
        key: &Key,
        readahead: Readahead,
    ) -> Result<Option<Position>, TreeError> {
        self.search(root, key, Direction::Ceiling, readahead)
    }

    fn search(
        &self,
        root: &Root,
        key: &Key,
        direction: Direction,
        readahead: Readahead,
    ) -> Result<Option<Position>, TreeError> {
        self.metrics.descents.increment();
        let (mut pins, mut unlocked) = (Pins::default(), Unlocked::new());
        for _ in 0..ROUNDS {
            let (attempt, version) = {
                let state = root.read();
                (self.attempt(root, &state, key, direction, readahead, &pins)?, state.version)
            };
            match attempt {
                Attempt::Found(position) => return Ok(position),
                Attempt::Missing(wanted) => match self.load(&wanted, &mut pins) {
                    // The tree let go of the block meanwhile, whose place others may have by now.
                    Err(error) if unlocked.excuses(&error, root, version) => {}
                    loaded => loaded?,
                },
            }
        }
        Err(TreeError::Unsettled { root: root.id(), key: *key })
    }

    /// One descent in memory.
    fn attempt(
        &self,
        root: &Root,
        state: &RootState,
        key: &Key,
        direction: Direction,
        readahead: Readahead,
        pins: &Pins,
    ) -> Result<Attempt, TreeError> {
        let mut path: Vec<Step> = Vec::with_capacity(Level::COUNT);
        let mut wanted = root_block(root.id(), state);
        loop {
            let Some(block) = self.resident(&wanted, pins)? else {
                return Ok(Attempt::Missing(self.with_readahead(wanted, &path, readahead)));
            };
            if block.is_leaf() {
                return self.settle_in_leaf(root, path, block, key, direction, readahead, pins);
            }
            let slot = block.child_slot(key);
            wanted = child_block(root.id(), &block, slot);
            path.push((block, slot));
        }
    }

    /// Finds the item in a leaf, or in the neighbour leaf when it lies beyond this leaf's border.
    #[allow(clippy::too_many_arguments, reason = "the state of one descent, private to this file")]
    fn settle_in_leaf(
        &self,
        root: &Root,
        path: Vec<Step>,
        leaf: Arc<Block>,
        key: &Key,
        direction: Direction,
        readahead: Readahead,
        pins: &Pins,
    ) -> Result<Attempt, TreeError> {
        let slot = match (leaf.search(key), direction) {
            (Ok(slot), _) => Some(slot),
            (Err(slot), Direction::Ceiling) => (slot < leaf.len()).then_some(slot),
            (Err(slot), Direction::Floor | Direction::Exact) => slot.checked_sub(1),
        };
        self.refuse_left_out(root, &leaf, slot, key, direction)?;
        match slot {
            Some(slot) => Ok(Attempt::Found(Some(Position { leaf, slot }))),
            None => self.neighbour(root, path, key, direction, readahead, pins),
        }
    }

    /// Refuses the item at a slot of a leaf as what was sought, where one behind it was left out that is
    /// nearer.
    fn refuse_left_out(
        &self,
        root: &Root,
        leaf: &Block,
        slot: Option<usize>,
        key: &Key,
        direction: Direction,
    ) -> Result<(), TreeError> {
        let Some(left_out) = self.left_out().filter(|_| direction != Direction::Ceiling) else {
            return Ok(());
        };
        let behind = slot.map(|slot| leaf.key(slot));
        let nearer = left_out.between(leaf, behind, key);
        match nearer.filter(|item| direction == Direction::Floor || item.key == *key) {
            Some(item) => Err(item.into_damage(Some(root.id()), leaf.logical()).into()),
            None => Ok(()),
        }
    }

    /// The item at the near border of the next leaf (or the previous one).
    #[allow(clippy::too_many_arguments, reason = "the state of one descent, private to this file")]
    fn neighbour(
        &self,
        root: &Root,
        mut path: Vec<Step>,
        key: &Key,
        direction: Direction,
        readahead: Readahead,
        pins: &Pins,
    ) -> Result<Attempt, TreeError> {
        let (node, mut slot) = loop {
            let Some((node, slot)) = path.pop() else {
                return Ok(Attempt::Found(None));
            };
            let beside = match direction {
                Direction::Ceiling => slot.checked_add(1).filter(|slot| *slot < node.len()),
                Direction::Floor | Direction::Exact => slot.checked_sub(1),
            };
            if let Some(beside) = beside {
                break (node, beside);
            }
        };
        let mut node = node;
        loop {
            let wanted = child_block(root.id(), &node, slot);
            path.push((node, slot));
            let Some(block) = self.resident(&wanted, pins)? else {
                return Ok(Attempt::Missing(self.with_readahead(wanted, &path, readahead)));
            };
            slot = match direction {
                Direction::Ceiling => 0,
                Direction::Floor | Direction::Exact => block.len().saturating_sub(1),
            };
            if block.is_leaf() {
                self.refuse_left_out(root, &block, (!block.is_empty()).then_some(slot), key, direction)?;
                let position = (!block.is_empty()).then_some(Position { leaf: block, slot });
                return Ok(Attempt::Found(position));
            }
            node = block;
        }
    }

    /// The block, if it is in memory; verified against what its parent says, hit or miss.
    pub(crate) fn resident(
        &self,
        wanted: &WantedBlock,
        pins: &Pins,
    ) -> Result<Option<Arc<Block>>, TreeError> {
        let found = self.cache.get(wanted.logical, wanted.generation).or_else(|| pins.get(wanted));
        if let Some(block) = &found {
            verify(block, self.span(block), wanted)?;
        }
        Ok(found)
    }

    /// The first and the last key that a block has on disk; none if it is empty.
    pub(crate) fn span(&self, block: &Block) -> Option<(Key, Key)> {
        match &self.left_out {
            Some(left_out) if block.is_leaf() => left_out.span(block),
            _ => span_of(block),
        }
    }

    /// Reads blocks into the cache and pins them.
    pub(crate) fn load(&self, wanted: &[WantedBlock], pins: &mut Pins) -> Result<(), TreeError> {
        self.metrics.blocks_read.add(u64::try_from(wanted.len()).unwrap_or(u64::MAX));
        let mut first_error = None;
        for (position, result) in self.source.read(wanted).into_iter().enumerate() {
            match result {
                Ok(block) => {
                    self.cache.insert_clean(Arc::clone(&block));
                    pins.hold(&block);
                }
                // Only the block that is needed may fail the search; what was read ahead is met later, or
                // never.
                Err(error) if position == 0 => first_error = Some(error),
                Err(_) => {}
            }
        }
        first_error.map_or(Ok(()), Err)
    }

    /// The missing block, and the ones behind it under the same parent as far as the policy looks ahead.
    fn with_readahead(&self, wanted: WantedBlock, path: &[Step], readahead: Readahead) -> Vec<WantedBlock> {
        let mut all = vec![wanted];
        let (Readahead::Forward(count), Some((parent, slot))) = (readahead, path.last()) else {
            return all;
        };
        let first = slot.saturating_add(1);
        for slot in first..first.saturating_add(count).min(parent.len()) {
            let next = child_block(wanted.tree, parent, slot);
            if self.cache.get(next.logical, next.generation).is_none() {
                all.push(next);
            }
        }
        all
    }
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
