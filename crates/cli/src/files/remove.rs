//! `rm`.

use std::ffi::OsString;

use clap::Args;
use serde_json::json;
use vlinder_format::inode::FileType;
use vlinder_places::devices::Purpose;
use vlinder_places::failure::{ExitStatus, Failure, Kind};
use vlinder_places::image::{ImageArguments, Images};
use vlinder_places::patterns;
use vlinder_places::place::{Directory, DirectoryNames, Location, Names};
use vlinder_places::progress::Waiting;
use vlinder_places::session::Session;
use vlinder_places::tally::Tally;

use super::guards::{locate_name, spare_image};

/// Remove files.
///
/// A directory needs -r. Nested subvolumes are removed only where they are empty; others with subvolume
/// delete.
#[derive(Args, Debug)]
#[command(
    after_help = "Examples:\n  vlinder rm -r disk.img:/tmp/old\n  vlinder rm --glob 'disk.img:/var/log/*.gz'"
)]
pub struct RemoveArguments {
    /// Remove directories and what is below them.
    #[arg(short, long, short_alias = 'R')]
    recursive: bool,
    /// It is no error if a file does not exist; a target that is an image itself is removed.
    #[arg(short, long)]
    force: bool,
    /// Tell each name that is removed.
    #[arg(short, long)]
    verbose: bool,
    /// Take `*`, `?` and `[...]` in the paths of images for patterns, unless a file is called just so.
    #[arg(long)]
    glob: bool,
    #[command(flatten)]
    images: ImageArguments,
    /// IMAGE:/PATH or a path of the host.
    #[arg(required = true, value_name = "TARGET")]
    targets: Vec<OsString>,
}

/// Runs the verb.
pub fn run(arguments: &RemoveArguments, session: &Session) -> Result<ExitStatus, Failure> {
    let images = Images::new(&arguments.images)?;
    let (mut tally, mut removed) = (Tally::default(), 0u64);
    let waiting = (!arguments.verbose).then(|| Waiting::new(session, "removing"));
    let targets = match arguments.glob {
        true => {
            let refuse = &mut |failure: Failure| {
                if !(arguments.force && failure.kind == Kind::NotFound) {
                    tally.add(Err(failure), session);
                }
            };
            patterns::expand_all(&images, &arguments.targets, Purpose::Write, refuse)
        }
        false => arguments.targets.clone(),
    };
    for target in &targets {
        let result = locate_name(&images, target).and_then(|location| {
            spare_image(&location, arguments.force)?;
            let mut done = |directory: &Directory, name: &[u8]| {
                removed += 1;
                if !arguments.verbose {
                    return Ok(());
                }
                session.tell(format!("removed {}", directory.place(name)))
            };
            let mut refuse = |failure| tally.add(Err(failure), session);
            remove(&location, arguments.recursive, &mut done, &mut refuse)
        });
        let result = match result {
            Err(failure) if arguments.force && failure.kind == Kind::NotFound => Ok(()),
            other => other.map_err(|failure| patterns::advise(failure, target)),
        };
        tally.add(result, session);
    }
    images.close()?;
    drop(waiting);
    if session.json {
        session
            .object(json!({ "removed": removed, "failures": tally.failed(), "errors": tally.errors() }))?;
    }
    // Of a tree that stays, some may be gone.
    Ok(match tally.ending() {
        ExitStatus::Failed if removed > 0 => ExitStatus::Partial,
        ending => ending,
    })
}

/// Takes a name that was removed, with its directory.
pub type Done<'a> = &'a mut dyn FnMut(&Directory, &[u8]) -> Result<(), Failure>;

/// Removes a file, or a directory with all below it. Gives `done` each removed name with its directory, and
/// `refuse` what stays.
pub fn remove(
    location: &Location,
    recursive: bool,
    done: Done<'_>,
    refuse: &mut dyn FnMut(Failure),
) -> Result<(), Failure> {
    let status = location.status()?;
    if location.name == b"." {
        return Err(Failure::new(Kind::Invalid, "the root, . and .. can't be removed").at(location.place()));
    }
    if status.file_type != FileType::Directory {
        location.directory.unlink(&location.name)?;
        return done(&location.directory, &location.name);
    }
    if !recursive {
        return Err(Failure::new(Kind::Invalid, "a directory")
            .at(location.place())
            .hint("remove it with -r"));
    }
    remove_tree(location, done, refuse)
}

/// A directory that is being emptied.
struct RemoveFrame {
    directory: Directory,
    entries: Names,
    name: Vec<u8>,
    /// Something in it stays, and so does the directory.
    stays: bool,
}

fn remove_tree(location: &Location, done: Done<'_>, refuse: &mut dyn FnMut(Failure)) -> Result<(), Failure> {
    let mut open = |directory: &Directory, name: &[u8]| -> Result<RemoveFrame, Failure> {
        let directory = directory.enter(name)?;
        let DirectoryNames { entries, refused } = directory.list()?;
        let stays = !refused.is_empty();
        refused.into_iter().for_each(&mut *refuse);
        Ok(RemoveFrame { directory, entries, name: name.to_vec(), stays })
    };
    let mut frames = vec![open(&location.directory, &location.name)?];
    while let Some(frame) = frames.last_mut() {
        if let Some(entry) = frame.entries.next() {
            if frame.directory.status(&entry.name)?.file_type == FileType::Directory {
                let below = open(&frame.directory, &entry.name)?;
                frames.push(below);
            } else {
                frame.directory.unlink(&entry.name)?;
                done(&frame.directory, &entry.name)?;
            }
            continue;
        }
        let Some(RemoveFrame { name, stays, .. }) = frames.pop() else { break };
        if stays {
            let Some(above) = frames.last_mut() else {
                let failure = Failure::new(Kind::Corruption, "it stays: a name in it can't be removed");
                return Err(failure.at(location.place()));
            };
            above.stays = true;
            continue;
        }
        let parent = frames.last().map_or(&location.directory, |frame| &frame.directory);
        parent.remove_directory(&name)?;
        done(parent, &name)?;
    }
    Ok(())
}
