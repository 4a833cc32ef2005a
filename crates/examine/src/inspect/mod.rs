//! The family `inspect-internal`: what lies on disk, as text.
//!
//! Reading path: [`blocks`] (reading single blocks of a file system that may be damaged), [`walk`] (the
//! blocks of one tree), [`chunks`] (where they lie), [`block_text`] → [`items`] (the words), then one module
//! for each verb.

mod block_text;
mod blocks;
mod chunks;
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
use vlinder_places::failure::{ExitStatus, Failure};
use vlinder_places::session::Session;

/// The verbs of `inspect-internal`.
// A verb is described where its arguments are: a comment here would take the place of that description.
#[expect(missing_docs, reason = "clap would show the comment in place of the arguments' own")]
#[derive(Subcommand, Debug)]
pub enum InspectVerb {
    DumpSuper(dump_super::DumpSuperArguments),
    DumpTree(dump_tree::DumpTreeArguments),
    Rootid(lookup::RootidArguments),
    InodeResolve(lookup::InodeResolveArguments),
    LogicalResolve(logical_resolve::LogicalResolveArguments),
    TreeStats(tree_stats::TreeStatsArguments),
}

/// Runs a verb.
///
/// # Errors
/// Where the image can't be opened or what was asked for can't be read, or standard output can't be written.
pub fn run(verb: &InspectVerb, session: &Session) -> Result<ExitStatus, Failure> {
    match verb {
        InspectVerb::DumpSuper(arguments) => dump_super::run(arguments, session),
        InspectVerb::DumpTree(arguments) => dump_tree::run(arguments, session),
        InspectVerb::Rootid(arguments) => lookup::rootid(arguments, session),
        InspectVerb::InodeResolve(arguments) => lookup::inode_resolve(arguments, session),
        InspectVerb::LogicalResolve(arguments) => logical_resolve::run(arguments, session),
        InspectVerb::TreeStats(arguments) => tree_stats::run(arguments, session),
    }
}
