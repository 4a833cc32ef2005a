//! Transactions: the commit, pending items, delayed references, the extent tree, block groups and chunks, the
//! free-space tree, reservations, checksums' items, roots and snapshots.
//!
//! This crate must not know paths or what an inode means, nor talk to a device: it has a volume.
//!
//! This is an inner crate of `vlinder`, the crate to depend on: its interface may change with any release.
//!
//! Reading path: [`Engine`] (what is open), [`Handle`] (how anything is changed), `promises` (the space that
//! is promised for that), `commit` (how it becomes durable), `drain` (the fixpoint), `extents` (what the
//! fixpoint is about).
//!
//! The files stand in four layers.
//!
//! 1. States have their fields and locks to themselves: `phase` (the running transaction), `latch`,
//!    `troubles`, `chunk_work`, `dead_trees`, `fsync_log/writer`, `commit_queues` (with `pending`,
//!    `waiting_work`, `snapshot_charges`, `extents/delayed`), `freed_space`, `system_trees`,
//!    `subvolume_numbers`, `block_balance`, `committer`.
//! 2. Services borrow the states that they work on: `group_loader`, `chunks`, `measuring`, `global_reserve`,
//!    `promises` (`Reserver`), `block_space`, `shutdown`, `reader`.
//! 3. `engine_core` has all states, and lends the services. Handles, the commit, the writer of the log and
//!    the walk over dead trees work on it.
//! 4. `engine` is what other crates call.

mod asking;
mod awaited_items;
mod block_balance;
mod block_space;
mod change_kind;
mod checksums;
mod chunk_items;
mod chunk_work;
mod chunks;
mod commit;
mod commit_price;
mod commit_queues;
mod committer;
mod committing_thread;
#[cfg(test)]
mod copy_tests;
mod data_extent;
mod dead_leaf;
mod dead_trees;
mod drain;
mod editor;
mod engine;
mod engine_core;
mod error;
mod events;
mod extents;
mod free_space_records;
mod free_space_tree;
mod freed_space;
mod fsync_log;
mod global_reserve;
mod group_loader;
mod handle;
mod handle_space;
mod latch;
mod log_roots;
mod measuring;
mod metrics;
mod open;
#[cfg(test)]
mod opening_tests;
mod options;
mod own_moves;
mod participant;
mod pending;
mod phase;
mod promises;
mod quotas;
mod read_only;
mod reader;
mod reservation;
mod sealing;
mod shutdown;
mod snapshot_charges;
mod snapshots;
mod subvolume_numbers;
mod system_trees;
mod tree_deletion;
mod trim;
mod troubles;
mod unpublished;
mod unwinding;
mod uuids;
mod waiting_work;

pub use awaited_items::AwaitedItems;
pub use change_kind::ChangeKind;
pub use data_extent::DataExtent;
pub use dead_trees::DeadTrees;
pub use engine::Engine;
pub use error::{EngineError, METADATA, ReadOnlyReason};
pub use events::{COMMIT_EVENTS, LATCH_EVENTS};
pub use fsync_log::{LogEdit, LogError, LogTicket, NoLog};
pub use handle::Handle;
pub use log_roots::{FsyncLog, SubvolumeLog};
pub use options::{Disabled, EngineOptions, Rescue};
pub use participant::Participant;
pub use promises::DataReservation;
pub use reader::TransactionReader;
pub use reservation::{Reservation, SUBVOLUME_DELETION_LEAVES};
pub use snapshots::{AfterSnapshot, ReservedSnapshot, SnapshotRequest};
pub use trim::{TrimPosition, Trimmed, Trimmer};
pub use troubles::{FailedCommit, Troubles};
pub use vlinder_space::{
    Charge, ChunkShare, DeviceReport, KindReport, Purpose, Reservations, ReserveAccess, ReservedData,
    SpaceReport, Ticket,
};
