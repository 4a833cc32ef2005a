//! Making and administering file systems: mkfs today; resize, devices, balance, scrub and repair have their
//! place here.
//!
//! This crate must not know the front ends: no arguments, no terminal, no FUSE.

pub mod mkfs;
