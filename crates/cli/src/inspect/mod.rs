//! The family `inspect-internal`: what lies on disk, as text.
//!
//! Reading path: [`blocks`] (reading single blocks of a file system that may be damaged), [`walk`] (the blocks of one
//! tree), [`block_text`] → [`items`] (the words), then one module for each verb.

mod block_text;
mod blocks;
mod dump_super;
mod dump_tree;
mod items;
mod keys;
mod logical_resolve;
mod lookup;
mod text;
mod tree_stats;
mod walk;

use clap::Subcommand;

use crate::failure::{Failure, Status};
use crate::session::Session;

pub use keys::parse_number;
pub use text::local_time;

/// The verbs of `inspect-internal`.
#[derive(Subcommand, Debug)]
pub enum Verb {
    /// Print superblocks as text.
    DumpSuper(dump_super::Arguments),
    /// Print the trees of an image as text.
    DumpTree(dump_tree::Arguments),
    /// Print the number of the subvolume that a path lies in.
    Rootid(lookup::RootidArguments),
    /// Print all names of an inode.
    InodeResolve(lookup::InodeResolveArguments),
    /// Print the files that show the data at an address.
    LogicalResolve(logical_resolve::Arguments),
    /// Print how the blocks of each tree lie.
    TreeStats(tree_stats::Arguments),
}

/// Runs a verb.
pub fn run(verb: &Verb, session: &Session) -> Result<Status, Failure> {
    match verb {
        Verb::DumpSuper(arguments) => dump_super::run(arguments, session),
        Verb::DumpTree(arguments) => dump_tree::run(arguments, session),
        Verb::Rootid(arguments) => lookup::rootid(arguments, session),
        Verb::InodeResolve(arguments) => lookup::inode_resolve(arguments, session),
        Verb::LogicalResolve(arguments) => logical_resolve::run(arguments, session),
        Verb::TreeStats(arguments) => tree_stats::run(arguments, session),
    }
}
