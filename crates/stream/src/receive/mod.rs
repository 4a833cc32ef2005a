//! Receiving: a stream's commands are applied to a file system that this program has open, whatever user runs
//! it. Owners, devices and attributes are written into the image, and nothing is asked of the host.
//!
//! Reading path: [`Receiver`] (streams and subvolumes), `apply` (a command), `paths` (what a path of a stream
//! may name), `sources` (the subvolumes that snapshots and clones are made from).

mod apply;
mod content;
mod directory_times;
mod error;
mod paths;
mod receiver;
mod sources;

pub use error::ReceiveError;
pub use receiver::{Received, Receiver};
