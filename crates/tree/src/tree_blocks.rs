//! The blocks of all trees: those in memory, and where further ones come from.

use std::collections::HashMap;

use vlinder_base::sync::Arc;
use vlinder_format::{Block, Key, Logical};

use crate::cache::BlockCache;
use crate::wanted::{span_of, verify};
use crate::{BlockSource, LeftOut, TreeError, TreeMetrics, WantedBlock};

/// Blocks that one operation loaded or plans with, kept until it is done: so a small cache cannot starve it,
/// and whatever others bring into the cache meanwhile cannot drive out what a plan relies on.
#[derive(Default)]
pub(crate) struct Pins(HashMap<Logical, Arc<Block>>);

impl Pins {
    fn get(&self, wanted: &WantedBlock) -> Option<Arc<Block>> {
        self.0.get(&wanted.logical).filter(|block| block.generation() == wanted.generation).map(Arc::clone)
    }

    /// Keeps a block.
    pub(crate) fn hold(&mut self, block: &Arc<Block>) {
        self.0.insert(block.logical(), Arc::clone(block));
    }
}

/// The blocks of all trees of one file system.
pub(crate) struct TreeBlocks {
    pub(crate) cache: BlockCache,
    pub(crate) metrics: TreeMetrics,
    source: Arc<dyn BlockSource>,
    /// What the source left out of leaves, if it does that.
    left_out: Option<Arc<LeftOut>>,
}

impl TreeBlocks {
    /// Blocks of this source, which take at most `cache_bytes` of memory together.
    pub(crate) fn new(source: Arc<dyn BlockSource>, cache_bytes: u64, metrics: TreeMetrics) -> Self {
        let cache = BlockCache::new(cache_bytes, source.node_size());
        let left_out = source.left_out();
        Self { cache, metrics, source, left_out }
    }

    /// Where blocks come from.
    pub(crate) fn source(&self) -> &dyn BlockSource {
        &*self.source
    }

    /// What was left out of leaves; none where nothing is ever left out.
    pub(crate) fn left_out(&self) -> Option<&LeftOut> {
        self.left_out.as_deref()
    }

    /// One block, by what its parent says of it: for walks that follow pointers themselves.
    ///
    /// # Errors
    /// What reading it met.
    pub(crate) fn block(&self, wanted: &WantedBlock) -> Result<Arc<Block>, TreeError> {
        self.block_with(wanted, &[])
    }

    /// One block; if it has to be read, others are read in the same batch.
    ///
    /// # Errors
    /// What reading it met; nothing of the others.
    pub(crate) fn block_with(
        &self,
        wanted: &WantedBlock,
        others: &[WantedBlock],
    ) -> Result<Arc<Block>, TreeError> {
        let mut pins = Pins::default();
        if let Some(block) = self.resident(wanted, &pins)? {
            return Ok(block);
        }
        let batch: Vec<WantedBlock> = std::iter::once(wanted).chain(others).copied().collect();
        self.load(&batch, &mut pins)?;
        match pins.get(wanted) {
            Some(block) => Ok(block),
            None => {
                Err(TreeError::Unsettled { root: wanted.tree, key: wanted.first_key.unwrap_or_default() })
            }
        }
    }

    /// The block, if it is in memory; verified against what its parent says, hit or miss.
    pub(crate) fn resident(
        &self,
        wanted: &WantedBlock,
        pins: &Pins,
    ) -> Result<Option<Arc<Block>>, TreeError> {
        let found = self.cache.get(wanted.logical, wanted.generation).or_else(|| pins.get(wanted));
        if let Some(block) = &found {
            verify(block, self.span(block), wanted)?;
        }
        Ok(found)
    }

    /// The first and the last key that a block has on disk; none if it is empty.
    pub(crate) fn span(&self, block: &Block) -> Option<(Key, Key)> {
        match &self.left_out {
            Some(left_out) if block.is_leaf() => left_out.span(block),
            _ => span_of(block),
        }
    }

    /// Reads blocks into the cache and pins them. The first one is needed; the others are read ahead.
    pub(crate) fn load(&self, wanted: &[WantedBlock], pins: &mut Pins) -> Result<(), TreeError> {
        self.metrics.blocks_read.add(u64::try_from(wanted.len()).unwrap_or(u64::MAX));
        // In the order of addresses: a disk sorts no more than its queue holds.
        let mut batch = wanted.to_vec();
        batch.sort_by_key(|block| block.logical);
        let needed = wanted.first().map(|block| block.logical);
        let mut first_error = None;
        for (block, result) in batch.iter().zip(self.source.read(&batch)) {
            match result {
                Ok(block) => {
                    self.cache.insert_clean(Arc::clone(&block));
                    pins.hold(&block);
                }
                // Only the block that is needed may fail the search; what was read ahead is met later, or
                // never.
                Err(error) if Some(block.logical) == needed => first_error = Some(error),
                Err(_) => {}
            }
        }
        first_error.map_or(Ok(()), Err)
    }
}
