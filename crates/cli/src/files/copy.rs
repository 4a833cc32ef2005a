//! `cp`.
//!
//! Every name is looked up in an open directory and no symbolic link of the destination is followed, so an image can't
//! lead a copy out of the directory that the user named. A regular file appears under its name when it is whole.

mod copier;
mod crew;

use std::ffi::OsString;

use clap::Args;
use serde_json::json;
use vlinder_format::inode::FileType;

use self::copier::Copier;
use crate::failure::{Failure, Kind, Status as Ending};
use crate::image::{Follow, ImageArguments, Images, Purpose};
use crate::place::Location;
use crate::session::Session;

/// Copy files, between the host and images in any direction.
///
/// Where the destination is a directory, the copies go into it. Holes stay holes. A file that exists is replaced when its
/// copy is whole.
#[derive(Args, Debug)]
#[command(
    after_help = "Examples:\n  vlinder cp -a /usr/share/doc disk.img:/\n  vlinder cp disk.img:/etc/fstab .\n  \
                        vlinder cp -r old.img:/home new.img:/"
)]
pub struct Arguments {
    /// Copy directories and what is below them.
    #[arg(short, long, short_alias = 'R')]
    recursive: bool,
    /// As -r, and keep owners, modes, times, extended attributes, ACLs and hard links.
    #[arg(short, long)]
    archive: bool,
    /// Keep owners, modes and times.
    #[arg(short, long)]
    preserve: bool,
    /// Make device nodes on the host too.
    #[arg(long = "devices")]
    makes_devices: bool,
    /// Leave files that exist as they are.
    #[arg(short, long)]
    no_clobber: bool,
    /// Replace what is there, even if it is an image itself; other files are replaced without it too.
    #[arg(short, long, overrides_with = "no_clobber")]
    force: bool,
    /// Take the destination as the copy's name, even if it is a directory.
    #[arg(short = 'T', long)]
    no_target_directory: bool,
    /// Tell each file that is copied.
    #[arg(short = 'v')]
    verbose: bool,
    #[command(flatten)]
    images: ImageArguments,
    /// What to copy, and where to: IMAGE:/PATH or paths of the host.
    #[arg(required = true, num_args = 2.., value_names = ["SOURCE", "DESTINATION"])]
    targets: Vec<OsString>,
}

/// Where copies go.
pub struct Destination {
    /// The directory, or the name.
    pub location: Location,
    /// Whether they go into it under their own names.
    pub is_directory: bool,
}

/// What the last argument of `cp`, `mv` and `ln` means for so many sources.
pub fn destination(
    images: &Images<'_>,
    target: &OsString,
    sources: usize,
    is_name: bool,
) -> Result<Destination, Failure> {
    let location = images.locate(target, Purpose::Write, Follow::Yes)?;
    let is_directory =
        !is_name && location.look()?.is_some_and(|status| status.file_type == FileType::Directory);
    if sources > 1 && !is_directory {
        let failure = Failure::new(Kind::Invalid, "no directory, but there are several sources");
        return Err(failure.at(location.place()).hint("make it with mkdir first"));
    }
    if !is_directory && !is_name && target.as_encoded_bytes().ends_with(b"/") {
        return Err(Failure::new(Kind::NotFound, "no such directory").at(location.place()));
    }
    Ok(Destination { location, is_directory })
}

/// Runs the verb.
pub fn run(arguments: &Arguments, session: &Session) -> Result<Ending, Failure> {
    let Some((to, sources)) = arguments.targets.split_last() else { return Ok(Ending::Done) };
    let images = Images::new(&arguments.images)?;
    // First, so that an image that is both source and destination is opened for writing once.
    let into = destination(&images, to, sources.len(), arguments.no_target_directory)?;
    if !into.is_directory && !arguments.no_clobber {
        super::spare_image(&into.location, arguments.force)?;
    }
    let copier = Copier::new(arguments, session);
    for source in sources {
        let follow = if arguments.recursive || arguments.archive { Follow::No } else { Follow::Yes };
        let result = images.locate(source, Purpose::Read, follow).and_then(|from| {
            let name = match from.name.as_slice() {
                b"." => last_name(source),
                name => name.to_vec(),
            };
            // The content of a directory that has no name of its own (IMAGE:/) goes straight into the destination.
            let target = if into.is_directory && name != b"." {
                into.location.below(&name)?
            } else {
                into.location.clone()
            };
            copier.copy(&from, &target)
        });
        if let Err(failure) = result {
            copier.note(Err(failure));
        }
    }
    let (mut tally, bytes) = copier.end();
    images.close()?;
    if session.json {
        session.object(json!({
            "copied": tally.done,
            "copied_bytes": bytes,
            "failures": tally.failed,
            "errors": tally.errors(),
        }))?;
    }
    Ok(tally.ending())
}

/// The last name of an argument that ends in one; `.` for a root, `.` or `..`.
fn last_name(argument: &OsString) -> Vec<u8> {
    let bytes = argument.as_encoded_bytes();
    let last = bytes.split(|byte| *byte == b'/').rfind(|part| !part.is_empty());
    match last {
        Some(b".." | b".") | None => b".".to_vec(),
        Some(name) if name.ends_with(b":") => b".".to_vec(),
        Some(name) => name.to_vec(),
    }
}
