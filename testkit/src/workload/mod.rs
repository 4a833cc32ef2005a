//! Seeded random workloads over everything that a Btrfs file system offers, and a plain model of what must be
//! seen after each of their operations.
//!
//! [`Generator`] chooses [`Operation`]s, somebody else carries them out, and [`Model`] says what must have
//! come of it: whether the operation succeeds, and afterwards every name, attribute and byte. The model knows
//! POSIX and Btrfs from their manuals; it shares no code with the engine.

mod choice;
mod content;
mod generator;
mod histogram;
mod model;
mod names;
mod node_kind;
mod operation;

pub use choice::Choice;
pub use content::{Content, PAGE_BYTES, Pattern};
pub use generator::{Generator, Limits};
pub use histogram::Histogram;
pub use model::{FileId, Mismatch, Model, NameTarget, Node, Outcome, Seen, SubvolumeModel};
#[cfg(feature = "engine")]
pub(crate) use model::{ROOT_DIRECTORY, TOP_LEVEL};
pub use names::colliding;
pub use node_kind::NodeKind;
pub use operation::{AllocateMode, OpenSlot, Operation, Place, RenameMode, SetMode, Token, is_deletion};

#[cfg(test)]
mod tests;
