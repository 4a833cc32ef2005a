//! Bytes ↔ values: every structure of the Btrfs on-disk format, one module per item family, and the
//! structural validation of one block.
//!
//! This crate must not know where bytes come from or go to: no I/O, no caches, no errno.
//!
//! This is an inner crate of `vlinder`, the crate to depend on: its interface may change with any release.
//!
//! Reading path: [`types`] (the newtypes), [`key`], [`block`] (one tree block), then the item families.

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

pub mod balance;
pub mod block;
pub mod block_group;
pub mod checksum_item;
pub mod chunk;
pub mod device;
pub mod device_replace;
pub mod device_statistics;
pub mod directory;
pub mod extent;
pub mod fault;
pub mod features;
pub mod fields;
pub mod file_extent;
pub mod free_space;
pub mod inode;
pub mod inode_ref;
pub mod key;
mod layout;
pub mod log;
pub mod orphan;
pub mod quota;
pub mod raid_stripe;
mod record;
pub mod root_item;
pub mod root_ref;
mod rules;
pub mod superblock;
pub mod types;
pub mod uuid_item;
pub mod validate;
pub mod verity;

pub use block::Block;
pub use fault::{Damage, Fault, Place};
pub use key::{ItemType, Key};
pub use record::Reserved;
pub use types::{DeviceId, FileOffset, Generation, Level, Logical, ObjectId, Physical, RootId, Uuid};
