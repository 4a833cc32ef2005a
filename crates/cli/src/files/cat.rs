//! `cat`.

use std::ffi::OsString;
use std::io::{ErrorKind, Read as _};

use clap::Args;
use vlinder_format::inode::FileType;
use vlinder_places::devices::Purpose;
use vlinder_places::failure::{ExitStatus, Failure, Kind};
use vlinder_places::image::{ImageArguments, Images};
use vlinder_places::patterns;
use vlinder_places::session::Session;
use vlinder_places::tally::Tally;
use vlinder_places::target::Follow;

/// Bytes read at a time.
const STEP: usize = 1 << 20;

/// Print files to standard output, one after the other.
///
/// A target `-` is standard input. In an image, `*`, `?` and `[...]` in a path stand for all names that they
/// fit, unless a file is called just so.
#[derive(Args, Debug)]
#[command(after_help = "Example:\n  vlinder cat disk.img:/etc/fstab")]
pub struct CatArguments {
    #[command(flatten)]
    images: ImageArguments,
    /// IMAGE:/PATH or a path of the host.
    #[arg(required = true, value_name = "TARGET")]
    targets: Vec<OsString>,
}

/// Runs the verb.
pub fn run(arguments: &CatArguments, session: &Session) -> Result<ExitStatus, Failure> {
    if session.json {
        return Err(
            Failure::new(Kind::Unsupported, "the content of files has no JSON form").hint("leave --json out")
        );
    }
    let images = Images::new(&arguments.images)?;
    let mut tally = Tally::default();
    let refuse = &mut |failure| tally.add(Err(failure), session);
    let targets = patterns::expand_all(&images, &arguments.targets, Purpose::Read, refuse);
    for target in &targets {
        tally.add(one(&images, target, session), session);
    }
    images.close()?;
    Ok(tally.ending())
}

fn one(images: &Images<'_>, target: &OsString, session: &Session) -> Result<(), Failure> {
    if target == "-" {
        return standard_input(session);
    }
    let location = images.locate(target, Purpose::Read, Follow::Yes)?;
    let status = location.status()?;
    match status.file_type {
        FileType::Regular => {}
        FileType::Directory => {
            return Err(Failure::new(Kind::Invalid, "a directory")
                .at(location.place())
                .hint("list it with ls"));
        }
        other => {
            let text = format!("a {}, which has no content here", super::mode::type_name(other));
            return Err(Failure::new(Kind::Invalid, text).at(location.place()));
        }
    }
    let mut source = location.directory.open(&location.name)?;
    let mut buffer = vec![0u8; STEP];
    let mut offset = 0u64;
    loop {
        let read = source.read_at(offset, &mut buffer)?;
        if read == 0 || session.is_output_closed() {
            return Ok(());
        }
        session.bytes(&buffer[..read])?;
        offset += u64::try_from(read).unwrap_or(0);
    }
}

fn standard_input(session: &Session) -> Result<(), Failure> {
    let mut input = std::io::stdin().lock();
    let mut buffer = vec![0u8; STEP];
    loop {
        match input.read(&mut buffer) {
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(error) => return Err(Failure::host(&error, "standard input")),
            Ok(read) if read == 0 || session.is_output_closed() => return Ok(()),
            Ok(read) => session.bytes(&buffer[..read])?,
        }
    }
}
