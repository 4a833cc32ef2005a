//! `mkdir` and `ln`.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;

use clap::Args;
use serde_json::json;
use vlinder_base::random::{OsRandom, Random as _};
use vlinder_format::inode::FileType;
use vlinder_places::devices::Purpose;
use vlinder_places::failure::{ExitStatus, Failure, Kind};
use vlinder_places::image::{ImageArguments, Images};
use vlinder_places::place::{Change, FileStatus, Location};
use vlinder_places::session::Session;
use vlinder_places::tally::Tally;
use vlinder_places::target::{Follow, Target};

use super::destination::{Destination, destination};
use super::guards::refuse_slip;

/// Make directories.
#[derive(Args, Debug)]
#[command(after_help = "Example:\n  vlinder mkdir -p disk.img:/var/lib/new")]
pub struct DirectoryArguments {
    /// Make missing directories above too; it is no error if the directory exists.
    #[arg(short, long)]
    parents: bool,
    /// Permission bits, in octal.
    #[arg(short, long, value_name = "MODE", value_parser = octal)]
    mode: Option<u32>,
    /// Tell each directory that is made.
    #[arg(short, long)]
    verbose: bool,
    #[command(flatten)]
    images: ImageArguments,
    /// IMAGE:/PATH or a path of the host.
    #[arg(required = true, value_name = "TARGET")]
    targets: Vec<OsString>,
}

fn octal(text: &str) -> Result<u32, String> {
    match u32::from_str_radix(text, 8) {
        Ok(mode) if mode <= 0o7777 => Ok(mode),
        _ => Err(format!("{text:?} is no mode; give up to four octal digits")),
    }
}

/// Runs `mkdir`.
pub fn run_directory(arguments: &DirectoryArguments, session: &Session) -> Result<ExitStatus, Failure> {
    let images = Images::new(&arguments.images)?;
    let mut tally = Tally::default();
    for target in &arguments.targets {
        tally.add(make(arguments, &images, target, session), session);
    }
    images.close()?;
    if session.json {
        session
            .object(json!({ "made": tally.done(), "failures": tally.failed(), "errors": tally.errors() }))?;
    }
    Ok(tally.ending())
}

fn make(
    arguments: &DirectoryArguments,
    images: &Images<'_>,
    target: &OsString,
    session: &Session,
) -> Result<(), Failure> {
    if arguments.parents {
        make_ancestors(images, target)?;
    }
    let location = images.locate(target, Purpose::Write, Follow::No)?;
    refuse_slip(&location)?;
    match location.directory.make_directory(&location.name, arguments.mode.unwrap_or(0o777)) {
        Err(failure) if arguments.parents && failure.kind == Kind::Exists => {
            let found = images.locate(target, Purpose::Write, Follow::Yes)?.status()?;
            return if found.file_type == FileType::Directory { Ok(()) } else { Err(failure) };
        }
        other => other?,
    }
    if let Some(mode) = arguments.mode {
        // The umask took bits away that were asked for. A set-group-id bit from the directory above stays, as
        // with mkdir(1).
        let inherited = location.status()?.permissions & 0o2000;
        let change = Change { permissions: Some(mode | inherited), ..Change::default() };
        location.directory.change(&location.name, &change)?;
    }
    if arguments.verbose { session.tell(format!("made {}", location.place())) } else { Ok(()) }
}

/// Makes the directories above a target that are not there.
///
/// # Errors
/// Where one can't be made.
pub fn make_ancestors(images: &Images<'_>, target: &OsString) -> Result<(), Failure> {
    for above in ancestors(target)? {
        let location = images.locate(&above, Purpose::Write, Follow::Yes)?;
        if location.look()?.is_none() {
            location.directory.make_directory(&location.name, 0o777)?;
        }
    }
    Ok(())
}

/// The arguments that name the directories above a target, from the top down.
fn ancestors(target: &OsString) -> Result<Vec<OsString>, Failure> {
    let parsed = Target::parse(target).map_err(|fault| Failure::usage(fault.to_string()))?;
    let (image, path) = match parsed {
        Target::Image { image, path } => (Some(image), path),
        Target::Host(path) => (None, path.as_os_str().as_bytes().to_vec()),
    };
    let name = |path: &[u8]| match &image {
        Some(image) => vlinder_places::target::escape_image(image, path),
        None => vlinder_places::target::escape_host(std::path::Path::new(std::ffi::OsStr::from_bytes(path))),
    };
    let end = path.iter().rposition(|byte| *byte != b'/').map_or(0, |last| last + 1);
    let slashes = (1..end).filter(|at| path[*at] == b'/' && path[at - 1] != b'/');
    Ok(slashes.map(|at| name(&path[..at])).collect())
}

