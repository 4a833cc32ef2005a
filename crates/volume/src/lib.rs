//! Member devices as one address space: superblock copies, the chunk map, RAID profiles as pure plans, I/O
//! that tries each mirror and repairs the bad ones, and the health of devices.
//!
//! This crate must not know trees: it is *given* chunk items, and asks its callers whether bytes are good.
//!
//! This is an inner crate of `vlinder`, the crate to depend on: its interface may change with any release.
//!
//! Reading path: [`Volume`] (open, read, write, flush), [`Members`], [`ChunkMap`], [`profile`] (where the
//! bytes of a chunk lie), `copies` (what is read where one is bad, and rewritten), `one_reconstruction` (each
//! by itself, for a scrub), [`superblock`] (which copy is believed), `publication` (a commit's superblocks),
//! [`allocation`] (where a new chunk may lie, and how long it is).

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
mod copies;
mod error;
mod geometry;
mod health;
mod histories;
mod known_primaries;
mod mapped_chunk;
mod member;
mod members;
mod memory_overlay;
mod one_reconstruction;
mod opening;
mod planned_read;
pub mod profile;
mod publication;
mod read;
mod read_data;
mod repair_gate;
mod request;
pub mod superblock;
mod verified;
mod volume;
mod write;

pub use chunk_map::ChunkMap;
pub use chunk_source::{AddChunk, ChunkSource, MappedBy};
pub use error::{ChunkTreeFault, CopyFailure, CopyFault, VolumeError};
pub use geometry::Geometry;
pub use health::{Healing, HealthEvent};
pub use histories::refuse_two_histories;
pub use mapped_chunk::MappedChunk;
pub use member::{Member, SeedIdentity};
pub use members::Members;
pub use one_reconstruction::{Reconstructions, Replacement};
pub use profile::{StripeRange, WritePlan, WriteRole};
pub use read::{PendingReads, ReadsInFlight};
pub use request::{ReadRequest, WriteRequest};
pub use superblock::{FoundSuperblock, OpenRules, SuperblockChoice, scan};
pub use verified::{BadCopy, Verified};
pub use vlinder_format::chunk::Profile;
pub use volume::{Access, Opened, Volume};
pub use write::{Discarded, PendingWrites};

#[cfg(test)]
mod tests;
