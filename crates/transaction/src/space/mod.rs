//! Space: block groups and what of them is taken, free ranges, the free-space tree, new chunks, reservations.

mod chains;
pub(crate) mod charge;
mod chosen;
mod demand;
pub(crate) mod free_ranges;
pub(crate) mod free_space_tree;
pub(crate) mod groups;
pub(crate) mod leased;
mod manager;
#[cfg(test)]
mod neighbours;
mod promises;
mod removal;
pub(crate) mod report;
mod reservations;
mod tickets;

pub(crate) use chains::{ExtentLeaf, ExtentLeaves};
pub use charge::Charge;
pub(crate) use charge::OwnMoves;
pub(crate) use charge::{BLOCK_ITEM_BYTES, FILE_EXTENT_ITEM_BYTES, INODE_ITEM_BYTES, TreeSizes};
pub(crate) use demand::{Asker, Wanted};
pub use demand::{Draw, PromisedData};
pub use groups::Purpose;
pub(crate) use leased::Needing;
pub(crate) use manager::{ChangedGroup, SpaceManager, Waiting};
pub(crate) use promises::{GlobalReserve, Room, Unallocated};
pub use report::{ChunkShare, DeviceReport, KindReport, SpaceReport};
pub(crate) use reservations::{CountedBlocks, LookUps};
pub use tickets::Ticket;
