//! `mv`.

use std::ffi::{OsStr, OsString};

use clap::Args;
use serde_json::json;
use vlinder_format::inode::FileType;
use vlinder_places::devices::Purpose;
use vlinder_places::failure::{ExitStatus, Failure, Kind};
use vlinder_places::image::{ImageArguments, Images};
use vlinder_places::patterns;
use vlinder_places::place::{FileStatus, Location, Renamed};
use vlinder_places::session::Session;
use vlinder_places::tally::Tally;
use vlinder_places::target::Follow;

use super::copy::{Copier, CopyOptions};
use super::destination::{TakenNames, destination};
use super::guards::{locate_name, spare_target};
use super::remove;

/// Move or rename files.
///
/// Where the destination is a directory, the files move into it. A file that exists gives up its name: its
/// further names keep its content. Between images, between subvolumes of one, between an image and the host,
/// and between file systems of the host, everything is copied as by cp -a, made durable, and then removed
/// from where it was; where some of it can't be copied, nothing is removed.
#[derive(Args, Debug)]
#[command(
    override_usage = "vlinder mv [OPTIONS] <SOURCE>... <DESTINATION>",
    after_help = "Examples:\n  vlinder mv disk.img:/a disk.img:/b/\n  vlinder mv disk.img:/var/log ./saved-log"
)]
pub struct MoveArguments {
    /// Leave what the destination has under the same name.
    #[arg(short, long)]
    no_clobber: bool,
    /// Replace what is there, even if it is an image itself; other files are replaced without it too.
    #[arg(short, long, overrides_with = "no_clobber")]
    force: bool,
    /// Take the destination as the new name, even if it is a directory.
    #[arg(short = 'T', long)]
    no_target_directory: bool,
    /// Between file systems: leave out set-id bits and file capabilities.
    #[arg(long = "no-setid")]
    drops_rights: bool,
    /// Between file systems: make device nodes on the host too.
    #[arg(long = "devices")]
    makes_devices: bool,
    /// Tell each file that is moved.
    #[arg(short, long)]
    verbose: bool,
    /// Take `*`, `?` and `[...]` in the paths of images for patterns, unless a file is called just so.
    #[arg(long)]
    glob: bool,
    #[command(flatten)]
    images: ImageArguments,
    /// What to move, and where to.
    #[arg(required = true, num_args = 2.., value_names = ["SOURCE", "DESTINATION"])]
    targets: Vec<OsString>,
}

/// Runs the verb.
pub fn run(arguments: &MoveArguments, session: &Session) -> Result<ExitStatus, Failure> {
    let images = Images::new(&arguments.images)?;
    let Some((to, sources)) = arguments.targets.split_last() else { return Ok(ExitStatus::Done) };
    let mut tally = Tally::default();
    let into = destination(&images, to, sources.len(), arguments.no_target_directory, Follow::No)?;
    let sources = match arguments.glob {
        true => {
            let refuse = &mut |failure| tally.add(Err(failure), session);
            patterns::expand_all(&images, sources, Purpose::Write, refuse)
        }
        false => sources.to_vec(),
    };
    into.takes_so_many(sources.len())?;
    if !into.is_directory && !arguments.no_clobber {
        spare_target(&into.location, arguments.force)?;
    }
    let mut taken = TakenNames::default();
    let copy = CopyOptions::of_move(arguments.drops_rights, arguments.makes_devices);
    let mover = Mover { arguments, images: &images, copier: Copier::new(&copy, session) };
    for source in &sources {
        let result = locate_name(&images, source).and_then(|from| {
            let status = from.status()?;
            into.takes(status.file_type)?;
            if from.name == b"." {
                return Err(Failure::new(Kind::Invalid, "the root, . and .. can't be moved").at(from.place()));
            }
            let target =
                if into.is_directory { into.location.below(&from.name)? } else { into.location.clone() };
            if into.is_directory && !taken.take(&from.name, &from, &status)? {
                return Err(Failure::new(Kind::NotFound, "given more than once").at(from.place()));
            }
            let same = match target.look()? {
                Some(found) if is_one(&from, &status, &target, &found) => Some(SAME_FILE),
                Some(found) if replaces_its_target(&images, source, &status, &target, &found)? => {
                    Some(OWN_TARGET)
                }
                _ => None,
            };
            if let Some((message, hint)) = same {
                if arguments.no_clobber {
                    return Ok(());
                }
                return Err(Failure::new(Kind::Invalid, message).at(target.place()).hint(hint));
            }
            if !mover.go(&from, &status, &target)? {
                return Ok(());
            }
            if arguments.verbose {
                session.tell(format!("{} -> {}", from.place(), target.place()))?;
            }
            Ok(())
        });
        tally.add(result.map_err(|failure| patterns::advise(failure, source)), session);
    }
    images.close()?;
    if session.json {
        session
            .object(json!({ "moved": tally.done(), "failures": tally.failed(), "errors": tally.errors() }))?;
    }
    Ok(tally.ending())
}

