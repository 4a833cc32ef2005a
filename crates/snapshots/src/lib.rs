//! What snapshots hold: what changed between two of them, and what each holds alone.
//!
//! Everything here reads one committed or leased state, a `Forest`. This crate must not know front ends, and
//! it changes nothing: it has no handles and takes no space.
//!
//! This is an inner crate of `vlinder`, the crate to depend on: its interface may change with any release.

pub mod diff;
mod find_new;
mod names;
pub mod usage;

pub use find_new::{NewExtent, find_new};
pub use names::NamesError;
