//! `stream dump`.

use std::ffi::{OsStr, OsString};
use std::io::{self, IsTerminal as _, Write};

use clap::Args;
use jiff::tz::TimeZone;
use vlinder_places::failure::{ExitStatus, Failure, Kind};
use vlinder_places::session::Session;
use vlinder_stream::dump::{DumpError, DumpOptions, dump};
use vlinder_stream::wire::StreamReader;

use super::inputs::{Passes, StreamInputs};
use super::outcome;

/// Print the commands of streams, one a line.
///
/// The lines are those of "btrfs receive --dump" of btrfs-progs 6.2. Where streams follow one another in a
/// file, all of them are printed.
#[derive(Args, Debug)]
#[command(
    after_help = "Examples:\n  vlinder stream dump nightly.stream\n  btrfs send /snapshots/nightly | vlinder stream dump -"
)]
pub struct StreamDumpArguments {
    /// A file that holds streams, or - for standard input.
    #[arg(required = true, value_name = "FILE", value_hint = clap::ValueHint::FilePath)]
    files: Vec<OsString>,
}

/// Hands lines to the session.
struct SessionWriter<'a> {
    session: &'a Session,
    failure: Option<Failure>,
}

impl Write for SessionWriter<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if self.session.is_output_closed() {
            return Err(io::ErrorKind::BrokenPipe.into());
        }
        match self.session.bytes(bytes) {
            Ok(()) => Ok(bytes.len()),
            Err(failure) => {
                self.failure = Some(failure);
                Err(io::ErrorKind::Other.into())
            }
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Runs the verb.
pub fn run(arguments: &StreamDumpArguments, session: &Session) -> Result<ExitStatus, Failure> {
    let names: Vec<_> = arguments.files.iter().map(OsString::as_os_str).collect();
    print(&names, session)
}

/// Prints the commands of these files.
///
/// # Errors
/// What opening and reading them met; streams that are wrong.
pub fn print(names: &[&OsStr], session: &Session) -> Result<ExitStatus, Failure> {
    if session.json {
        let failure = Failure::new(Kind::Unsupported, "the commands of a stream have no JSON form");
        return Err(failure.hint("leave --json out, or count the commands with vlinder stream verify --json"));
    }
    let inputs = StreamInputs::open(names, Passes::One)?;
    let zone = TimeZone::system();
    let utc_offset = |seconds| match jiff::Timestamp::from_second(seconds) {
        Ok(time) => zone.to_offset(time).seconds(),
        // Beyond the years that have rules.
        Err(_) => 0,
    };
    let options = DumpOptions { utc_offset: &utc_offset, escapes_all: io::stdout().is_terminal() };
    inputs.read_each(session, "reading", |number, input| {
        let mut output = SessionWriter { session, failure: None };
        match dump(&mut StreamReader::new(input), &options, &mut output) {
            Ok(0) => Err(outcome::no_stream(inputs.place(number))),
            Ok(_) => Ok(()),
            Err(DumpError::Output(error)) => match output.failure {
                Some(failure) => Err(failure),
                None if error.kind() == io::ErrorKind::BrokenPipe => Ok(()),
                None => Err(Failure::host(&error, "standard output")),
            },
            Err(DumpError::Wire { offset, error }) => {
                Err(outcome::wrong_bytes(&error, offset, inputs.place(number)))
            }
        }
    })?;
    Ok(ExitStatus::Done)
}
