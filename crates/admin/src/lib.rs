//! Making and administering file systems: mkfs today; resize, devices, balance, scrub and repair have their
//! place here.
//!
//! This crate must not know the front ends: no arguments, no terminal, no FUSE.
//!
//! This is an inner crate of `vlinder`, the crate to depend on: its interface may change with any release.

pub mod mkfs;
