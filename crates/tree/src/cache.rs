//! Blocks in memory: clean ones, bounded and forgotten by use; those that the running transaction changes;
//! and the frozen ones that its predecessor is writing. All three share one bound: clean ones make room where
//! many are changed.
//!
//! Invariants:
//! 1. A block of the running generation that is not yet written is in `dirty`, under its address.
//! 2. Frozen blocks never change, but for taking on the form in which they are written (flag and checksum).
//!    They stay until they are written and in the clean cache.
//! 3. A clean block is immutable. Its key is its address *and* generation, so a reused address is another
//!    block.
//!
//! Look-ups go dirty → frozen → clean; each move between them publishes at the destination first.

use std::collections::HashMap;

use vlinder_base::buffers;
use vlinder_base::cache::Cache;
use vlinder_base::sync::atomic::{AtomicU64, Ordering};
use vlinder_base::sync::{Arc, Mutex, RwLock};
use vlinder_format::{Block, Generation, Logical};

const SHARDS: usize = 64;

/// Changed blocks are many from this share of the bound on.
const CROWDED_SHARE: u64 = 16;
/// Blocks that become dirty between one look at how many there are and the next.
const BALANCE_BLOCKS: u64 = 16;

type ByAddress = HashMap<Logical, Arc<Block>>;

pub(crate) struct BlockCache {
    clean: Cache<(Logical, Generation), Arc<Block>>,
    dirty: Box<[Mutex<ByAddress>]>,
    dirty_count: AtomicU64,
    frozen: RwLock<ByAddress>,
    frozen_count: AtomicU64,
    /// Generation of the blocks in `frozen`; 0 while there are none.
    frozen_generation: AtomicU64,
    node_size: u32,
    capacity_bytes: u64,
    /// Whether clean blocks make room for changed ones.
    is_crowded: Mutex<bool>,
}

