//! All trees of one file system: reading them, and what the committer needs of their changed blocks. How they
//! are changed stands in `edit_batch` and `create`.

use std::ops::RangeInclusive;

use vlinder_base::sync::Arc;
use vlinder_format::{Block, Generation, Key, Logical};

use crate::measure::Measurement;
use crate::readahead::blocks_behind;
use crate::search::{Direction, Position, Search};
use crate::tree_blocks::TreeBlocks;
use crate::{
    BlockSource, Cursor, LeftOut, LookAhead, Measured, Precision, Readahead, Root, Salvage, Shape, Touch,
    TreeError, TreeMetrics, WantedBlock,
};

/// All trees of one file system.
pub struct Trees {
    blocks: TreeBlocks,
}

impl Trees {
    /// Trees whose blocks take at most `cache_bytes` of memory together, as long as the caller commits before
    /// the changed ones of a transaction take a quarter of that.
    pub fn new(source: Arc<dyn BlockSource>, cache_bytes: u64, metrics: TreeMetrics) -> Self {
        Self { blocks: TreeBlocks::new(source, cache_bytes, metrics) }
    }

    /// The blocks of all trees.
    pub(crate) fn blocks(&self) -> &TreeBlocks {
        &self.blocks
    }

    /// Where blocks come from.
    pub fn source(&self) -> &dyn BlockSource {
        self.blocks.source()
    }

    /// What was left out of leaves; none where nothing is ever left out.
    pub fn left_out(&self) -> Option<&LeftOut> {
        self.blocks.left_out()
    }

    /// What the mechanisms of this crate count.
    pub fn metrics(&self) -> &TreeMetrics {
        &self.blocks.metrics
    }

    /// The item of a key.
    ///
    /// # Errors
    /// What reading the path met; what is wrong with the item, if it was [left out](LeftOut).
    pub fn get(&self, root: &Root, key: &Key) -> Result<Option<Position>, TreeError> {
        let position = self.search(root, key, Direction::Exact)?;
        Ok(position.filter(|position| position.key() == *key))
    }

    /// The first item at or after a key. Items that were [left out](LeftOut) are passed by.
    ///
    /// # Errors
    /// What reading the path met.
    pub fn ceiling(&self, root: &Root, key: &Key) -> Result<Option<Position>, TreeError> {
        self.search(root, key, Direction::Ceiling)
    }

    /// The last item at or before a key.
    ///
    /// # Errors
    /// What reading the path met; what is wrong with an item behind the one to give, if it was [left
    /// out](LeftOut): nobody shall take an older or a lower one for it.
    pub fn floor(&self, root: &Root, key: &Key) -> Result<Option<Position>, TreeError> {
        self.search(root, key, Direction::Floor)
    }

    fn search(&self, root: &Root, key: &Key, direction: Direction) -> Result<Option<Position>, TreeError> {
        Search::new(&self.blocks, root, key, direction, Readahead::None).run()
    }

    /// One block, by what its parent says of it: for walks that follow pointers themselves.
    ///
    /// # Errors
    /// What reading it met.
    pub fn block(&self, wanted: &WantedBlock) -> Result<Arc<Block>, TreeError> {
        self.blocks.block(wanted)
    }

    /// A block, if it is in memory.
    pub fn resident(&self, wanted: &WantedBlock) -> Option<Arc<Block>> {
        let block = self.blocks.cache.get(wanted.logical, wanted.generation)?;
        (block.level() == wanted.level && !block.is_empty()).then_some(block)
    }

    /// One block, as [`block`](Self::block) gives it. If it has to be read, blocks that the walk will come to
    /// are read in the same batch: those that `is_wanted` knows to be needed. `path` leads from the root to
    /// the block, each node with the slot that was taken.
    ///
    /// # Errors
    /// What reading the block met; nothing of the others.
    pub fn block_ahead(
        &self,
        wanted: &WantedBlock,
        path: &[(Arc<Block>, usize)],
        ahead: &mut LookAhead,
        is_wanted: impl FnMut(&WantedBlock) -> bool,
    ) -> Result<Arc<Block>, TreeError> {
        let Some(most) = ahead.reach(wanted) else { return self.block(wanted) };
        let resident = |block: &WantedBlock| self.blocks.cache.get(block.logical, block.generation);
        if resident(wanted).is_some() {
            return self.block(wanted);
        }
        let place = (wanted.tree, wanted.level);
        let (behind, seen_to) = blocks_behind(place, path, most, resident, is_wanted);
        ahead.note(wanted.level, seen_to);
        self.blocks.block_with(wanted, &behind)
    }

