//! Send and receive: the wire format, the difference of two trees, emitting and applying a stream.
//!
//! This crate must not know any front end. The room is empty so far.
