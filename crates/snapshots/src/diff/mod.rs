//! What is not the same in two subvolumes of one file system: mostly two snapshots.
//!
//! Why so: `docs/design/diff.md`.
//!
//! Reading path: [`Change`] (what is told), `state` (what is asked of each side), `comparison` (items that
//! differ, gathered by inode), `inode_turn` (one inode in both states), `content` and `parts` (bytes),
//! `subvolume_entries`, [`ChangeTally`].

mod attributes;
mod change;
mod comparison;
mod content;
mod error;
mod inode_turn;
mod parts;
mod state;
mod subvolume_entries;
mod tally;

pub use change::{AttributeChange, AttributeChangeKind, Change, ChangeKind, Differences, OldNew, Subject};
pub use comparison::{Comparison, diff};
pub use error::{ContentFault, DiffError};
pub use tally::{ChangeTally, Counts};
pub use vlinder_data::StoredBytesError;