    /// A cursor at the first item at or after `key`.
    ///
    /// # Errors
    /// What reading the path met.
    pub fn cursor(&self, root: &Arc<Root>, key: &Key, readahead: Readahead) -> Result<Cursor<'_>, TreeError> {
        Cursor::new(&self.blocks, root, key, readahead)
    }

    /// A cursor at the last item at or before a key, if that is `wanted`, as what may reach over the key;
    /// else at the first one behind the key. One look at the tree finds both, unless the leaf ends between
    /// them.
    ///
    /// # Errors
    /// As of [`floor`](Self::floor).
    pub fn cursor_at_or_before(
        &self,
        root: &Arc<Root>,
        key: &Key,
        wanted: impl FnOnce(&Key) -> bool,
    ) -> Result<Cursor<'_>, TreeError> {
        Cursor::at_or_before(&self.blocks, root, key, wanted)
    }

    /// The items of a tree with keys in a range, in order, and the parts of it that can't be read.
    pub fn salvage(&self, root: &Root, range: RangeInclusive<Key>) -> Salvage<'_> {
        Salvage::new(&self.blocks, root, range)
    }

    /// Measures changes of a tree at touched places, which are in order and apart, as the transaction of
    /// `generation` would make them, where blocks up to `last_snapshot` may be shared. A tree that changes
    /// meanwhile may be measured wrong; where no transaction handle is open, it may give an error, too.
    ///
    /// # Errors
    /// What reading the tree met.
    pub fn measure(
        &self,
        root: &Arc<Root>,
        generation: Generation,
        last_snapshot: Generation,
        touches: &[Touch],
        precision: Precision,
    ) -> Result<Measured, TreeError> {
        Measurement::new(&self.blocks, root, generation, last_snapshot, precision).measure(touches)
    }

    /// Where all blocks of a tree lie. Its nodes are read, its leaves are not.
    ///
    /// # Errors
    /// What reading the tree met.
    pub fn shape(&self, root: &Arc<Root>) -> Result<Shape, TreeError> {
        root.read_unlocked(|| Shape::read(&self.blocks, root))
    }

    /// Bytes of blocks that the running transaction has changed.
    pub fn dirty_bytes(&self) -> u64 {
        self.blocks.cache.dirty_bytes()
    }

    /// Forgets a changed block that nothing references any more; it is never written.
    pub fn forget(&self, logical: Logical) {
        self.blocks.cache.forget_dirty(logical);
    }

    /// Freezes every block that the transaction of `generation` changed; gives their addresses, sorted. They
    /// stay readable, and are copied by the next transaction before it changes them. No apply may be under
    /// way.
    pub fn freeze(&self, generation: Generation) -> Vec<Logical> {
        self.blocks.cache.freeze(generation)
    }

    /// The frozen blocks at these addresses.
    pub fn frozen(&self, addresses: &[Logical]) -> Vec<Arc<Block>> {
        self.blocks.cache.frozen(addresses)
    }

    /// Frozen blocks in the form in which they are about to be written. A tree that is written while its
    /// transaction runs (the fsync log) copies such a block before it changes it.
    pub fn seal_frozen(&self, sealed: &[Arc<Block>]) {
        self.blocks.cache.seal_frozen(sealed);
    }

    /// The frozen blocks are on the devices, all in their sealed forms (flag and checksum set): they become
    /// clean.
    pub fn thaw(&self) {
        self.blocks.cache.thaw();
    }

    /// Forgets the frozen blocks: nobody wants to read them again.
    pub fn forget_frozen(&self) {
        self.blocks.cache.forget_frozen();
    }
}
