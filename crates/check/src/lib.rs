//! An independent judge of a file system: it reads every tree and reports what is wrong as typed findings.
//!
//! This crate must not know `tree` or `transaction`: a judge that shared their code would share their
//! mistakes. It builds on `format`, `codec`, `volume` and what lies below them.
//!
//! This is an inner crate of `vlinder`, the crate to depend on: its interface may change with any release.
//!
//! What has to agree in two places (a reference and its back reference, a name and the inode that it names)
//! is compared by *fingerprint*: each side adds a keyed hash of every fact to a sum, and equal sums mean
//! equal sets. So a sound file system is judged in one pass and in memory that does not grow with it. Only
//! where sums differ are the facts of the buckets concerned collected in a second pass, and explained. See
//! [`ledger`].
//!
//! Reading path: [`check()`] (the order of the passes), [`finding`] (what can be found), [`walk`] and
//! [`reader`] (how trees are read), [`belongings`] (which items a tree may hold), then one module for each
//! body of rules: [`chunks`], [`extents`], [`free_space`], [`checksums`], [`compressed`], [`roots`],
//! [`subvolume`] (with [`summary`] and [`shared`]), [`quotas`] (with [`usage`], [`root_sets`] and
//! [`owners`]), [`logs`] (with [`logged`]).

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

mod belongings;
mod bitmap;
mod block_head;
mod check;
mod check_state;
mod checked_tree;
mod checksums;
mod chunks;
mod collector;
mod compressed;

mod expected;
mod extent_use;
mod extents;
pub mod faulty;
mod finding;
mod finding_table;
mod free_space;
mod inode;
mod item;
mod judge;
mod ledger;
mod logged;
mod logs;
mod loops;
mod name_fact;
mod names;
mod options;
mod owners;
mod packed;
mod quotas;
mod ranges;
mod reader;
mod references;
mod report;
mod root_name;
mod root_sets;
mod roots;
mod severity;
mod shared;
mod single_item;
mod sorted;
mod store;
mod subvolume;
mod summary;
mod superblocks;
mod usage;
mod uuids;
mod walk;
mod workers;

pub use check::{CheckError, check, check_leased};
pub use finding::FindingKind;
pub use options::Options;
pub use report::{Finding, Report};
pub use severity::Severity;
pub use store::StoreError;
