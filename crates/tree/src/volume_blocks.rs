//! Blocks on a volume: each copy is judged completely before it is believed.

use vlinder_base::sync::Arc;
use vlinder_base::sync::atomic::{AtomicU64, Ordering};
use vlinder_codec::checksum::{Checksum, ChecksumKind, checksum};
use vlinder_format::block::{BLOCK_FLAG_WRITTEN, BlockFault, BlockRules};
use vlinder_format::superblock::Superblock;
use vlinder_format::validate::{LeafRules, validate_leaf};
use vlinder_format::{Block, Damage, Generation, Place, RootId, Uuid};
use vlinder_volume::{MappedBy, ReadRequest, Volume};

use crate::search::verify_block;
use crate::{BlockSource, TreeError, WantedBlock};

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
        Self { rules, generation, fsid, checksum_kind, volume, ignores_checksums: false }
    }

    /// A block of which no copy has its checksum is taken all the same, if nothing else is wrong with it
    /// (`rescue=ignoremetacsums`).
    #[must_use]
    pub const fn ignoring_checksums(mut self, ignores: bool) -> Self {
        self.ignores_checksums = ignores;
        self
    }

    /// A newer superblock is durable: items may name its generation, and the next, from now on.
    pub fn set_generation(&self, generation: Generation) {
        self.generation.store(generation.0, Ordering::Release);
    }

    /// The form in which a block goes to disk: marked as written, with its checksum, and judged once more, so that a
    /// mistake of ours stops here.
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

    /// Judges the bytes of one copy.
    fn judge(&self, bytes: Vec<u8>, wanted: &WantedBlock) -> Result<Arc<Block>, Damage> {
        if !self.checksum_matches(&bytes) {
            let place = Place { tree: Some(wanted.tree), block: Some(wanted.logical), slot: None, key: None };
            return Err(Damage::new(BlockFault::Checksum, place));
        }
        self.judge_content(bytes, wanted)
    }

    /// Judges the bytes of one copy, but for their checksum.
    fn judge_content(&self, bytes: Vec<u8>, wanted: &WantedBlock) -> Result<Arc<Block>, Damage> {
        let place = Place { tree: Some(wanted.tree), block: Some(wanted.logical), slot: None, key: None };
        let damage = |fault: BlockFault| Damage::new(fault, place);
        let block = Block::parse(bytes.into_boxed_slice(), &self.block_rules())
            .map_err(|(fault, slot)| Damage::new(fault, Place { slot, ..place }))?;
        if block.fsid() != self.fsid && !self.volume.is_seed_block_uuid(block.fsid()) {
            return Err(damage(BlockFault::FileSystem));
        }
        verify_block(&block, wanted).map_err(damage)?;
        validate_leaf(&block, &self.leaf_rules())
            .map_err(|fault| fault.into_damage(Some(wanted.tree), wanted.logical))?;
        Ok(Arc::new(block))
    }

    /// A leaf of a tree in bytes that nothing led to, if they are one that was committed.
    pub(crate) fn leaf_among(&self, bytes: &[u8], tree: RootId) -> Option<Block> {
        // Most bytes are something else: that is seen without their checksum.
        let is_of_tree = bytes.get(OWNER)? == tree.0.to_le_bytes();
        if !is_of_tree || !self.checksum_matches(bytes) {
            return None;
        }
        let block = Block::parse(bytes.into(), &self.block_rules()).ok()?;
        let is_ours = block.fsid() == self.fsid || self.volume.is_seed_block_uuid(block.fsid());
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
        let results = self.volume.submit_reads_by(requests).wait(&mut |number, bytes| {
            // The volume answers each request under its own number.
            let wanted = wanted.get(number).copied().unwrap_or_default();
            self.judge(bytes, &wanted)
        });
        let blocks = results.into_iter().zip(wanted).map(|(result, wanted)| {
            let error = match result {
                Ok(verified) => return Ok(verified.value),
                Err(error) => error,
            };
            // Only where every copy failed: one with its checksum is better than one without.
            let (request, _) = self.request(wanted);
            let again = self
                .ignores_checksums
                .then(|| self.volume.read_verified(request, &mut |bytes| self.judge_content(bytes, wanted)));
            match again {
                Some(Ok(verified)) => Ok(verified.value),
                _ => Err(TreeError::from(error)),
            }
        });
        blocks.collect()
    }
}
