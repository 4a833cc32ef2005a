//! `diff`: what is not the same in two subvolumes.

mod object;
mod text;

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::{OsStrExt, OsStringExt};

use clap::Args;
use serde_json::json;
use vlinder_base::sync::Arc;
use vlinder_fs::LeasedState;
use vlinder_places::failure::{ExitStatus, Failure, Kind};
use vlinder_places::image::{ImageArguments, Images};
use vlinder_places::object::{Named, Object};
use vlinder_places::place::image::from_fs;
use vlinder_places::session::Session;
use vlinder_places::target::Target;
use vlinder_places::text::escaped;
use vlinder_snapshots::diff::{
    Change, ChangeKind, ChangeTally, Comparison, ContentFault, DiffError, OldNew, StoredBytesError, diff,
};

/// Show what differs between two snapshots, or other subvolumes, of one file system.
///
/// A line for each file: added, removed, renamed, replaced (another file has its name now), changed, and what
/// of it changed. A directory that was renamed is one line. What both share is not read, so the time goes by
/// what changed; bytes are compared where they lie in different extents, so a file that was written anew with
/// the same bytes has no line. Lines come in the order of inode numbers. Of a mount, and of the image that it
/// holds, the last commit is read (a commit is made first); this is for root and who mounted it.
///
/// Exit status: 0, whether something differs or not.
#[derive(Args, Debug)]
#[command(
    after_help = "Examples:\n  vlinder diff disk.img:/monday :/tuesday\n  vlinder diff --stat /mnt/snapshots/monday /mnt/home\n  \
                  vlinder --json diff --no-times disk.img:/monday :/tuesday | jq -r 'select(.change == \"removed\").path'"
)]
pub struct DiffArguments {
    /// Print only how much differs: numbers of files and directories, and bytes.
    #[arg(long)]
    stat: bool,
    /// Leave out files and directories of which only times changed (access, modification, change). Most of
    /// these are directories in which names came or went.
    #[arg(long)]
    no_times: bool,
    #[command(flatten)]
    images: ImageArguments,
    /// IMAGE:/PATH of a subvolume, or its path on a mounted vlinder: what was.
    old: OsString,
    /// As OLD: what is now. :/PATH is in the image of OLD.
    new: OsString,
}

/// What ended the comparison.
enum ComparisonEnd {
    Diff(DiffError),
    Output(Failure),
    /// Nobody reads any more.
    Unread,
}

impl From<DiffError> for ComparisonEnd {
    fn from(error: DiffError) -> Self {
        Self::Diff(error)
    }
}

/// Runs the verb.
pub fn run(arguments: &DiffArguments, session: &Session) -> Result<ExitStatus, Failure> {
    let images = Images::new(&arguments.images)?.with_dirty_pages();
    let new = in_image_of(&arguments.old, &arguments.new)?;
    let sides = OldNew {
        old: Object::find_in_image(&images, &arguments.old)?,
        new: Object::find_in_image(&images, &new).map_err(|failure| with_image(failure, arguments))?,
    };
    if !Arc::ptr_eq(sides.old.image(), sides.new.image()) {
        let failure = Failure::new(Kind::Invalid, "it is in another file system than the first subvolume");
        return Err(failure.at(sides.new.place()).hint("compare two subvolumes of one file system"));
    }
    let state = sides.old.image().filesystem.lease();
    let state = state.map_err(|error| from_fs(error, &sides.old.image().label))?;
    let mut tally = ChangeTally::default();
    let compared = compare(&sides, &state, |change| {
        let is_of_times = change.kind == ChangeKind::Changed
            && change.differences.times
            && change.added_names.is_empty()
            && change.removed_names.is_empty();
        if arguments.no_times && is_of_times {
            return Ok(());
        }
        tally.add(&change);
        if arguments.stat {
            return Ok(());
        }
        let shown = match session.json {
            true => session.object(object::of_change(&change)),
            false => session.line(text::of_change(&change)),
        };
        shown.map_err(ComparisonEnd::Output)?;
        if session.is_output_closed() { Err(ComparisonEnd::Unread) } else { Ok(()) }
    });
    // A lease that is gone makes worthless what was read, and damage that was met without it is none.
    state.confirm().map_err(|revoked| Failure::new(Kind::Busy, revoked.to_string()).hint("try again"))?;
    images.close()?;
    match compared {
        Ok(()) | Err(ComparisonEnd::Unread) => {}
        Err(ComparisonEnd::Output(failure)) => return Err(failure),
        Err(ComparisonEnd::Diff(error)) => return Err(failure_of(&error, &sides.old)),
    }
    if arguments.stat && session.json {
        session.object(json!({ "summary": object::of_tally(&tally) }))?;
    } else if arguments.stat {
        text::of_tally(&tally).into_iter().try_for_each(|line| session.line(line))?;
    }
    Ok(ExitStatus::Done)
}

