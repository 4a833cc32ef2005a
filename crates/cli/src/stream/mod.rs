//! The family `stream`: streams of `btrfs send` in files, read without any Btrfs and without root.

mod cat;
pub mod dump;
mod extract;
mod inputs;
mod list;
mod outcome;
mod verify;

use clap::Subcommand;
use vlinder_places::failure::{ExitStatus, Failure};
use vlinder_places::session::Session;

/// The verbs of `stream`.
// A verb is described where its arguments are: a comment here would take the place of that description.
#[derive(Subcommand, Debug)]
pub enum StreamVerb {
    Ls(list::StreamListArguments),
    Cat(cat::StreamCatArguments),
    Extract(extract::ExtractArguments),
    Verify(verify::VerifyArguments),
    Dump(dump::StreamDumpArguments),
}

/// Runs a verb.
pub fn run(verb: &StreamVerb, session: &Session) -> Result<ExitStatus, Failure> {
    match verb {
        StreamVerb::Ls(arguments) => list::run(arguments, session),
        StreamVerb::Cat(arguments) => cat::run(arguments, session),
        StreamVerb::Extract(arguments) => extract::run(arguments, session),
        StreamVerb::Verify(arguments) => verify::run(arguments, session),
        StreamVerb::Dump(arguments) => dump::run(arguments, session),
    }
}
