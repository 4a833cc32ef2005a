//! Items into blocks, and blocks into bytes at their places.

use vlinder_base::units::Physical;
use vlinder_codec::checksum::checksum;
use vlinder_format::block::{
    BLOCK_FLAG_WRITTEN, BlockIdentity, BlockRules, ChildPointer, HEADER_SIZE, ITEM_HEADER_SIZE, POINTER_SIZE,
};
use vlinder_format::features::Features;
use vlinder_format::validate::{LeafRules, validate_leaf};
use vlinder_format::{Block, Key, Level, Logical};
use vlinder_volume::profile::plan_write;

use super::layout::Layout;
use super::trees::{Forest, Items, LEVEL_LIMIT, Tree};
use super::{FIRST_GENERATION, MkfsParameters};

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

/// The bytes of every copy of every block, by place.
pub(super) fn encode(
    parameters: &MkfsParameters,
    layout: &Layout,
    forest: &Forest,
) -> Vec<(Physical, Vec<u8>)> {
    let mut writes = Vec::new();
    for tree in &forest.trees {
        let chunk = layout.chunk_for(tree.root);
        for block in &tree.blocks {
            let bytes = encode_block(parameters, tree, block);
            let places = plan_write(chunk, block.logical, u64::from(parameters.node_size))
                .expect("the chunks of a new file system are longer than its trees");
            writes.extend(places.into_iter().map(|place| (place.physical, bytes.clone())));
        }
    }
    writes.sort_by_key(|(place, _)| *place);
    writes
}

fn encode_block(parameters: &MkfsParameters, tree: &Tree, planned: &PlannedBlock) -> Vec<u8> {
    let identity = BlockIdentity {
        logical: planned.logical,
        generation: FIRST_GENERATION,
        owner: tree.root,
        level: planned.level,
        fsid: parameters.uuids.fsid,
        chunk_tree_uuid: parameters.uuids.chunk_tree,
    };
    let mut block = Block::new(parameters.node_size, &identity);
    if planned.level == Level::LEAF {
        let items: Vec<(Key, &[u8])> =
            tree.items[planned.content.clone()].iter().map(|(key, data)| (*key, data.as_slice())).collect();
        block.insert_items(0, &items);
    } else {
        let pointer = |child: &PlannedBlock| ChildPointer {
            key: child.first_key,
            logical: child.logical,
            generation: FIRST_GENERATION,
        };
        let children: Vec<ChildPointer> = tree.blocks[planned.content.clone()].iter().map(pointer).collect();
        block.insert_children(0, &children);
    }
    block.set_flag(BLOCK_FLAG_WRITTEN, true);
    let sum = checksum(parameters.checksum_kind, block.checksummed_bytes());
    block.store_checksum(sum.as_field());
    judge(parameters, &block);
    block.bytes().to_vec()
}

/// What a reader will demand is demanded here first.
fn judge(parameters: &MkfsParameters, block: &Block) {
    let rules = LeafRules {
        sector_size: parameters.sector_size,
        node_size: parameters.node_size,
        checksum_size: u32::try_from(parameters.checksum_kind.size_bytes()).unwrap_or(u32::MAX),
        generation: FIRST_GENERATION,
        features: Features {
            incompat: parameters.features.incompat(),
            compat_read_only: parameters.features.compat_read_only(),
            ..Features::default()
        },
        writable: true,
    };
    let structure =
        block.validate(&BlockRules { node_size: rules.node_size, sector_size: rules.sector_size });
    assert_eq!(structure, Ok(()), "mkfs made a bad block at {}", block.logical());
    assert_eq!(validate_leaf(block, &rules), Ok(()), "mkfs made a bad item at {}", block.logical());
}
