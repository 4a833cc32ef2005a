//! A map from byte ranges to sets of state bits: which parts of a file (or of a device) are dirty, being
//! written, locked and so on. Bits are set, cleared, converted, counted, searched and waited for over ranges.
//!
//! Neighbours with equal bits are one record, bytes without bits have none. A change rewrites the records it
//! touches in place, so that one that only shortens a record at its start or its end allocates, inserts and
//! removes nothing.
//!
//! This crate must not know what the bits mean, nor whose bytes they are.
//!
//! This is an inner crate of `vlinder`, the crate to depend on: its interface may change with any release.

#![forbid(unsafe_code)]

mod bits;
mod error;
mod metrics;
mod range;
mod records;
mod state;

pub use bits::StateBits;
pub use error::{Owner, StateError};
pub use metrics::Metrics;
pub use range::ByteRange;
pub use state::{Change, ExtentState, Found, Options, Position};

#[cfg(all(test, not(feature = "shuttle")))]
mod exhaustive_tests;
#[cfg(all(test, feature = "shuttle"))]
mod model_run;
#[cfg(all(test, not(feature = "shuttle")))]
mod tests;
