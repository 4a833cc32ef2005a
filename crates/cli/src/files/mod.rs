//! The file verbs: `ls cat stat tree filemap cp mv rm mkdir ln`, on paths of the host and in images alike.

mod cat;
mod copy;
mod filemap;
mod list;
mod make;
mod mode;
mod remove;
mod rename;
mod show;
mod tree;

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use clap::Subcommand;
use serde_json::Value;
use vlinder_format::inode::FileType;

use crate::failure::{Failure, Kind, Status as Ending};
use crate::image::{Follow, Images, Purpose};
use crate::place::{Directory, Location, host};
use crate::report;
use crate::session::Session;
use crate::target::{Target, meant_in_image};

/// The file verbs.
// A verb is described where its arguments are: a comment here would take the place of that description.
#[derive(Subcommand, Debug)]
pub enum Verb {
    Ls(list::Arguments),
    Cat(cat::Arguments),
    Stat(show::Arguments),
    Cp(copy::Arguments),
    Mv(rename::Arguments),
    Rm(remove::Arguments),
    Mkdir(make::DirectoryArguments),
    Ln(make::LinkArguments),
    Tree(tree::Arguments),
    Filemap(filemap::Arguments),
}

/// Runs a verb.
pub fn run(verb: &Verb, session: &Session) -> Result<Ending, Failure> {
    match verb {
        Verb::Ls(arguments) => list::run(arguments, session),
        Verb::Cat(arguments) => cat::run(arguments, session),
        Verb::Stat(arguments) => show::run(arguments, session),
        Verb::Cp(arguments) => copy::run(arguments, session),
        Verb::Mv(arguments) => rename::run(arguments, session),
        Verb::Rm(arguments) => remove::run(arguments, session),
        Verb::Mkdir(arguments) => make::run_directory(arguments, session),
        Verb::Ln(arguments) => make::run_link(arguments, session),
        Verb::Tree(arguments) => tree::run(arguments, session),
        Verb::Filemap(arguments) => filemap::run(arguments, session),
    }
}

/// The location of a name that is to be removed or moved. With a slash behind it, it has to be a directory's: what a symbolic
/// link leads to has another name, by which it can be removed.
fn locate_name(images: &Images<'_>, target: &OsStr) -> Result<Location, Failure> {
    let bytes = target.as_bytes();
    let name = &bytes[..bytes.len() - trailing_slashes(bytes)];
    // Without its slash the root would be no path in an image any more.
    if name.len() < bytes.len() && !name.is_empty() && !name.ends_with(b":") {
        let location = images.locate(OsStr::from_bytes(name), Purpose::Write, Follow::No)?;
        if location.look()?.is_some_and(|status| status.file_type != FileType::Directory) {
            return Err(Failure::new(Kind::Invalid, "not a directory")
                .at(location.place())
                .hint("leave out the slash behind it to name the file or symbolic link itself"));
        }
    }
    images.locate(target, Purpose::Write, Follow::No)
}

fn trailing_slashes(name: &[u8]) -> usize {
    name.iter().rev().take_while(|byte| **byte == b'/').count()
}

/// As [`spare_image`], for the target of a file. Refuses as well to make a file `disk.img:name` beside an image `disk.img`,
/// for that is how a path in it is often written.
fn spare_target(location: &Location, forced: bool) -> Result<(), Failure> {
    spare_image(location, forced)?;
    if forced {
        return Ok(());
    }
    refuse_slip(location).map_err(|failure| {
        let hint = failure.hint.clone().unwrap_or_default();
        failure.hint(format!("{hint}; if the file is meant, give -f"))
    })
}

/// Refuses to make `disk.img:name` beside an image `disk.img`.
fn refuse_slip(location: &Location) -> Result<(), Failure> {
    if location.directory.is_image() {
        return Ok(());
    }
    let place = location.place();
    let Some(target @ Target::Image { image, .. }) = &meant_in_image(Path::new(&place)) else {
        return Ok(());
    };
    let found = host::locate(image, true)?;
    let is_image = match &found.directory {
        Directory::Host(directory) => directory.is_image(&found.name)?,
        Directory::Image(_) => false,
    };
    if !is_image || location.look()?.is_some() {
        return Ok(());
    }
    let failure = Failure::new(Kind::Invalid, "it would be a file or directory of the host").at(place);
    Err(failure.hint(format!("a path in the image is written {target}")))
}

/// Refuses to replace or remove a file of the host that is an image by itself: who names it mostly forgot the `:/` behind
/// it, and would lose all that is in it.
fn spare_image(location: &Location, forced: bool) -> Result<(), Failure> {
    let Directory::Host(directory) = &location.directory else { return Ok(()) };
    if forced || !directory.is_image(&location.name)? {
        return Ok(());
    }
    let place = location.place();
    let hint = format!("a path in it is written {place}:/PATH; if the image itself is meant, give -f");
    Err(Failure::new(Kind::Exists, "it holds a Btrfs file system, all of which would be lost")
        .at(place)
        .hint(hint))
}

/// Counts how several things ended.
#[derive(Default)]
pub struct Tally {
    done: u64,
    failed: u64,
    /// For JSON.
    errors: Vec<Value>,
    /// A target that names nothing was given.
    has_nonsense: bool,
}

impl Tally {
    /// Counts one; a failure is told at once.
    pub fn add(&mut self, result: Result<(), Failure>, session: &Session) {
        match result {
            Ok(()) => self.done += 1,
            Err(failure) => {
                self.failed += 1;
                self.has_nonsense |= failure.kind == Kind::Usage;
                session.complain(&failure);
                if session.json {
                    self.errors.push(report::error_fields(&failure));
                }
            }
        }
    }

    /// What failed, in a verb's JSON object.
    pub fn errors(&mut self) -> Vec<Value> {
        std::mem::take(&mut self.errors)
    }

    /// How many failed.
    pub const fn failed(&self) -> u64 {
        self.failed
    }

    /// How the verb ends.
    pub fn ending(&self) -> Ending {
        match (self.done, self.failed) {
            (_, 0) => Ending::Done,
            (0, _) if self.has_nonsense => Ending::Usage,
            (0, _) => Ending::Failed,
            _ => Ending::Partial,
        }
    }
}