/// Make hard or symbolic links.
///
/// With -s, SOURCE is the text of the link, taken as it is. Where LINK is a directory, the link is made in it
/// under the source's name; of several sources, each gets a link there.
#[derive(Args, Debug)]
#[command(
    override_usage = "vlinder ln [OPTIONS] <SOURCE>... <LINK>",
    after_help = "Examples:\n  vlinder ln disk.img:/a disk.img:/b\n  vlinder ln -s ../lib disk.img:/usr/lib64\n  \
                  vlinder ln disk.img:/a disk.img:/b disk.img:/directory/"
)]
pub struct LinkArguments {
    /// Make symbolic links.
    #[arg(short, long)]
    symbolic: bool,
    /// Remove what has the link's name.
    #[arg(short, long)]
    force: bool,
    /// Take LINK as the link's name, even if it is a directory.
    #[arg(short = 'T', long, visible_short_alias = 'n')]
    no_target_directory: bool,
    /// Tell each link that is made.
    #[arg(short, long)]
    verbose: bool,
    #[command(flatten)]
    images: ImageArguments,
    /// What the links lead to, and the link or a directory for them: IMAGE:/PATH or paths of the host.
    #[arg(required = true, num_args = 2.., value_names = ["SOURCE", "LINK"])]
    targets: Vec<OsString>,
}

/// Runs `ln`.
pub fn run_link(arguments: &LinkArguments, session: &Session) -> Result<ExitStatus, Failure> {
    let Some((to, sources)) = arguments.targets.split_last() else { return Ok(ExitStatus::Done) };
    let images = Images::new(&arguments.images)?;
    let into = destination(&images, to, sources.len(), arguments.no_target_directory, Follow::No)?;
    into.takes(FileType::SymbolicLink)?;
    let mut tally = Tally::default();
    for source in sources {
        tally.add(make_link(arguments, &images, source, &into, session), session);
    }
    images.close()?;
    if session.json {
        session
            .object(json!({ "made": tally.done(), "failures": tally.failed(), "errors": tally.errors() }))?;
    }
    Ok(tally.ending())
}

fn make_link(
    arguments: &LinkArguments,
    images: &Images<'_>,
    text: &OsStr,
    into: &Destination,
    session: &Session,
) -> Result<(), Failure> {
    let source = match arguments.symbolic {
        true => None,
        false => Some(images.locate(text, Purpose::Write, Follow::No)?),
    };
    let location = if into.is_directory {
        let name = match &source {
            Some(source) => source.name.clone(),
            None => {
                let bytes = text.as_bytes();
                bytes.rsplit(|byte| *byte == b'/').find(|part| !part.is_empty()).unwrap_or(b".").to_vec()
            }
        };
        into.location.below(&name)?
    } else {
        into.location.clone()
    };
    let link = NewLink { text, source, location };
    let replaced = link.location.look()?.filter(|_| arguments.force);
    match replaced.filter(|found| found.file_type != FileType::Directory) {
        Some(found) => link.replace(&found)?,
        None => link.give(&link.location)?,
    }
    if arguments.verbose { session.tell(format!("made {}", link.location.place())) } else { Ok(()) }
}

/// A link that is to be made.
struct NewLink<'a> {
    /// What the user wrote as its source: the text of a symbolic link.
    text: &'a OsStr,
    /// The file that a hard link leads to.
    source: Option<Location>,
    location: Location,
}

impl NewLink<'_> {
    fn give(&self, link: &Location) -> Result<(), Failure> {
        match &self.source {
            Some(source) => source.directory.link(&source.name, link),
            None => link.directory.make_link(&link.name, self.text.as_bytes()),
        }
    }

    /// Gives the link a name of its own first, which then takes the place of what is there: whatever fails,
    /// that stays.
    fn replace(&self, found: &FileStatus) -> Result<(), Failure> {
        let link = &self.location;
        if let Some(source) = &self.source {
            let status = source.status()?;
            if (status.volume, status.inode) == (found.volume, found.inode) {
                let directory =
                    |of: &Location| of.directory.status(b".").map(|found| (found.volume, found.inode));
                if source.name == link.name && directory(source)? == directory(link)? {
                    return Err(
                        Failure::new(Kind::Invalid, "source and link are the same file").at(link.place())
                    );
                }
                // It is a link to the file already; rename(2) would leave both names.
                return Ok(());
            }
        }
        let temporary = Location {
            directory: link.directory.clone(),
            name: format!(".vlinder-{:016x}", OsRandom.next_u64()).into_bytes(),
        };
        self.give(&temporary).map_err(|failure| Failure { place: Some(link.place()), ..failure })?;
        let renamed = link.directory.rename(&temporary.name, link, true).inspect_err(|_| {
            // What can't be renamed is told; that its name can't be taken back either says nothing new.
            let _ = temporary.directory.unlink(&temporary.name);
        });
        // Both names are in one directory.
        renamed.map(drop)
    }
}
