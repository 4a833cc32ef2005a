//! `stream cat`.

use std::ffi::OsString;

use clap::Args;
use vlinder_format::inode::FileType;
use vlinder_places::failure::{ExitStatus, Failure, Kind};
use vlinder_places::session::Session;
use vlinder_places::tally::Tally;
use vlinder_places::text::escaped;
use vlinder_stream::files::{ContentPart, SubvolumeView};

use super::inputs::{Passes, StreamArguments, StreamInputs, StreamTargets, file_of, subvolume_of};
use super::outcome;

/// What holes are written from.
static ZEROS: [u8; 64 << 10] = [0; 64 << 10];

/// Print files of a stream to standard output, one after the other.
///
/// A file of an incremental stream is whole only with the streams that it continues: give them with --after.
#[derive(Args, Debug)]
#[command(
    after_help = "Examples:\n  vlinder stream cat full.stream:/etc/fstab\n  vlinder stream cat --after full.stream monday.stream:/etc/fstab"
)]
pub struct StreamCatArguments {
    #[command(flatten)]
    stream: StreamArguments,
    /// A path in a stream. All are of the same stream.
    #[arg(required = true, value_name = "STREAM:/PATH")]
    targets: Vec<OsString>,
}

/// Runs the verb.
pub fn run(arguments: &StreamCatArguments, session: &Session) -> Result<ExitStatus, Failure> {
    if session.json {
        return Err(
            Failure::new(Kind::Unsupported, "the content of files has no JSON form").hint("leave --json out")
        );
    }
    let targets = StreamTargets::parse(&arguments.targets)?;
    let inputs = StreamInputs::open(&targets.streams(&arguments.stream), Passes::Two)?;
    let index = inputs.index(session)?;
    let view = subvolume_of(&index, &arguments.stream, &targets)?;
    let mut tally = Tally::default();
    for path in &targets.paths {
        tally.add(one(&view, &targets, path, &inputs, session), session);
    }
    Ok(tally.ending())
}

fn one(
    view: &SubvolumeView<'_>,
    targets: &StreamTargets,
    path: &[u8],
    inputs: &StreamInputs,
    session: &Session,
) -> Result<(), Failure> {
    let file = file_of(view, path, targets)?;
    match view.status(file).file_type {
        Some(FileType::Directory) => {
            let failure = Failure::new(Kind::Invalid, "a directory").at(targets.place(path));
            return Err(failure.hint("list it with vlinder stream ls"));
        }
        Some(FileType::SymbolicLink) => {
            let target = escaped(view.link_target(file).unwrap_or_default());
            let failure = Failure::new(Kind::Invalid, format!("a symbolic link to {target}"));
            return Err(failure.at(targets.place(path)).hint("name the file that it leads to"));
        }
        _ => {}
    }
    let mut result = Ok(());
    let read = view.read(file, inputs, &mut |part| {
        result = match part {
            ContentPart::Data(data) => session.bytes(data),
            ContentPart::Hole(length) => zeros(length, session),
        };
        result.is_ok() && !session.is_output_closed()
    });
    read.map_err(|error| outcome::no_content(&error, &targets.place(path)))?;
    result
}

fn zeros(mut length: u64, session: &Session) -> Result<(), Failure> {
    while length > 0 && !session.is_output_closed() {
        let step = ZEROS.len().min(usize::try_from(length).unwrap_or(ZEROS.len()));
        session.bytes(&ZEROS[..step])?;
        length -= step as u64;
    }
    Ok(())
}
