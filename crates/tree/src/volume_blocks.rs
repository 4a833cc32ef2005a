//! Blocks on a volume: each copy is judged completely before it is believed.

use std::collections::BTreeMap;

use vlinder_base::sync::Arc;
use vlinder_base::sync::atomic::{AtomicU64, Ordering};
use vlinder_codec::checksum::{Checksum, ChecksumKind, checksum};
use vlinder_format::block::{BLOCK_FLAG_WRITTEN, BlockFault, BlockRules};
use vlinder_format::superblock::Superblock;
use vlinder_format::validate::{LeafRules, validate_leaf};
use vlinder_format::{Block, Damage, Generation, Place, RootId, Uuid};
use vlinder_volume::{MappedBy, ReadRequest, Volume};

use crate::leniency::Leniency;
use crate::wanted::{span_of, verify_block};
use crate::{BlockSource, LeftOut, TreeError, WantedBlock};

/// Where a block says whose it is.
const OWNER: std::ops::Range<usize> = 88..96;

/// Reads blocks from a volume, and prepares them for being written.
pub struct VolumeBlocks {
    volume: Arc<Volume>,
    rules: LeafRules,
    generation: AtomicU64,
    fsid: Uuid,
    checksum_kind: ChecksumKind,
    ignores_checksums: bool,
    /// What was left out of leaves, where files are salvaged.
    left_out: Option<Arc<LeftOut>>,
}

impl VolumeBlocks {
    /// Blocks of the file system whose superblock this is.
    pub fn new(volume: Arc<Volume>, superblock: &Superblock, writable: bool) -> Self {
        let geometry = volume.geometry();
        let rules = LeafRules {
            sector_size: geometry.sector_size,
            node_size: geometry.node_size,
            checksum_size: u32::try_from(geometry.checksum_kind.size_bytes()).unwrap_or(u32::MAX),
            generation: superblock.generation,
            features: superblock.features(),
            writable,
        };
        let checksum_kind = geometry.checksum_kind;
        let generation = AtomicU64::new(superblock.generation.0);
        let fsid = superblock.tree_block_uuid();
        Self { rules, generation, fsid, checksum_kind, volume, ignores_checksums: false, left_out: None }
    }

    /// Blocks without their checksum are taken all the same, if nothing else is wrong with them; leaves of
    /// which items alone are, without those. Both only where no copy is good.
    #[must_use]
    pub fn with_leniency(mut self, leniency: Leniency) -> Self {
        self.ignores_checksums = leniency.ignores_checksums;
        self.left_out = leniency.salvages.then(Arc::default);
        self
    }

    /// A newer superblock is durable: items may name its generation, and the next, from now on.
    pub fn set_generation(&self, generation: Generation) {
        self.generation.store(generation.0, Ordering::Release);
    }

    /// The form in which a block goes to disk: marked as written, with its checksum, and judged once more, so
    /// that a mistake of ours stops here.
    ///
    /// # Errors
    /// What is wrong with the block; it must not be written then.
    pub fn seal(&self, block: &Block) -> Result<Block, Damage> {
        let mut sealed = block.clone();
        sealed.set_flag(BLOCK_FLAG_WRITTEN, true);
        let sum = checksum(self.checksum_kind, sealed.checksummed_bytes());
        sealed.store_checksum(sum.as_field());
        let place = Place { tree: Some(block.owner()), block: Some(block.logical()), slot: None, key: None };
        sealed
            .validate(&self.block_rules())
            .map_err(|(fault, slot)| Damage::new(fault, Place { slot, ..place }))?;
        validate_leaf(&sealed, &self.leaf_rules())
            .map_err(|fault| fault.into_damage(Some(block.owner()), block.logical()))?;
        Ok(sealed)
    }

    fn request(&self, wanted: &WantedBlock) -> (ReadRequest, MappedBy) {
        let length = usize::try_from(self.rules.node_size).unwrap_or(usize::MAX);
        // What maps the blocks of the chunk tree must not be looked for in the chunk tree.
        let by = match wanted.tree {
            RootId::CHUNK_TREE => MappedBy::SystemChunks,
            _ => MappedBy::AnyChunk,
        };
        (ReadRequest { logical: wanted.logical, length }, by)
    }

    fn block_rules(&self) -> BlockRules {
        BlockRules { node_size: self.rules.node_size, sector_size: self.rules.sector_size }
    }

    fn leaf_rules(&self) -> LeafRules {
        LeafRules { generation: Generation(self.generation.load(Ordering::Acquire)), ..self.rules }
    }

    /// Judges the bytes of one copy, but for the items of a leaf.
    fn judge_block(&self, bytes: Vec<u8>, wanted: &WantedBlock) -> Result<Block, Damage> {
        if !self.checksum_matches(&bytes) {
            return Err(Damage::new(BlockFault::Checksum, place_of(wanted)));
        }
        self.judge_structure(bytes, wanted)
    }

