//! Bytes to bytes: checksums of blocks and sectors, hashes of names and references, and compression of
//! extents, each exactly as Btrfs defines it.
//!
//! This crate must not know trees, items or devices: it sees slices.
//!
//! This is an inner crate of `vlinder`, the crate to depend on: its interface may change with any release.

#![forbid(unsafe_code)]

pub mod checksum;
pub mod compress;
pub mod heuristic;
pub mod merkle;
pub mod name_hash;
