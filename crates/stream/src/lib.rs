//! Send and receive: the wire format, the difference of two trees, emitting and applying a stream.
//!
//! This crate must not know any front end. The room is empty so far.
//!
//! This is an inner crate of `vlinder`, the crate to depend on: its interface may change with any release.
