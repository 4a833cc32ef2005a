//! Items packed into the blocks of a tree.

use vlinder_format::block::{HEADER_SIZE, ITEM_HEADER_SIZE, POINTER_SIZE};
use vlinder_format::{Key, Level, Logical};

/// A level that no tree of an empty file system reaches.
const LEVEL_LIMIT: Level = Level(3);

/// Items with their keys, ascending.
pub(super) type Items = Vec<(Key, Vec<u8>)>;

/// A block that is to be written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct PlannedBlock {
    /// Set when the tree is planted.
    pub(super) logical: Logical,
    pub(super) level: Level,
    pub(super) first_key: Key,
    /// Of a leaf: items; of a node: blocks of the tree.
    pub(super) content: core::ops::Range<usize>,
}

/// Packs items into full leaves, and these into nodes up to one root. Leaves come first, the root last.
pub(super) fn pack(items: &Items, node_size: u32) -> Vec<PlannedBlock> {
    let capacity = usize::try_from(node_size).unwrap_or(usize::MAX) - HEADER_SIZE;
    let mut blocks = Vec::new();
    let mut start = 0;
    let mut used = 0;
    for (position, (_, data)) in items.iter().enumerate() {
        let size = ITEM_HEADER_SIZE + data.len();
        if used + size > capacity {
            blocks.push(leaf(items, start..position));
            (start, used) = (position, 0);
        }
        used += size;
    }
    blocks.push(leaf(items, start..items.len()));
    let mut level = 0..blocks.len();
    while level.len() > 1 {
        let below = level.clone();
        let height = blocks[below.start].level.above();
        assert!(height < LEVEL_LIMIT, "an empty file system does not grow this high");
        for first in below.clone().step_by(capacity / POINTER_SIZE) {
            let content = first..below.end.min(first + capacity / POINTER_SIZE);
            let first_key = blocks[first].first_key;
            blocks.push(PlannedBlock { logical: Logical(0), level: height, first_key, content });
        }
        level = below.end..blocks.len();
    }
    blocks
}

fn leaf(items: &Items, content: core::ops::Range<usize>) -> PlannedBlock {
    let first_key = items.get(content.start).map_or(Key::MIN, |(key, _)| *key);
    PlannedBlock { logical: Logical(0), level: Level::LEAF, first_key, content }
}
