//! What changes at given places would take of a tree: counted in the tree as it stands, without changing it.

use std::ops::Range;

use vlinder_base::sync::Arc;
use vlinder_format::block::{BLOCK_FLAG_RELOCATION, POINTER_SIZE};
use vlinder_format::{Block, Generation, Key, Level, Logical};

use crate::root::Root;
use crate::tree_blocks::TreeBlocks;
use crate::{TreeError, WantedBlock};

/// A range of keys in which items may change.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Touch {
    /// The keys.
    pub keys: Range<Key>,
    /// How many bytes items of the range may grow by in all.
    pub growth_bytes: usize,
}

impl Touch {
    /// One key, whose item may grow by so many bytes.
    #[must_use]
    pub fn at(key: Key, growth_bytes: usize) -> Self {
        Self { keys: key..key.next().unwrap_or(Key::MAX), growth_bytes }
    }
}

/// What changes at all touched places take.
#[derive(Clone, Debug, Default)]
pub struct Measured {
    /// Blocks that have to be copied: nodes and leaves that the running transaction has not made.
    pub copies: u64,
    /// Leaves and nodes that the growth of their items may split.
    pub splits: u64,
    /// Blocks to be copied that another tree may share, each behind its parent if that is one of them.
    pub shared: Vec<MaybeShared>,
}

/// A block to be copied that another tree may share.
#[derive(Clone, Debug)]
pub struct MaybeShared {
    /// The block.
    pub block: Arc<Block>,
    /// The number of its parent, if that may be shared as well: the parent's copy may add a reference to this
    /// block.
    pub parent: Option<usize>,
}

impl Measured {
    /// New blocks in all.
    #[must_use]
    pub fn blocks(&self) -> u64 {
        self.copies.saturating_add(self.splits)
    }
}

/// Where the blocks of a tree lie, in no order.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Shape {
    /// The nodes.
    pub nodes: Vec<Logical>,
    /// The leaves, each with its first key as the node above has it.
    pub leaves: Vec<(Key, Logical)>,
}

impl Shape {
    /// Where all blocks of a tree lie, read from its root block on.
    ///
    /// # Errors
    /// What reading the nodes met.
    pub(crate) fn read(blocks: &TreeBlocks, root: &Root) -> Result<Self, TreeError> {
        let top = blocks.block(&WantedBlock::root(root))?;
        let mut shape = Self::default();
        if top.is_leaf() {
            shape.leaves.push((Key::MIN, top.logical()));
            return Ok(shape);
        }
        let mut nodes = vec![top];
        while let Some(node) = nodes.pop() {
            shape.nodes.push(node.logical());
            for slot in 0..node.len() {
                let wanted = WantedBlock::child(root.id(), &node, slot);
                if wanted.level > Level::LEAF {
                    nodes.push(blocks.block(&wanted)?);
                } else {
                    shape.leaves.push((node.key(slot), wanted.logical));
                }
            }
        }
        Ok(shape)
    }

    /// Nodes and leaves.
    pub fn places(&self) -> impl Iterator<Item = Logical> + '_ {
        self.nodes.iter().copied().chain(self.leaves.iter().map(|(_, at)| *at))
    }
}

/// How closely a tree is looked at.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Precision {
    /// Nodes are read, and each touched leaf is taken for one that splits.
    Nodes,
    /// Touched leaves are read, too.
    Leaves,
}

/// A measurement of one tree.
pub(crate) struct Measurement<'a> {
    blocks: &'a TreeBlocks,
    root: &'a Root,
    generation: Generation,
    last_snapshot: Generation,
    precision: Precision,
}

impl<'a> Measurement<'a> {
    /// A measurement for the transaction of `generation`, where blocks up to `last_snapshot` may be shared.
    pub(crate) fn new(
        blocks: &'a TreeBlocks,
        root: &'a Root,
        generation: Generation,
        last_snapshot: Generation,
        precision: Precision,
    ) -> Self {
        let last_snapshot = if root.id().is_shareable() { last_snapshot } else { Generation(0) };
        Self { blocks, root, generation, last_snapshot, precision }
    }

