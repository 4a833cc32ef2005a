//! Descents. Each is tried in memory under the root's shared lock; what is missing is named, the lock
//! dropped, the blocks loaded and pinned, and the descent begun again, so that no lock is held over I/O.

use vlinder_base::sync::Arc;
use vlinder_format::{Block, Key, Level, Place, RootId};

use crate::readahead::{Step, blocks_behind};
use crate::root::{Root, RootState, Unlocked};
use crate::tree_blocks::{Pins, TreeBlocks};
use crate::wanted::{child_block, root_block};
use crate::{Readahead, TreeError, WantedBlock};

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

/// Where a search ends.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Direction {
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

/// A search of one item.
pub(crate) struct Search<'a> {
    blocks: &'a TreeBlocks,
    root: &'a Root,
    key: &'a Key,
    direction: Direction,
    readahead: Readahead,
    pins: Pins,
}

impl<'a> Search<'a> {
    pub(crate) fn new(
        blocks: &'a TreeBlocks,
        root: &'a Root,
        key: &'a Key,
        direction: Direction,
        readahead: Readahead,
    ) -> Self {
        Self { blocks, root, key, direction, readahead, pins: Pins::default() }
    }

    /// The item; none where the tree has none there.
    ///
    /// # Errors
    /// What reading the path met; what is wrong with an item that was left out and is nearer than the one to
    /// give, unless the search is for a ceiling.
    pub(crate) fn run(mut self) -> Result<Option<Position>, TreeError> {
        self.blocks.metrics.descents.increment();
        let mut unlocked = Unlocked::new();
        for _ in 0..ROUNDS {
            let (attempt, version) = {
                let state = self.root.read();
                (self.attempt(&state)?, state.version)
            };
            match attempt {
                Attempt::Found(position) => return Ok(position),
                Attempt::Missing(wanted) => match self.blocks.load(&wanted, &mut self.pins) {
                    // The tree let go of the block meanwhile, whose place others may have by now.
                    Err(error) if unlocked.excuses(&error, self.root, version) => {}
                    loaded => loaded?,
                },
            }
        }
        Err(TreeError::Unsettled { root: self.root.id(), key: *self.key })
    }

    /// One descent in memory.
    fn attempt(&self, state: &RootState) -> Result<Attempt, TreeError> {
        let mut path: Vec<Step> = Vec::with_capacity(Level::COUNT);
        let mut wanted = root_block(self.root.id(), state);
        loop {
            let Some(block) = self.blocks.resident(&wanted, &self.pins)? else {
                return Ok(Attempt::Missing(self.with_readahead(wanted, &path)));
            };
            if block.is_leaf() {
                return self.settle_in_leaf(path, block);
            }
            let slot = block.child_slot(self.key);
            wanted = child_block(self.root.id(), &block, slot);
            path.push((block, slot));
        }
    }

    /// Finds the item in a leaf, or in the neighbour leaf when it lies beyond this leaf's border.
    fn settle_in_leaf(&self, path: Vec<Step>, leaf: Arc<Block>) -> Result<Attempt, TreeError> {
        let slot = match (leaf.search(self.key), self.direction) {
            (Ok(slot), _) => Some(slot),
            (Err(slot), Direction::Ceiling) => (slot < leaf.len()).then_some(slot),
            (Err(slot), Direction::Floor | Direction::Exact) => slot.checked_sub(1),
        };
        self.refuse_left_out(&leaf, slot)?;
        match slot {
            Some(slot) => Ok(Attempt::Found(Some(Position { leaf, slot }))),
            None => self.item_of_neighbour_leaf(path),
        }
    }

    /// Refuses the item at a slot of a leaf as what was sought, where one behind it was left out that is
    /// nearer.
    fn refuse_left_out(&self, leaf: &Block, slot: Option<usize>) -> Result<(), TreeError> {
        let left_out = self.blocks.left_out().filter(|_| self.direction != Direction::Ceiling);
        let Some(left_out) = left_out else { return Ok(()) };
        let behind = slot.map(|slot| leaf.key(slot));
        let nearer = left_out.between(leaf, behind, self.key);
        match nearer.filter(|item| self.direction == Direction::Floor || item.key == *self.key) {
            Some(item) => Err(item.into_damage(Some(self.root.id()), leaf.logical()).into()),
            None => Ok(()),
        }
    }

    /// The first item of the next leaf (ceiling), or the last one of the previous leaf (floor, exact). `path`
    /// leads to the leaf that has none. An exact search goes on for the items that were left out of leaves.
    fn item_of_neighbour_leaf(&self, mut path: Vec<Step>) -> Result<Attempt, TreeError> {
        let (mut node, mut slot) = loop {
            let Some((node, slot)) = path.pop() else {
                return Ok(Attempt::Found(None));
            };
            let beside = match self.direction {
                Direction::Ceiling => slot.checked_add(1).filter(|slot| *slot < node.len()),
                Direction::Floor | Direction::Exact => slot.checked_sub(1),
            };
            if let Some(beside) = beside {
                break (node, beside);
            }
        };
        loop {
            let wanted = child_block(self.root.id(), &node, slot);
            path.push((node, slot));
            let Some(block) = self.blocks.resident(&wanted, &self.pins)? else {
                return Ok(Attempt::Missing(self.with_readahead(wanted, &path)));
            };
            slot = match self.direction {
                Direction::Ceiling => 0,
                Direction::Floor | Direction::Exact => block.len().saturating_sub(1),
            };
            if block.is_leaf() {
                self.refuse_left_out(&block, (!block.is_empty()).then_some(slot))?;
                let position = (!block.is_empty()).then_some(Position { leaf: block, slot });
                return Ok(Attempt::Found(position));
            }
            node = block;
        }
    }

    /// The missing block, and those behind it as far as the policy looks ahead.
    fn with_readahead(&self, wanted: WantedBlock, path: &[Step]) -> Vec<WantedBlock> {
        let mut all = vec![wanted];
        if let Readahead::Forward(most) = self.readahead {
            let resident = |block: &WantedBlock| self.blocks.cache.get(block.logical, block.generation);
            all.extend(blocks_behind((wanted.tree, wanted.level), path, most, resident, |_| true).0);
        }
        all
    }
}
