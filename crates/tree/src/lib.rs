//! B-trees of copy-on-write blocks: the block cache, search, cursors, and batch changes in two phases (plan
//! and apply).
//!
//! This crate must not know the extent tree, or what any item means: where free addresses come from and who
//! shares a block it asks the [`Space`] trait.
//!
//! Reading path: [`root`] (a tree's handle and its lock), [`search`](Trees::ceiling) (descents in memory; a
//! miss is loaded with no lock held), [`Cursor`], then [`edit`] and `edit_batch`: `plan` → `apply`.

#![cfg_attr(
    not(test),
    deny(
        clippy::indexing_slicing,
        clippy::unwrap_used,
        clippy::expect_used,
        clippy::panic,
        clippy::as_conversions,
        clippy::arithmetic_side_effects
    )
)]

mod address_pool;
mod apply;
pub mod bootstrap;
mod cache;
mod chunk_finder;
mod chunk_tree;
mod commit;
mod create;
mod cursor;
pub mod edit;
mod edit_batch;
mod error;
mod full_leaf;
mod learned;
pub mod lease;
mod left_out;
mod leniency;
mod measure;
mod merge;
mod metrics;
mod plan;
mod readahead;
pub mod root;
mod salvage;
mod search;
mod source;
mod space;
mod split;
mod volume_blocks;

pub use address_pool::AddressPool;
pub use chunk_finder::{FoundChunks, find_chunks};
pub use create::TreeIdentity;
pub use cursor::Cursor;
pub use edit::{Action, Change, Edit};
pub use error::TreeError;
pub use lease::{CommitLease, LeaseRevoked, Leases};
pub use left_out::LeftOut;
pub use measure::{MaybeShared, Measured, Precision, Shape, Touch};
pub use metrics::TreeMetrics;
pub use readahead::Readahead;
pub use root::{Root, RootPointer};
pub use salvage::{Lost, Salvage};
pub use search::Position;
pub use source::{BlockSource, WantedBlock};
pub use space::{ChildReferences, CopyEffect, Sharing, Space};
pub use volume_blocks::VolumeBlocks;

use vlinder_base::sync::Arc;

/// All trees of one file system: their blocks in memory, and where further ones come from.
pub struct Trees {
    cache: cache::BlockCache,
    source: Arc<dyn BlockSource>,
    /// What the source left out of leaves, if it does that.
    left_out: Option<Arc<LeftOut>>,
    metrics: TreeMetrics,
}

impl Trees {
    /// Trees whose blocks take at most `cache_bytes` of memory together, as long as the caller commits before
    /// the changed ones of a transaction take a quarter of that.
    pub fn new(source: Arc<dyn BlockSource>, cache_bytes: u64, metrics: TreeMetrics) -> Self {
        let cache = cache::BlockCache::new(cache_bytes, source.node_size());
        let left_out = source.left_out();
        Self { cache, source, left_out, metrics }
    }

    /// Where blocks come from.
    pub fn source(&self) -> &dyn BlockSource {
        &*self.source
    }

    /// What was left out of leaves; none where nothing is ever left out.
    pub fn left_out(&self) -> Option<&LeftOut> {
        self.left_out.as_deref()
    }

    /// What the mechanisms of this crate count.
    pub fn metrics(&self) -> &TreeMetrics {
        &self.metrics
    }
}
