//! The file verbs: `ls cat stat tree filemap dedupe cp mv rm mkdir ln`, on paths of the host and in images
//! alike.

mod cat;
mod copy;
mod dedupe;
mod destination;
mod filemap;
mod guards;
mod image_root;
mod list;
mod make;
pub mod mode;
mod remove;
mod rename;
mod show;
mod tree;

use clap::Subcommand;
use vlinder_places::failure::{ExitStatus, Failure};
use vlinder_places::session::Session;

pub use self::make::make_ancestors;

/// The file verbs.
// A verb is described where its arguments are: a comment here would take the place of that description.
#[derive(Subcommand, Debug)]
pub enum FileVerb {
    Ls(list::ListArguments),
    Cat(cat::CatArguments),
    Stat(show::StatArguments),
    Cp(copy::CopyArguments),
    Mv(rename::MoveArguments),
    Rm(remove::RemoveArguments),
    Mkdir(make::DirectoryArguments),
    Ln(make::LinkArguments),
    Tree(tree::TreeArguments),
    Filemap(filemap::FilemapArguments),
    Dedupe(dedupe::DedupeArguments),
}

/// Runs a verb.
pub fn run(verb: &FileVerb, session: &Session) -> Result<ExitStatus, Failure> {
    match verb {
        FileVerb::Ls(arguments) => list::run(arguments, session),
        FileVerb::Cat(arguments) => cat::run(arguments, session),
        FileVerb::Stat(arguments) => show::run(arguments, session),
        FileVerb::Cp(arguments) => copy::run(arguments, session),
        FileVerb::Mv(arguments) => rename::run(arguments, session),
        FileVerb::Rm(arguments) => remove::run(arguments, session),
        FileVerb::Mkdir(arguments) => make::run_directory(arguments, session),
        FileVerb::Ln(arguments) => make::run_link(arguments, session),
        FileVerb::Tree(arguments) => tree::run(arguments, session),
        FileVerb::Filemap(arguments) => filemap::run(arguments, session),
        FileVerb::Dedupe(arguments) => dedupe::run(arguments, session),
    }
}
