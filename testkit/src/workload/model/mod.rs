//! The reference model: every subvolume as a plain map of inodes.
//!
//! [`node`] holds what is known of an inode, [`tree`] all of them; [`state`] adds tokens, open files and the
//! operation under way. Each family of operations is a type of its own above that, [`apply`] chooses among
//! them, and [`reference_model`] is what the rest of the test kit sees.

mod acl;
mod apply;
mod attributes;
mod data;
mod names;
mod node;
mod open_files;
mod reference_model;
mod rename;
mod render;
mod state;
mod subvolumes;
mod tokens;
mod tree;

pub(crate) use node::flag;
pub use node::{FileId, NameTarget, Node, Seen};
#[cfg(feature = "engine")]
pub(crate) use node::{ROOT_DIRECTORY, TOP_LEVEL};
pub use reference_model::{Mismatch, Model, Outcome};
pub use tree::SubvolumeModel;
