//! `cp`.
//!
//! Every name is looked up in an open directory and no symbolic link of the destination is followed, so an
//! image can't lead a copy out of the directory that the user named. A regular file appears under its name
//! when it is whole.

mod copier;
mod crew;
mod options;
mod same_file;
mod streams;

use std::ffi::{OsStr, OsString};

use clap::Args;
use serde_json::json;
use vlinder_format::inode::FileType;
use vlinder_places::devices::Purpose;
use vlinder_places::failure::{ExitStatus, Failure, Kind};
use vlinder_places::image::{ImageArguments, Images};
use vlinder_places::patterns;
use vlinder_places::place::{FileStatus, Location};
use vlinder_places::session::Session;
use vlinder_places::target::{Follow, Target};

pub use self::copier::Copier;
pub use self::options::{CopyOptions, Reflink};
use self::streams::Stream;
use super::destination::{TakenNames, destination};
use super::guards::spare_target;

/// Copy files, between the host and images in any direction.
///
/// Where the destination is a directory, the copies go into it. Holes stay holes. A file that exists stays
/// the file that it is: it keeps its owner, permissions, attributes, flags and, in an image, its further
/// names, and gets the new content when all of that is there; until then, and where the copy fails, it has
/// the old one. Within one file system the copy shares the extents of the source where it can: both are
/// stored once until one of them changes. With -a or -p it gets the attributes of the source as well; with
/// -a, one that has several names is replaced by a new file, as by cp -a. Of a pipe or character device,
/// /dev/stdin among them, the content is copied, unless -r or -a is given. A source `-` is standard input,
/// and a destination `-` standard output; a file of that name is ./-. In an image, `*`, `?` and `[...]` in
/// the path of a source stand for all names that they fit, unless a file is called just so.
#[derive(Args, Debug)]
#[command(
    override_usage = "vlinder cp [OPTIONS] <SOURCE>... <DESTINATION>",
    after_help = "Examples:\n  vlinder cp -a /usr/share/doc disk.img:/\n  vlinder cp disk.img:/etc/fstab .\n  \
                        tar -c . | vlinder cp - disk.img:/backup.tar\n  \
                        vlinder cp -r old.img:/home new.img:/"
)]
pub struct CopyArguments {
    /// Copy directories and what is below them.
    #[arg(short, long, short_alias = 'R')]
    recursive: bool,
    /// As -r, and keep owners, modes, times, extended attributes, ACLs and hard links.
    ///
    /// For root, that is set-id bits and file capabilities too: where others made the image, give --no-setid,
    /// or copy to a file system that is mounted nosuid.
    #[arg(short, long)]
    archive: bool,
    /// Keep owners, modes and times. For root, set-id bits too.
    #[arg(short, long)]
    preserve: bool,
    /// With -a or -p: leave out set-id bits and file capabilities.
    #[arg(long = "no-setid")]
    drops_rights: bool,
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
    /// Share the extents of the source, within one file system: auto shares where that is possible, with
    /// always the copy of a file fails where it is not, never copies the bytes. --reflink without WHEN is
    /// always.
    #[arg(
        long,
        value_name = "WHEN",
        num_args = 0..=1,
        require_equals = true,
        default_value = "auto",
        default_missing_value = "always"
    )]
    reflink: Reflink,
    /// Tell each file that is copied.
    #[arg(short, long)]
    verbose: bool,
    #[command(flatten)]
    images: ImageArguments,
    /// What to copy, and where to: IMAGE:/PATH or paths of the host.
    #[arg(required = true, num_args = 2.., value_names = ["SOURCE", "DESTINATION"])]
    targets: Vec<OsString>,
}

impl CopyArguments {
    fn options(&self) -> CopyOptions {
        CopyOptions {
            recursive: self.recursive,
            archive: self.archive,
            preserve: self.preserve,
            drops_rights: self.drops_rights,
            makes_devices: self.makes_devices,
            no_clobber: self.no_clobber,
            verbose: self.verbose,
            replaces: false,
            reflink: self.reflink,
        }
    }
}

/// Refuses to copy a directory to a place in itself, before anything is copied.
fn refuse_into_itself(from: &Location, status: &FileStatus, target: &Location) -> Result<(), Failure> {
    let is_directory = status.file_type == FileType::Directory;
    let is_near = from.directory.origin() == target.directory.origin();
    if !(is_directory && is_near && target.directory.lies_in(status)?) {
        return Ok(());
    }
    let text = format!("a directory can't be copied into itself; this lies in {}", from.place());
    Err(Failure::new(Kind::Invalid, text).at(target.place()).hint("name a destination outside of it"))
}

