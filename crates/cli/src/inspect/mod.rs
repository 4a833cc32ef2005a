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
// A verb is described where its arguments are: a comment here would take the place of that description.
#[derive(Subcommand, Debug)]
pub enum Verb {
    DumpSuper(dump_super::Arguments),
    DumpTree(dump_tree::Arguments),
    Rootid(lookup::RootidArguments),
    InodeResolve(lookup::InodeResolveArguments),
    LogicalResolve(logical_resolve::Arguments),
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
