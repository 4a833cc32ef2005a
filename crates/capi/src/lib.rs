//! A small C interface to the library.
//!
//! This crate must not know FUSE. The room is empty so far.