/// The second target, where `:/PATH` is in the image of the first.
fn in_image_of(old: &OsStr, new: &OsStr) -> Result<OsString, Failure> {
    if !new.as_bytes().starts_with(b":/") {
        return Ok(new.to_owned());
    }
    match Target::parse(old) {
        Ok(Target::Image { path, .. }) => {
            // The first target ends with its path, so what is before that names the image.
            let image = old.as_bytes().strip_suffix(&path[..]).and_then(|bytes| bytes.strip_suffix(b":"));
            let image = image.unwrap_or_default();
            Ok(OsString::from_vec([image, new.as_bytes()].concat()))
        }
        _ => {
            let failure = Failure::usage("a path without an image goes with a first target in an image");
            Err(failure.hint("give IMAGE:/PATH, or both as paths on a mount"))
        }
    }
}

/// A second target that may have been meant in the image of the first.
fn with_image(failure: Failure, arguments: &DiffArguments) -> Failure {
    let is_of_image = matches!(Target::parse(&arguments.old), Ok(Target::Image { .. }));
    let is_of_host = matches!(Target::parse(&arguments.new), Ok(Target::Host(_)));
    if !is_of_image || !is_of_host || !arguments.new.as_bytes().starts_with(b"/") {
        return failure;
    }
    let path = escaped(arguments.new.as_bytes());
    failure.hint(format!("a path in the image of the first target is written :{path}"))
}

fn compare(
    sides: &OldNew<Named>,
    state: &LeasedState,
    each: impl FnMut(Change) -> Result<(), ComparisonEnd>,
) -> Result<(), ComparisonEnd> {
    let root = |named: &Named| {
        let id = named.subvolume().map_err(ComparisonEnd::Output)?;
        let tree = state.forest().tree(id).map_err(|error| ComparisonEnd::Diff(error.into()))?;
        Ok::<_, ComparisonEnd>(Arc::clone(tree.root()))
    };
    let source = state.content_source();
    let comparison = Comparison {
        forest: state.forest(),
        roots: OldNew { old: root(&sides.old)?, new: root(&sides.new)? },
        source: source.map_err(|error| ComparisonEnd::Output(from_fs(error, sides.old.place())))?,
        no_readahead: sides.old.image().filesystem.options().disabled.send_readahead,
    };
    diff(&comparison, each)
}

fn failure_of(error: &DiffError, named: &Named) -> Failure {
    let text = error.to_string();
    let failure = match error {
        DiffError::Content { fault: ContentFault::Stored(StoredBytesError::Volume(error)), .. } => {
            Failure { message: text, place: None, ..Failure::from(error.clone()) }
        }
        DiffError::Content { fault: ContentFault::UnknownCompression { .. }, .. } => {
            Failure::new(Kind::Unsupported, text).hint("use a newer vlinder, or Linux itself")
        }
        _ => Failure::new(Kind::Corruption, text)
            .hint("keep the image as it is; vlinder check names what is damaged"),
    };
    failure.at(&named.image().label)
}
