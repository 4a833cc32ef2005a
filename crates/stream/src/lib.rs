//! Send and receive: the wire format, the difference of two states, emitting and applying a stream.
//!
//! This crate must not know any front end, nor the host's file system: streams come from readers and go to
//! writers.
//!
//! This is an inner crate of `vlinder`, the crate to depend on: its interface may change with any release.
//!
//! Reading path: [`wire`] (a stream as bytes: commands and their attributes), [`dump`] (as text), [`files`]
//! (as a tree of files), [`send`], [`receive`], [`resume`] (a stream that was interrupted goes on).

pub mod dump;
mod encoded;
pub mod files;
#[cfg(feature = "filesystem")]
pub mod receive;
pub mod resume;
#[cfg(feature = "filesystem")]
pub mod send;
pub mod wire;