/// Moves one source after the other.
struct Mover<'a> {
    arguments: &'a MoveArguments,
    images: &'a Images<'a>,
    /// For what goes to another file system; it remembers which names belong to one file.
    copier: Copier<'a>,
}

impl Mover<'_> {
    /// Moves a file; false where it stays because the destination has the name.
    fn go(&self, from: &Location, status: &FileStatus, target: &Location) -> Result<bool, Failure> {
        if from.directory.origin() != target.directory.origin() {
            return self.across(from, status, target);
        }
        match from.directory.rename(&from.name, target, !self.arguments.no_clobber) {
            Ok(Renamed::Done) => Ok(true),
            Ok(Renamed::Apart) => self.across(from, status, target),
            Err(failure) if self.arguments.no_clobber && failure.kind == Kind::Exists => Ok(false),
            Err(failure) if failure.kind == Kind::Invalid && failure.hint.is_none() => {
                Err(failure.hint("a directory can't be moved into itself"))
            }
            Err(failure) => Err(failure),
        }
    }

    /// Moves a file to another file system or subvolume: a copy, which is durable before the original goes.
    fn across(&self, from: &Location, status: &FileStatus, target: &Location) -> Result<bool, Failure> {
        self.images.refuse_own(from, status)?;
        let is_directory = |status: &FileStatus| status.file_type == FileType::Directory;
        if let Some(existing) = target.look()? {
            if self.arguments.no_clobber {
                return Ok(false);
            }
            if is_directory(status) && is_directory(&existing) {
                // As rename(2): a directory takes the place of an empty one.
                target.directory.remove_directory(&target.name)?;
            }
        }
        let before = self.copier.failures();
        self.copier.copy(from, target)?;
        if self.copier.failures() > before {
            let failure = Failure::new(Kind::Invalid, "not all of it could be copied; it stays where it is");
            return Err(failure
                .at(from.place())
                .hint("remove what can't be copied, or the copy, and move it again"));
        }
        target.directory.sync()?;
        let mut stays = None;
        let removed = remove::remove(from, true, &mut |_, _| Ok(()), &mut |failure| stays = Some(failure));
        match (removed, stays) {
            (Ok(()), None) => Ok(true),
            (Err(failure), _) | (_, Some(failure)) => {
                let message = format!("copied, but not removed here: {}", failure.message);
                Err(Failure { message, ..failure })
            }
        }
    }
}

/// What is said of two names of one file, and what to do.
const SAME_FILE: (&str, &str) = (
    "source and destination are the same file",
    "only if these are two names of it, remove one with vlinder rm",
);
/// What is said where a symbolic link would replace what it leads to, and what to do.
const OWN_TARGET: (&str, &str) = (
    "the source is a symbolic link to this file, which would be lost",
    "give the link another name, or remove the file first with vlinder rm",
);

/// Whether a symbolic link would take the name of the file that it leads to. As in mv(1), a file that has
/// further names may lose the others: the link still leads to one.
fn replaces_its_target(
    images: &Images<'_>,
    source: &OsStr,
    status: &FileStatus,
    to: &Location,
    found: &FileStatus,
) -> Result<bool, Failure> {
    let is_replaced = !matches!(found.file_type, FileType::SymbolicLink | FileType::Directory);
    if status.file_type != FileType::SymbolicLink || !is_replaced {
        return Ok(false);
    }
    // A link that leads nowhere, or where the user may not look, replaces nothing of its own.
    let Ok(referent) = images.locate(source, Purpose::Write, Follow::Yes) else { return Ok(false) };
    let Ok(Some(led_to)) = referent.look() else { return Ok(false) };
    if !is_one(&referent, &led_to, to, found) {
        return Ok(false);
    }
    let is_one_name = referent.name == to.name
        && is_one(&referent, &referent.directory.status(b".")?, to, &to.directory.status(b".")?);
    Ok(found.links <= 1 || is_one_name)
}

/// Whether both are names of one file: of these rename(2) would leave both, and mv must not lose one.
fn is_one(left: &Location, left_status: &FileStatus, right: &Location, right_status: &FileStatus) -> bool {
    let inode = |at: &Location, status: &FileStatus| (at.directory.origin(), status.volume, status.inode);
    inode(left, left_status) == inode(right, right_status)
}
