//! Blocks into bytes at their places.

use vlinder_base::units::Physical;
use vlinder_codec::checksum::checksum;
use vlinder_format::block::{BLOCK_FLAG_WRITTEN, BlockIdentity, BlockRules, ChildPointer};
use vlinder_format::features::Features;
use vlinder_format::validate::{LeafRules, validate_leaf};
use vlinder_format::{Block, Generation, Key, Level, RootId};
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
    let sealing = Sealing {
        parameters,
        generation: FIRST_GENERATION,
        features: Features {
            incompat: parameters.features.incompat(),
            compat_read_only: parameters.features.compat_read_only(),
            ..Features::default()
        },
    };
    let block = if planned.level == Level::LEAF {
        let items: Vec<(Key, &[u8])> =
            tree.items[planned.content.clone()].iter().map(|(key, data)| (*key, data.as_slice())).collect();
        sealing.leaf(tree.root, planned, &items)
    } else {
        sealing.node(tree.root, planned, &tree.blocks)
    };
    block.bytes().to_vec()
}

/// What all blocks of a new file system have in common.
pub(in super::super) struct Sealing<'a> {
    pub(in super::super) parameters: &'a MkfsParameters,
    pub(in super::super) generation: Generation,
    /// Those of the superblock.
    pub(in super::super) features: Features,
}

impl Sealing<'_> {
    /// A leaf with its checksum.
    pub(in super::super) fn leaf(
        &self,
        owner: RootId,
        planned: &PlannedBlock,
        items: &[(Key, &[u8])],
    ) -> Block {
        let mut block = self.empty(owner, planned);
        block.items_mut().insert(0, items);
        self.seal(block)
    }

    /// A node with its checksum; `blocks` are those of its tree.
    pub(in super::super) fn node(
        &self,
        owner: RootId,
        planned: &PlannedBlock,
        blocks: &[PlannedBlock],
    ) -> Block {
        let pointer = |child: &PlannedBlock| ChildPointer {
            key: child.first_key,
            logical: child.logical,
            generation: self.generation,
        };
        let children: Vec<ChildPointer> = blocks[planned.content.clone()].iter().map(pointer).collect();
        let mut block = self.empty(owner, planned);
        block.children_mut().insert(0, &children);
        self.seal(block)
    }

    fn empty(&self, owner: RootId, planned: &PlannedBlock) -> Block {
        let uuids = &self.parameters.uuids;
        let identity = BlockIdentity {
            logical: planned.logical,
            generation: self.generation,
            owner,
            level: planned.level,
            fsid: uuids.fsid,
            chunk_tree_uuid: uuids.chunk_tree,
        };
        Block::new(self.parameters.node_size, &identity)
    }

    fn seal(&self, mut block: Block) -> Block {
        block.set_flag(BLOCK_FLAG_WRITTEN, true);
        let sum = checksum(self.parameters.checksum_kind, block.checksummed_bytes());
        block.store_checksum(sum.as_field());
        judge(self, &block);
        block
    }
}

/// What a reader will demand is demanded here first.
fn judge(sealing: &Sealing<'_>, block: &Block) {
    let parameters = sealing.parameters;
    let rules = LeafRules {
        sector_size: parameters.sector_size,
        node_size: parameters.node_size,
        checksum_size: u32::try_from(parameters.checksum_kind.size_bytes()).unwrap_or(u32::MAX),
        generation: sealing.generation,
        features: sealing.features,
        writable: true,
    };
    let structure =
        block.validate(&BlockRules { node_size: rules.node_size, sector_size: rules.sector_size });
    assert_eq!(structure, Ok(()), "mkfs made a bad block at {}", block.logical());
    assert_eq!(validate_leaf(block, &rules), Ok(()), "mkfs made a bad item at {}", block.logical());
}