    /// Judges the bytes of one copy, but for their checksum and the items of a leaf.
    fn judge_structure(&self, bytes: Vec<u8>, wanted: &WantedBlock) -> Result<Block, Damage> {
        let place = place_of(wanted);
        let damage = |fault: BlockFault| Damage::new(fault, place);
        let block = Block::parse(bytes.into_boxed_slice(), &self.block_rules())
            .map_err(|(fault, slot)| Damage::new(fault, Place { slot, ..place }))?;
        if block.header().fsid() != self.fsid
            && !self.volume.members().is_seed_block_uuid(block.header().fsid())
        {
            return Err(damage(BlockFault::FileSystem));
        }
        verify_block(&block, span_of(&block), wanted).map_err(damage)?;
        Ok(block)
    }

    fn judge_items(&self, block: &Block, wanted: &WantedBlock) -> Result<(), Damage> {
        let judged = validate_leaf(block, &self.leaf_rules());
        judged.map_err(|fault| fault.into_damage(Some(wanted.tree), wanted.logical))
    }

    /// What may be believed of a block of which no copy is good; `faulty` is one in which items alone are
    /// not.
    fn second_best(&self, wanted: &WantedBlock, faulty: Option<Block>) -> Option<Arc<Block>> {
        let left_out = self.left_out.as_ref().zip(faulty);
        let without =
            left_out.and_then(|(left_out, leaf)| left_out.leave_out(leaf, wanted.tree, &self.leaf_rules()));
        if without.is_some() || !self.ignores_checksums {
            return without.map(Arc::new);
        }
        let (request, _) = self.request(wanted);
        let again = self.volume.read_verified(request, &mut |bytes| {
            let block = self.judge_structure(bytes, wanted)?;
            self.judge_items(&block, wanted)?;
            Ok(Arc::new(block))
        });
        again.ok().map(|verified| verified.value)
    }

    /// A leaf of a tree in bytes that nothing led to, if they are one that was committed.
    pub(crate) fn leaf_among(&self, bytes: &[u8], tree: RootId) -> Option<Block> {
        // Most bytes are something else: that is seen without their checksum.
        let is_of_tree = bytes.get(OWNER)? == tree.0.to_le_bytes();
        if !is_of_tree || !self.checksum_matches(bytes) {
            return None;
        }
        let block = Block::parse(bytes.into(), &self.block_rules()).ok()?;
        let is_ours = block.header().fsid() == self.fsid
            || self.volume.members().is_seed_block_uuid(block.header().fsid());
        let is_committed = block.generation() <= self.rules.generation;
        let is_leaf = is_ours && is_committed && block.is_leaf() && block.owner() == tree;
        (is_leaf && validate_leaf(&block, &self.leaf_rules()).is_ok()).then_some(block)
    }

    fn checksum_matches(&self, bytes: &[u8]) -> bool {
        let Some((field, covered)) = bytes.split_first_chunk::<32>() else { return false };
        Checksum::from_field(*field).matches(&checksum(self.checksum_kind, covered), self.checksum_kind)
    }
}

impl BlockSource for VolumeBlocks {
    fn node_size(&self) -> u32 {
        self.rules.node_size
    }

    fn read(&self, wanted: &[WantedBlock]) -> Vec<Result<Arc<Block>, TreeError>> {
        let requests = wanted.iter().map(|wanted| self.request(wanted));
        // Of each request, the first copy in which nothing is wrong but items.
        let mut faulty: BTreeMap<usize, Block> = BTreeMap::new();
        let results = self.volume.submit_reads_by(requests).wait(&mut |number, bytes| {
            // The volume answers each request under its own number.
            let wanted = wanted.get(number).copied().unwrap_or_default();
            let block = self.judge_block(bytes, &wanted)?;
            match self.judge_items(&block, &wanted) {
                Ok(()) => Ok(Arc::new(block)),
                Err(damage) => {
                    if self.left_out.is_some() {
                        faulty.entry(number).or_insert(block);
                    }
                    Err(damage)
                }
            }
        });
        let blocks = results.into_iter().zip(wanted).enumerate().map(|(number, (result, wanted))| {
            let error = match result {
                Ok(verified) => return Ok(verified.value),
                Err(error) => error,
            };
            // Only where every copy failed: one with its checksum is better than one without.
            self.second_best(wanted, faulty.remove(&number)).ok_or_else(|| TreeError::from(error))
        });
        blocks.collect()
    }

    fn left_out(&self) -> Option<Arc<LeftOut>> {
        self.left_out.clone()
    }
}

fn place_of(wanted: &WantedBlock) -> Place {
    Place { tree: Some(wanted.tree), block: Some(wanted.logical), slot: None, key: None }
}
