//! Blocks in memory: clean ones, bounded and forgotten by use; those that the running transaction changes; and the
//! frozen ones that its predecessor is writing.
//!
//! Invariants:
//! 1. A block of the running generation that is not yet written is in `dirty`, under its address.
//! 2. Frozen blocks never change. They stay until they are written and in the clean cache.
//! 3. A clean block is immutable. Its key is its address *and* generation, so a reused address is another block.
//!
//! Look-ups go dirty → frozen → clean; each move between them publishes at the destination first.

use std::collections::HashMap;

use vlinder_base::cache::Cache;
use vlinder_base::sync::atomic::{AtomicU64, Ordering};
use vlinder_base::sync::{Arc, Mutex, RwLock};
use vlinder_format::{Block, Generation, Logical};

const SHARDS: usize = 64;

/// A changed block, as the committer sees it.
pub type DirtyBlock = (Logical, Arc<Block>);

type ByAddress = HashMap<Logical, Arc<Block>>;

pub(crate) struct BlockCache {
    clean: Cache<(Logical, Generation), Arc<Block>>,
    dirty: Box<[Mutex<ByAddress>]>,
    dirty_count: AtomicU64,
    frozen: RwLock<Arc<ByAddress>>,
    /// Generation of the blocks in `frozen`; 0 while there are none.
    frozen_generation: AtomicU64,
    node_size: u32,
}

impl BlockCache {
    pub(crate) fn new(capacity_bytes: u64, node_size: u32) -> Self {
        Self {
            clean: Cache::new(capacity_bytes, u64::from(node_size), |_, block: &Arc<Block>| {
                u64::try_from(block.bytes().len()).unwrap_or(u64::MAX)
            }),
            dirty: (0..SHARDS).map(|_| Mutex::new(HashMap::new())).collect(),
            dirty_count: AtomicU64::new(0),
            frozen: RwLock::new(Arc::default()),
            frozen_generation: AtomicU64::new(0),
            node_size,
        }
    }

    /// The block of an address and generation, if it is in memory.
    pub(crate) fn get(&self, logical: Logical, generation: Generation) -> Option<Arc<Block>> {
        if let Some(block) = self.shard(logical).lock().get(&logical)
            && block.generation() == generation
        {
            return Some(Arc::clone(block));
        }
        if self.frozen_generation.load(Ordering::Acquire) == generation.0
            && let Some(block) = self.frozen.read().get(&logical)
        {
            return Some(Arc::clone(block));
        }
        self.clean.get(&(logical, generation))
    }

    /// Keeps a block that was read.
    pub(crate) fn insert_clean(&self, block: Arc<Block>) {
        self.clean.insert((block.logical(), block.generation()), block);
    }

    /// Takes in a new block of the running transaction.
    pub(crate) fn insert_dirty(&self, block: Arc<Block>) {
        let logical = block.logical();
        if self.shard(logical).lock().insert(logical, block).is_none() {
            self.dirty_count.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Changes a dirty block in place; a reader that holds it keeps its old content.
    pub(crate) fn change<R>(&self, logical: Logical, change: impl FnOnce(&mut Block) -> R) -> R {
        let mut shard = self.shard(logical).lock();
        let block = shard.get_mut(&logical);
        assert!(block.is_some(), "block {logical} is changed without being dirty");
        match block {
            Some(block) => change(Arc::make_mut(block)),
            None => unreachable!("asserted above"),
        }
    }

    /// The dirty block at an address.
    pub(crate) fn dirty(&self, logical: Logical) -> Option<Arc<Block>> {
        self.shard(logical).lock().get(&logical).map(Arc::clone)
    }

    /// A block that the running transaction has made writable, as it is now. Without it a pointer or an item would be lost.
    pub(crate) fn writable(&self, logical: Logical) -> Arc<Block> {
        let block = self.dirty(logical);
        assert!(block.is_some(), "block {logical} is relied on as writable without being dirty");
        match block {
            Some(block) => block,
            None => unreachable!("asserted above"),
        }
    }

    /// Forgets a dirty block that nothing references any more.
    pub(crate) fn forget_dirty(&self, logical: Logical) {
        if self.shard(logical).lock().remove(&logical).is_some() {
            self.dirty_count.fetch_sub(1, Ordering::Relaxed);
        }
    }

    /// Forgets a clean block that no tree references any more: it would only keep others out.
    pub(crate) fn forget_clean(&self, logical: Logical, generation: Generation) {
        self.clean.remove(&(logical, generation));
    }

    /// How many bytes the dirty blocks take.
    pub(crate) fn dirty_bytes(&self) -> u64 {
        self.dirty_count.load(Ordering::Relaxed).saturating_mul(u64::from(self.node_size))
    }

    /// Freezes every dirty block: the transaction of `generation` has ended. In address order.
    pub(crate) fn freeze(&self, generation: Generation) -> Vec<DirtyBlock> {
        let mut frozen = HashMap::new();
        for shard in &self.dirty {
            frozen.extend(shard.lock().iter().map(|(logical, block)| (*logical, Arc::clone(block))));
        }
        let mut blocks: Vec<DirtyBlock> =
            frozen.iter().map(|(logical, block)| (*logical, Arc::clone(block))).collect();
        blocks.sort_unstable_by_key(|(logical, _)| *logical);
        *self.frozen.write() = Arc::new(frozen);
        self.frozen_generation.store(generation.0, Ordering::Release);
        for shard in &self.dirty {
            shard.lock().clear();
        }
        self.dirty_count.store(0, Ordering::Relaxed);
        blocks
    }

    /// Replaces the frozen blocks by their sealed forms, which are about to be written: whoever changes one from now on
    /// copies it first, though it is of the running generation.
    pub(crate) fn seal_frozen(&self, sealed: &[Arc<Block>]) {
        let blocks = sealed.iter().map(|block| (block.logical(), Arc::clone(block))).collect();
        *self.frozen.write() = Arc::new(blocks);
    }

    /// Replaces the frozen blocks by their written (checksummed) forms in the clean cache.
    pub(crate) fn thaw(&self, written: impl IntoIterator<Item = Arc<Block>>) {
        for block in written {
            self.insert_clean(block);
        }
        self.frozen_generation.store(0, Ordering::Release);
        *self.frozen.write() = Arc::default();
    }

    #[allow(
        clippy::indexing_slicing,
        clippy::as_conversions,
        clippy::arithmetic_side_effects,
        reason = "the index is reduced below SHARDS, the number of shards"
    )]
    fn shard(&self, logical: Logical) -> &Mutex<ByAddress> {
        let mixed = logical.0.wrapping_mul(0x9e37_79b9_7f4a_7c15);
        &self.dirty[(mixed >> 32) as usize % SHARDS]
    }
}
