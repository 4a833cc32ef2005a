//! A small C interface to the library: open an image, read and write its files.
//! [`include/vlinder.h`](../include/vlinder.h) says what each function does; the functions here are the same
//! ones, seen from Rust.
//!
//! This crate must not know FUSE.
//!
//! A call returns 0 or a number of bytes, or a negative `errno`, whose sentence `vlinder_last_error` gives to
//! the thread that made the call. No panic leaves a call: it becomes `-EIO`, because a C program could not go
//! on after it.
//!
//! # Safety of every function
//! Strings are zero-terminated; buffers hold as many bytes as is said; handles come from this library and
//! were not given back. Nothing here can check that, so every function is `unsafe` to Rust; what each does
//! with its pointers is noted at the places where it does it. Handles may be used by several threads at once,
//! but for the calls that give them back.

mod answer;
mod file;
mod filesystem;

/// As the command's (decision 10); what C programs allocate is not touched.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

pub use answer::vlinder_last_error;
pub use file::{
    VlinderFile, VlinderPart, vlinder_file_close, vlinder_file_open, vlinder_file_read, vlinder_file_size,
    vlinder_file_sync, vlinder_file_truncate, vlinder_file_write, vlinder_file_write_direct,
};
pub use filesystem::{
    VlinderFilesystem, vlinder_close, vlinder_file_size_by_path, vlinder_open, vlinder_remove,
    vlinder_statistic, vlinder_sync,
};
