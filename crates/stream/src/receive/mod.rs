//! Receiving: a stream's commands are applied to a file system that this program has open, whatever user runs
//! it. Owners, devices and attributes are written into the image, and nothing is asked of the host.
//!
//! Reading path: [`Receiver`] (streams and subvolumes), `current` (the subvolume that is being received),
//! `partial` (what an interruption leaves), `apply` (a command), `paths` (what a path of a stream may name),
//! `sources` (the subvolumes that snapshots and clones are made from).

mod apply;
mod candidate;
mod command_hasher;
mod content;
mod current;
mod directory_times;
mod error;
mod held_files;
mod holding;
mod options;
mod outcome;
mod partial;
mod partial_subvolume;
mod paths;
mod receiver;
mod sources;
mod verity;

pub use candidate::{Candidate, SourceChange};
pub use error::ReceiveError;
pub use options::ReceiveOptions;
pub use outcome::{Outcome, Progress, Received, Warning};
pub use partial::{discard, partial_subvolume_names, partial_subvolumes};
pub use partial_subvolume::PartialSubvolume;
pub use receiver::Receiver;
