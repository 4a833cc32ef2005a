//! Which bytes of a file or block device hold a file system: the whole, a partition that a table names, or a
//! range that a user names.
//!
//! This crate must not know how a Btrfs is read: of its superblock it knows where it lies and what marks it.
//!
//! This is an inner crate of `vlinder`, the crate to depend on: its interface may change with any release.
//!
//! Reading path: [`ImageName`] (`disk.raw@2`), [`open()`] (a device over what a name means),
//! [`PartitionTable`] (what a disk is divided into; `gpt` and `mbr` read it), `choice` (the one partition
//! with a Btrfs).

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

mod bytes;
mod choice;
mod error;
mod gpt;
mod kind;
mod mbr;
mod name;
mod open;
mod partition;
mod table;
#[cfg(test)]
mod tests;

pub use error::{OpenError, PartitionError, PartitionErrorKind};
pub use kind::PartitionKind;
pub use name::{ImageName, NamedPart};
pub use open::{ImageIdentity, OpenedImage, identity, open, open_whole, part_bytes, table_on};
pub use partition::{Partition, PartitionFault};
pub use table::{PartitionTable, TableFormat, TableRead};
