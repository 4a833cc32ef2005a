//! Space: block groups and what of them is taken, their free ranges, and what is promised of them.
//!
//! This crate must not know transaction handles or what an inode means, nor read a tree: what it has to know
//! of the trees it is told ([`TreeSizes`]) or asks for ([`LookUps`]).
//!
//! This is an inner crate of `vlinder`, the crate to depend on: its interface may change with any release.
//!
//! Reading path: [`Charge`] and its price (what a change may take), [`ReserveAccess`] and [`Wanted`] (how
//! much of the rest a caller may take), `promises` (whether all promises fit together), `groups` (what of a
//! block group is free, reserved, used and pinned), [`SpaceManager`], [`Pins`] and [`Reservations`] (all of
//! that, under one lock), `tickets` (the order of callers that were refused).

mod chains;
mod charge;
mod chosen;
mod demand;
mod free_ranges;
mod group_range;
mod groups;
mod leased;
mod ledger;
mod manager;
#[cfg(test)]
mod neighbours;
mod pinned;
mod pins;
mod promises;
mod removal;
mod report;
mod reservations;
mod ticket_order;
mod tickets;

pub use chains::{ExtentLeaf, ExtentLeaves};
pub use charge::{BLOCK_ITEM_BYTES, Charge, FILE_EXTENT_ITEM_BYTES, INODE_ITEM_BYTES, OwnMoves, TreeSizes};
pub use demand::{Asker, ReserveAccess, ReservedData, Wanted};
pub use free_ranges::FreeRanges;
pub use group_range::GroupRange;
pub use groups::{Group, PURPOSES, Purpose, Taken, TakenPlace};
pub use leased::Needing;
pub use manager::{ChangedGroup, ChunkBeingMade, SpaceManager};
pub use pinned::PinStage;
pub use pins::Pins;
pub use promises::{GlobalReserve, Room, Unallocated};
pub use removal::GroupUse;
pub use report::{ChunkShare, DeviceReport, KindReport, SpaceReport};
pub use reservations::{CountedBlocks, LookUps, Reservations};
pub use tickets::Ticket;
