//! The family `subvolume`.

mod change;
mod facts;
mod find_new;
mod list;
mod nested;
mod show;

use clap::Subcommand;
use vlinder_places::failure::{ExitStatus, Failure};
use vlinder_places::session::Session;

pub use change::free_blocks;

/// The verbs of `subvolume`.
// A verb is described where its arguments are: a comment here would take the place of that description.
#[derive(Subcommand, Debug)]
pub enum SubvolumeVerb {
    Create(change::CreateArguments),
    Delete(change::DeleteArguments),
    Snapshot(change::SnapshotArguments),
    List(list::SubvolumeListArguments),
    Show(show::SubvolumeShowArguments),
    SetDefault(change::SetDefaultArguments),
    GetDefault(show::GetDefaultArguments),
    Sync(change::SubvolumeSyncArguments),
    FindNew(find_new::FindNewArguments),
}

/// Runs a verb.
pub fn run(verb: &SubvolumeVerb, session: &Session) -> Result<ExitStatus, Failure> {
    match verb {
        SubvolumeVerb::Create(arguments) => change::create(arguments, session),
        SubvolumeVerb::Delete(arguments) => change::delete(arguments, session),
        SubvolumeVerb::Snapshot(arguments) => change::snapshot(arguments, session),
        SubvolumeVerb::List(arguments) => list::run(arguments, session),
        SubvolumeVerb::Show(arguments) => show::run(arguments, session),
        SubvolumeVerb::SetDefault(arguments) => change::set_default(arguments, session),
        SubvolumeVerb::GetDefault(arguments) => show::get_default(arguments, session),
        SubvolumeVerb::Sync(arguments) => change::sync(arguments, session),
        SubvolumeVerb::FindNew(arguments) => find_new::run(arguments, session),
    }
}