    /// Measures changes at touched places, which are in order and apart.
    ///
    /// # Errors
    /// What reading the tree met.
    pub(crate) fn measure(&self, touches: &[Touch]) -> Result<Measured, TreeError> {
        let touches: Vec<Touch> =
            touches.iter().filter(|touch| touch.keys.start < touch.keys.end).cloned().collect();
        if touches.is_empty() {
            return Ok(Measured::default());
        }
        self.root.read_unlocked(|| self.measure_from_root(&touches))
    }

    /// Whether the tree may share blocks with others.
    fn shares(&self) -> bool {
        self.root.id().is_shareable()
    }

    fn measure_from_root(&self, touches: &[Touch]) -> Result<Measured, TreeError> {
        let top = self.blocks.block(&WantedBlock::root(self.root))?;
        let mut measured =
            Measured { copies: u64::from(top.generation() != self.generation), ..Measured::default() };
        let splits = self.measure_below((&top, None), touches, &mut measured)?;
        // A root that splits gets a node above it.
        measured.splits = measured.splits.saturating_add(u64::from(splits));
        Ok(measured)
    }

    /// Measures a block, which comes with its number if it may be shared, and all below it; gives whether the
    /// block may split.
    fn measure_below(
        &self,
        (block, number): (&Arc<Block>, Option<usize>),
        touches: &[Touch],
        measured: &mut Measured,
    ) -> Result<bool, TreeError> {
        if block.is_leaf() {
            let growth = touches.iter().fold(0_usize, |sum, touch| sum.saturating_add(touch.growth_bytes));
            let splits = growth > block.free_bytes();
            measured.note_split(splits, growth, block);
            return Ok(splits);
        }
        let mut new_pointers = 0_usize;
        for (slot, below) in children(block, touches) {
            let wanted = WantedBlock::child(self.root.id(), block, slot);
            let may_share = wanted.generation <= self.last_snapshot;
            let is_copied = wanted.generation != self.generation || self.last_snapshot >= self.generation;
            measured.copies = measured.copies.saturating_add(u64::from(is_copied));
            let splits = if wanted.level > Level::LEAF || self.precision == Precision::Leaves || may_share {
                let child = self.blocks.block(&wanted)?;
                let may_share = may_share || (self.shares() && child.has_flag(BLOCK_FLAG_RELOCATION));
                let child_number = (may_share && is_copied).then_some(measured.shared.len());
                if child_number.is_some() {
                    measured.shared.push(MaybeShared { block: Arc::clone(&child), parent: number });
                }
                self.measure_below((&child, child_number), below, measured)?
            } else {
                let grows = below.iter().any(|touch| touch.growth_bytes > 0);
                measured.splits = measured.splits.saturating_add(u64::from(grows));
                grows
            };
            new_pointers = new_pointers.saturating_add(usize::from(splits));
        }
        let growth = new_pointers.saturating_mul(POINTER_SIZE);
        let splits = block.len().saturating_add(new_pointers) > block.pointer_capacity();
        measured.note_split(splits, growth, block);
        Ok(splits)
    }
}

impl Measured {
    fn note_split(&mut self, splits: bool, growth_bytes: usize, block: &Block) {
        if splits {
            let quarter = (block.capacity_bytes() / 4).max(1);
            let pieces = growth_bytes.div_ceil(quarter).max(1);
            self.splits = self.splits.saturating_add(u64::try_from(pieces).unwrap_or(u64::MAX));
        }
    }
}

/// The children of a node below which touched keys lie or would lie, each with what touches it.
fn children<'a>(node: &Block, touches: &'a [Touch]) -> Vec<(usize, &'a [Touch])> {
    let mut children: Vec<(usize, &[Touch])> = Vec::new();
    let mut rest = touches;
    let mut next_slot = 0_usize;
    while let Some(first) = rest.first() {
        let slot = node.child_slot(&first.keys.start).max(next_slot);
        let upper = slot.checked_add(1).filter(|next| *next < node.len()).map(|next| node.key(next));
        let count = upper.map_or(rest.len(), |upper| rest.partition_point(|touch| touch.keys.start < upper));
        let (below, behind) = rest.split_at(count.max(1));
        children.push((slot, below));
        next_slot = slot.saturating_add(1);
        // The last of them may reach into the next child as well.
        let reaches = upper.is_some_and(|upper| below.last().is_some_and(|last| last.keys.end > upper));
        rest = match (reaches, count.max(1).checked_sub(1)) {
            (true, Some(last)) => rest.split_at(last).1,
            _ => behind,
        };
    }
    children
}
