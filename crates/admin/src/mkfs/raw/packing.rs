//! Items packed into the blocks of a tree.

use vlinder_format::block::{HEADER_SIZE, ITEM_HEADER_SIZE, POINTER_SIZE};
use vlinder_format::{Key, Level, Logical};

/// The highest level that the format knows (`BTRFS_MAX_LEVEL` less one).
const MAX_LEVEL: Level = Level(7);

/// Items with their keys, ascending.
pub(in super::super) type Items = Vec<(Key, Vec<u8>)>;

/// A block that is to be written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in super::super) struct PlannedBlock {
    /// Set when the tree is planted.
    pub(in super::super) logical: Logical,
    pub(in super::super) level: Level,
    pub(in super::super) first_key: Key,
    /// Of a leaf: items; of a node: blocks of the tree.
    pub(in super::super) content: core::ops::Range<usize>,
}

/// Packs items into full leaves, and these into nodes up to one root. Leaves come first, the root last.
pub(super) fn pack(items: &Items, node_size: u32) -> Vec<PlannedBlock> {
    let mut packing = Packing::new(node_size);
    for (key, data) in items {
        packing.add(*key, data.len());
    }
    packing.finish()
}

/// A tree that is being packed, item by item.
#[derive(Debug)]
pub(in super::super) struct Packing {
    capacity: usize,
    leaves: Vec<PlannedBlock>,
    /// Of the last leaf.
    first_key: Key,
    /// Items of the last leaf, by number.
    content: core::ops::Range<usize>,
    used: usize,
}

impl Packing {
    /// An empty tree of blocks of this size.
    pub(in super::super) fn new(node_size: u32) -> Self {
        let capacity = usize::try_from(node_size).unwrap_or(usize::MAX) - HEADER_SIZE;
        Self { capacity, leaves: Vec::new(), first_key: Key::MIN, content: 0..0, used: 0 }
    }

    /// The next item, with the length of its data.
    pub(in super::super) fn add(&mut self, key: Key, length: usize) {
        let size = ITEM_HEADER_SIZE + length;
        if self.used + size > self.capacity {
            self.end_leaf();
        }
        if self.content.is_empty() {
            self.first_key = key;
        }
        self.content.end += 1;
        self.used += size;
    }

    fn end_leaf(&mut self) {
        let next = self.content.end;
        let content = core::mem::replace(&mut self.content, next..next);
        self.used = 0;
        self.leaves.push(PlannedBlock {
            logical: Logical(0),
            level: Level::LEAF,
            first_key: self.first_key,
            content,
        });
    }

    /// All blocks: leaves first, the root last. A tree without items is one empty leaf.
    pub(in super::super) fn finish(mut self) -> Vec<PlannedBlock> {
        self.end_leaf();
        let mut blocks = self.leaves;
        let most_pointers = self.capacity / POINTER_SIZE;
        let mut level = 0..blocks.len();
        while level.len() > 1 {
            let below = level.clone();
            let height = blocks[below.start].level.above();
            assert!(height <= MAX_LEVEL, "a tree of {} leaves does not grow this high", blocks.len());
            for first in below.clone().step_by(most_pointers) {
                let content = first..below.end.min(first + most_pointers);
                let first_key = blocks[first].first_key;
                blocks.push(PlannedBlock { logical: Logical(0), level: height, first_key, content });
            }
            level = below.end..blocks.len();
        }
        blocks
    }
}
