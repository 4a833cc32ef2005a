//! Sending: a snapshot, or what differs between two, as a stream.
//!
//! Why so: `docs/design/send.md`.
//!
//! Reading path: [`Names`] (what is asked of a state), [`Namespace`] (the names that the receiver has, and
//! the changes that turn the old ones into the new ones), `content` (what is sent of a file), `pipeline`
//! (bytes read and encoded on all processors, in order), [`send`].

mod content;
mod default_lists;
mod error;
mod inode_turn;
mod name_change;
mod namespace;
mod options;
mod paths;
mod pipeline;
mod receiver_names;
mod removals;
mod sender;
mod state;
mod subvolume;
#[cfg(test)]
mod tests;
mod tree_names;

pub use error::SendError;
pub use name_change::NameChange;
pub use namespace::Namespace;
pub use options::{Progress, SendOptions};
pub use sender::{Sending, count_data_bytes, send};
pub use state::{Identity, InodeFacts, Link, Names};
pub(crate) use subvolume::CloneRoot;
pub use subvolume::SentSubvolume;
pub use tree_names::TreeNames;
