//! B-trees of copy-on-write blocks: the block cache, search, cursors, and batch changes in two phases (plan
//! and apply).
//!
//! This crate must not know the extent tree, or what any item means: where free addresses come from and who
//! shares a block it asks the [`Space`] trait.
//!
//! This is an inner crate of `vlinder`, the crate to depend on: its interface may change with any release.
//!
//! Reading path: [`Trees`], `tree_blocks` (blocks in memory, and loading further ones), [`root`] (a tree's
//! handle and its lock), `search` (descents in memory; a miss is loaded with no lock held), [`Cursor`], then
//! [`edit`] and `edit_batch`: `plan` → `apply`.

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
mod tree_blocks;
mod trees;
mod volume_blocks;
mod wanted;

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
pub use readahead::{LookAhead, Readahead};
pub use root::{Root, RootPointer};
pub use salvage::{Lost, Salvage};
pub use search::Position;
pub use source::BlockSource;
pub use space::{ChildReferences, CopyEffect, Sharing, Space};
pub use trees::Trees;
pub use volume_blocks::VolumeBlocks;
pub use wanted::WantedBlock;