impl BlockCache {
    /// Blocks of `capacity_bytes` together, as long as dirty and frozen ones are at most half of it.
    pub(crate) fn new(capacity_bytes: u64, node_size: u32) -> Self {
        let clean_bytes = clean_bytes(capacity_bytes, false);
        Self {
            clean: Cache::new(clean_bytes, u64::from(node_size), |_, block: &Arc<Block>| {
                u64::try_from(block.bytes().len()).unwrap_or(u64::MAX)
            }),
            dirty: (0..SHARDS).map(|_| Mutex::new(HashMap::new())).collect(),
            dirty_count: AtomicU64::new(0),
            frozen: RwLock::default(),
            frozen_count: AtomicU64::new(0),
            frozen_generation: AtomicU64::new(0),
            node_size,
            capacity_bytes,
            is_crowded: Mutex::new(false),
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
            let count = self.dirty_count.fetch_add(1, Ordering::Relaxed);
            if count.is_multiple_of(BALANCE_BLOCKS) {
                self.balance();
            }
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

    /// A block that the running transaction has made writable, as it is now. Without it a pointer or an item
    /// would be lost.
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

    /// Freezes every dirty block: the transaction of `generation` has ended. Gives their addresses, sorted.
    pub(crate) fn freeze(&self, generation: Generation) -> Vec<Logical> {
        let mut blocks = HashMap::new();
        for shard in &self.dirty {
            blocks.extend(shard.lock().iter().map(|(logical, block)| (*logical, Arc::clone(block))));
        }
        let mut addresses: Vec<Logical> = blocks.keys().copied().collect();
        addresses.sort_unstable();
        self.frozen_count.store(u64::try_from(blocks.len()).unwrap_or(u64::MAX), Ordering::Relaxed);
        *self.frozen.write() = blocks;
        self.frozen_generation.store(generation.0, Ordering::Release);
        for shard in &self.dirty {
            shard.lock().clear();
        }
        self.dirty_count.store(0, Ordering::Relaxed);
        addresses
    }

    /// The frozen blocks at these addresses.
    pub(crate) fn frozen(&self, addresses: &[Logical]) -> Vec<Arc<Block>> {
        let frozen = self.frozen.read();
        let blocks: Vec<_> = addresses.iter().filter_map(|logical| frozen.get(logical)).cloned().collect();
        assert_eq!(blocks.len(), addresses.len(), "a frozen block is gone before it was written");
        blocks
    }

    /// Replaces frozen blocks by the forms in which they are about to be written. A writer that changes one
    /// from now on copies it first, though it may be of the running generation.
    pub(crate) fn seal_frozen(&self, sealed: &[Arc<Block>]) {
        let mut frozen = self.frozen.write();
        for block in sealed {
            let former = frozen.insert(block.logical(), Arc::clone(block));
            assert!(former.is_some(), "block {} is sealed without being frozen", block.logical());
        }
    }

    /// The frozen blocks are written, all in their sealed forms: they become clean.
    pub(crate) fn thaw(&self) {
        let written: Vec<Arc<Block>> = self.frozen.read().values().map(Arc::clone).collect();
        self.frozen_count.store(0, Ordering::Relaxed);
        self.balance();
        for block in written {
            let key = (block.logical(), block.generation());
            self.insert_clean(block);
            // It was used: who changes it read it before. The cache knows only what has the same key.
            self.clean.get(&key);
        }
        self.forget_frozen();
    }

    /// Forgets the frozen blocks.
    pub(crate) fn forget_frozen(&self) {
        self.frozen_generation.store(0, Ordering::Release);
        *self.frozen.write() = HashMap::new();
        self.frozen_count.store(0, Ordering::Relaxed);
        self.balance();
    }

    /// Halves the room of clean blocks where many are changed, and gives it back where few are.
    fn balance(&self) {
        let count = self
            .dirty_count
            .load(Ordering::Relaxed)
            .saturating_add(self.frozen_count.load(Ordering::Relaxed));
        let crowded = count.saturating_mul(u64::from(self.node_size)) > self.capacity_bytes / CROWDED_SHARE;
        let mut is_crowded = self.is_crowded.lock();
        if *is_crowded != crowded {
            *is_crowded = crowded;
            self.clean.set_capacity_bytes(clean_bytes(self.capacity_bytes, crowded));
        }
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

impl Drop for BlockCache {
    fn drop(&mut self) {
        self.clean.clear();
        self.dirty = Box::default();
        *self.frozen.write() = HashMap::new();
        buffers::release();
    }
}

/// The bound of clean blocks: three quarters of all, or half of that where changed ones are many.
fn clean_bytes(capacity_bytes: u64, is_crowded: bool) -> u64 {
    let most = (capacity_bytes / 4).saturating_mul(3);
    if is_crowded { most / 2 } else { most }
}

#[cfg(test)]
mod tests {
    use vlinder_format::block::BlockIdentity;
    use vlinder_format::{Level, RootId, Uuid};

    use super::*;

    const CAPACITY: u64 = 4 << 20;
    const NODE: u32 = 4096;

    fn block(number: u64, generation: u64) -> Arc<Block> {
        let identity = BlockIdentity {
            logical: Logical(number * u64::from(NODE)),
            generation: Generation(generation),
            owner: RootId::FS_TREE,
            level: Level(0),
            fsid: Uuid::default(),
            chunk_tree_uuid: Uuid::default(),
        };
        Arc::new(Block::new(NODE, &identity))
    }

    #[test]
    fn clean_blocks_make_room_for_changed_ones_and_get_it_back() {
        let cache = BlockCache::new(CAPACITY, NODE);
        let fill = || (0..2000).for_each(|number| cache.insert_clean(block(number, 1)));
        let quarter = CAPACITY / 4 / u64::from(NODE);
        for generation in 2..6 {
            fill();
            assert!(cache.clean.weight_bytes() > CAPACITY / 2, "{}", cache.clean.weight_bytes());
            (0..quarter).for_each(|number| cache.insert_dirty(block(number, generation)));
            assert_eq!(cache.dirty_bytes(), CAPACITY / 4);
            fill();
            assert!(cache.clean.weight_bytes() <= CAPACITY / 8 * 3);
            let addresses = cache.freeze(Generation(generation));
            assert!(addresses.is_sorted() && addresses.len() as u64 == quarter);
            (0..quarter).for_each(|number| cache.insert_dirty(block(number, generation + 1)));
            fill();
            assert!(cache.clean.weight_bytes() <= CAPACITY / 8 * 3);
            for addresses in addresses.chunks(100) {
                cache.seal_frozen(&cache.frozen(addresses));
            }
            cache.thaw();
            (0..quarter).for_each(|number| cache.forget_dirty(Logical(number * u64::from(NODE))));
            let is_there =
                |number: &u64| cache.get(Logical(number * u64::from(NODE)), Generation(generation)).is_some();
            let kept = (0..quarter).filter(is_there).count() as u64;
            // Which ones the cache gives up among so many others is its choice, and differs from run to run.
            assert!(kept > quarter / 2, "{kept} of {quarter}");
            cache.forget_frozen();
        }
    }
}
