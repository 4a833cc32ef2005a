//! Blocks into bytes at their places.

use vlinder_base::units::Physical;
use vlinder_codec::checksum::checksum;
use vlinder_format::block::{BLOCK_FLAG_WRITTEN, BlockIdentity, BlockRules, ChildPointer};
use vlinder_format::features::Features;
use vlinder_format::validate::{LeafRules, validate_leaf};
use vlinder_format::{Block, Key, Level};
use vlinder_volume::profile::plan_write;

use super::layout::Layout;
use super::packing::PlannedBlock;
use super::parameters::{FIRST_GENERATION, MkfsParameters};
use super::trees::{Forest, Tree};

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
            let plan = plan_write(chunk, block.logical, u64::from(parameters.node_size))
                .expect("the chunks of a new file system are longer than its trees");
            writes.extend(plan.places().map(|place| (place.physical, bytes.clone())));
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
        block.items_mut().insert(0, &items);
    } else {
        let pointer = |child: &PlannedBlock| ChildPointer {
            key: child.first_key,
            logical: child.logical,
            generation: FIRST_GENERATION,
        };
        let children: Vec<ChildPointer> = tree.blocks[planned.content.clone()].iter().map(pointer).collect();
        block.children_mut().insert(0, &children);
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
