//! Member devices as one address space: superblock copies, the chunk map, RAID profiles as pure plans, I/O that tries
//! each mirror and repairs the bad ones, and the health of devices.
//!
//! This crate must not know trees: it is *given* chunk items, and asks its callers whether bytes are good.
//!
//! Reading path: [`Volume`] (open, read, write, flush), [`ChunkMap`], [`profile`] (where the bytes of a chunk lie),
//! [`superblock`] (which copy is believed), [`allocation`] (where a new chunk may lie, and how long it is).

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

pub mod allocation;
mod chunk_map;
mod chunk_source;
mod error;
mod gate;
mod health;
mod histories;
mod kept;
mod member;
pub mod profile;
mod read;
mod read_data;
mod sole_writer;
pub mod superblock;
mod volume;
mod ways;
mod write;

pub use chunk_map::{ChunkMap, MappedChunk};
pub use chunk_source::{ChunkSource, MappedBy};
pub use error::{ChunkTreeFault, CopyFailure, CopyFault, VolumeError};
pub use health::{Healing, HealthEvent};
pub use member::{Member, SeedIdentity};
pub use profile::{Profile, StripeRange};
pub use read::{BadCopy, PendingReads, ReadRequest, ReadsInFlight, Verified};
pub use superblock::{FoundSuperblock, OpenRules, SuperblockChoice, scan};
pub use volume::{Access, Geometry, Opened, Volume};
pub use write::{PendingWrites, WriteRequest};

#[cfg(test)]
mod tests;
