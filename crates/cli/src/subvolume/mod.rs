//! The family `subvolume`.

mod change;
mod list;
mod show;

use clap::Subcommand;
use vlinder_base::sync::Arc;
use vlinder_format::{RootId, Uuid};
use vlinder_fs::{FsError, Inode, SubvolumeInformation};

use crate::failure::{Failure, Kind, Status as Ending};
use crate::place::image::{ImageDirectory, OpenImage, from_fs};
use crate::session::Session;

/// The verbs of `subvolume`.
// A verb is described where its arguments are: a comment here would take the place of that description.
#[derive(Subcommand, Debug)]
pub enum Verb {
    Create(change::CreateArguments),
    Delete(change::DeleteArguments),
    Snapshot(change::SnapshotArguments),
    List(list::Arguments),
    Show(show::Arguments),
    SetDefault(change::SetDefaultArguments),
    GetDefault(show::GetDefaultArguments),
    Sync(change::SyncArguments),
}

/// Runs a verb.
pub fn run(verb: &Verb, session: &Session) -> Result<Ending, Failure> {
    match verb {
        Verb::Create(arguments) => change::create(arguments, session),
        Verb::Delete(arguments) => change::delete(arguments, session),
        Verb::Snapshot(arguments) => change::snapshot(arguments, session),
        Verb::List(arguments) => list::run(arguments, session),
        Verb::Show(arguments) => show::run(arguments, session),
        Verb::SetDefault(arguments) => change::set_default(arguments, session),
        Verb::GetDefault(arguments) => show::get_default(arguments, session),
        Verb::Sync(arguments) => change::sync(arguments, session),
    }
}

/// A name in an opened image, and the file that has it.
pub struct Named {
    /// The directory.
    pub directory: ImageDirectory,
    /// The name; `.` for the directory itself.
    pub name: Vec<u8>,
}

impl Named {
    /// The image.
    pub fn image(&self) -> &Arc<OpenImage> {
        self.directory.image()
    }

    /// The file.
    pub fn inode(&self) -> Result<Arc<Inode>, Failure> {
        self.directory.lookup(&self.name)
    }

    /// In messages.
    pub fn place(&self) -> String {
        self.directory.place(&self.name)
    }

    /// The subvolume whose root directory this is.
    pub fn subvolume(&self) -> Result<RootId, Failure> {
        let id = self.inode()?.id();
        if id.is_subvolume_root() {
            return Ok(id.root);
        }
        Err(Failure::new(Kind::Invalid, "not a subvolume")
            .at(self.place())
            .hint("list them with subvolume list"))
    }
}

/// What is known of a subvolume.
pub fn information(image: &OpenImage, root: RootId) -> Result<SubvolumeInformation, Failure> {
    image.filesystem.subvolume_information(root).map_err(|error| of_subvolume(error, root, &image.label))
}

/// What went wrong with a subvolume that was given by its number.
fn of_subvolume(error: FsError, root: RootId, label: &str) -> Failure {
    let failure = from_fs(error, format!("{label}: subvolume {root}"));
    if failure.kind == Kind::NotFound { list::missing(&root.to_string()).at(label) } else { failure }
}

/// The number of the subvolume that holds a subvolume's name; 0 for the top level.
pub fn parent(information: &SubvolumeInformation) -> u64 {
    information.parent.map_or(0, |parent| parent.root.0)
}

/// A UUID, or `-` for none.
pub fn uuid_or_dash(uuid: Uuid) -> String {
    if uuid.is_nil() { "-".to_owned() } else { uuid.to_string() }
}
