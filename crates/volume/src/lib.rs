//! Member devices as one address space: superblock copies, the chunk map, RAID profiles as pure plans, I/O
//! that tries each mirror and repairs the bad ones, and the health of devices.
//!
//! This crate must not know trees: it is *given* chunk items, and asks its callers whether bytes are good.
//!
//! Reading path: [`Volume`] (open, read, write, flush), [`ChunkMap`], [`profile`] (where the bytes of a chunk
//! lie), [`superblock`] (which copy is believed), [`allocation`] (where a new chunk may lie, and how long it
//! is).

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
mod batches;
mod chunk_lookup;
mod chunk_map;
mod chunk_source;
mod error;
mod gate;
mod health;
mod histories;
mod kept;
mod known_primaries;
mod mapped_chunk;
mod member;
mod planned_read;
pub mod profile;
mod read;
mod read_data;
mod request;
pub mod superblock;
mod verified;
mod volume;
mod ways;
mod write;

pub use chunk_map::ChunkMap;
pub use chunk_source::{AddChunk, ChunkSource, MappedBy};
pub use error::{ChunkTreeFault, CopyFailure, CopyFault, VolumeError};
pub use health::{Healing, HealthEvent};
pub use mapped_chunk::MappedChunk;
pub use member::{Member, SeedIdentity};
pub use profile::{Profile, StripeRange};
pub use read::{PendingReads, ReadsInFlight};
pub use request::{ReadRequest, WriteRequest};
pub use superblock::{FoundSuperblock, OpenRules, SuperblockChoice, scan};
pub use verified::{BadCopy, Verified};
pub use volume::{Access, Geometry, Opened, Volume};
pub use write::PendingWrites;

#[cfg(test)]
mod tests;