/// Runs the verb.
pub fn run(arguments: &CopyArguments, session: &Session) -> Result<ExitStatus, Failure> {
    let Some((to, sources)) = arguments.targets.split_last() else { return Ok(ExitStatus::Done) };
    let images = Images::new(&arguments.images)?;
    let options = arguments.options();
    let copier = Copier::new(&options, session);
    match Stream::named(to) {
        Some(stream) => copy_to_stream(&images, sources, &stream, &copier, session)?,
        None => copy_to_place(arguments, &images, (sources, to), &copier, session)?,
    }
    let (mut tally, bytes, shared) = copier.end();
    images.close()?;
    if session.json {
        session.object(json!({
            "copied": tally.done(),
            "copied_bytes": bytes,
            "shared_bytes": shared,
            "failures": tally.failed(),
            "errors": tally.errors(),
        }))?;
    }
    Ok(tally.ending())
}

/// Copies the one source into a stream.
fn copy_to_stream(
    images: &Images<'_>,
    sources: &[OsString],
    to: &Stream,
    copier: &Copier<'_>,
    session: &Session,
) -> Result<(), Failure> {
    let sources =
        patterns::expand_all(images, sources, Purpose::Read, &mut |failure| copier.note(Err(failure)));
    let [source] = sources.as_slice() else {
        if sources.is_empty() {
            return Ok(());
        }
        let failure = Failure::usage("several sources can't go into one stream of bytes");
        return Err(failure.hint("vlinder cat writes files one after the other"));
    };
    if session.json && matches!(to, Stream::Standard) {
        let failure = Failure::new(Kind::Unsupported, "the content of files has no JSON form");
        return Err(failure.hint("leave --json out, or name a file as the destination"));
    }
    // As cp(1): the stream is there already.
    if copier.options.no_clobber && matches!(to, Stream::At(_)) {
        return Ok(());
    }
    let result = match Stream::named(source) {
        Some(from) => copier.copy_between_streams(from.open()?, to.open_for_writing()?),
        None => {
            let from = images.locate(source, Purpose::Read, Follow::Yes)?;
            to.open_for_writing().and_then(|stream| copier.copy_into_stream(&from, stream))
        }
    };
    copier.note(result);
    Ok(())
}

/// Copies the sources to a file, or into a directory.
fn copy_to_place(
    arguments: &CopyArguments,
    images: &Images<'_>,
    (sources, to): (&[OsString], &OsString),
    copier: &Copier<'_>,
    session: &Session,
) -> Result<(), Failure> {
    // First, so that an image that is both source and destination is opened for writing once.
    let into = destination(images, to, sources.len(), arguments.no_target_directory, Follow::Yes)?;
    if !into.is_directory && !arguments.no_clobber {
        spare_target(&into.location, arguments.force)?;
    }
    let sources =
        patterns::expand_all(images, sources, Purpose::Read, &mut |failure| copier.note(Err(failure)));
    into.takes_so_many(sources.len())?;
    let mut taken = TakenNames::default();
    for source in &sources {
        // A slash at the end asks for the directory that a link leads to.
        let keeps_links = arguments.recursive || arguments.archive;
        let keeps_link = keeps_links && !source.as_encoded_bytes().ends_with(b"/");
        let follow = if keeps_link { Follow::No } else { Follow::Yes };
        let stream =
            Stream::named(source).filter(|stream| !keeps_links || matches!(stream, Stream::Standard));
        if let Some(stream) = stream {
            let target = if into.is_directory {
                stream.file_name().and_then(|name| into.location.below(&name))
            } else {
                Ok(into.location.clone())
            };
            let target = target.and_then(|target| into.takes(FileType::Regular).map(|()| target));
            copier.note(target.and_then(|target| copier.copy_stream(stream.open()?, &target)));
            continue;
        }
        let result = images.locate(source, Purpose::Read, follow).and_then(|from| {
            let status = from.status()?;
            into.takes(status.file_type)?;
            let name = last_name(source);
            // The content of a directory that has no name of its own (IMAGE:/) goes straight into the
            // destination.
            let target = if into.is_directory && name != b"." {
                into.location.below(&name)?
            } else {
                into.location.clone()
            };
            if into.is_directory && !taken.take(&name, &from, &status)? {
                session.warn(format!("{}: given more than once; it is copied once", from.place()));
                return Ok(());
            }
            images.refuse_own(&from, &status)?;
            if keeps_links {
                refuse_into_itself(&from, &status, &target)?;
            }
            copier.copy(&from, &target)
        });
        if let Err(failure) = result {
            copier.note(Err(failure));
        }
    }
    Ok(())
}

/// The last name of the path that an argument names; `.` for a root, `.` or `..`. A link's own name, not that
/// of what it leads to.
fn last_name(argument: &OsStr) -> Vec<u8> {
    let path = match Target::parse(argument) {
        Ok(Target::Image { path, .. }) => path,
        Ok(Target::Host(path)) => path.into_os_string().into_encoded_bytes(),
        Err(_) => Vec::new(),
    };
    match path.split(|byte| *byte == b'/').rfind(|part| !part.is_empty()) {
        Some(b".." | b".") | None => b".".to_vec(),
        Some(name) => name.to_vec(),
    }
}
