//! `receive`: subvolumes of a stream.

mod input;

use std::ffi::{OsStr, OsString};
use std::path::PathBuf;

use clap::Args;
use serde_json::{Value, json};
use vlinder_format::RootId;
use vlinder_stream::receive::{ReceiveError, Receiver};
use vlinder_stream::wire::{StreamReader, WireError};

use self::input::StreamInput;
use crate::devices::Purpose;
use crate::failure::{ExitStatus, Failure, Kind};
use crate::image::{ImageArguments, Images};
use crate::mounted::Mounted;
use crate::object::{Named, Object};
use crate::place::image::from_fs;
use crate::progress::Progress;
use crate::report;
use crate::session::Session;
use crate::stream::dump;
use crate::target::Follow;

/// Make subvolumes of a stream that btrfs send or vlinder send wrote.
///
/// Owners, devices and attributes are written into the image, and nothing is asked of the host, so that every
/// user may receive into an image of their own. A stream names nothing outside the subvolume that it makes.
/// Each subvolume gets the name that it had where it was sent, is read-only when it is whole, and keeps the
/// UUID by which the next incremental stream names it. On a mount of vlinder's this is for root and who
/// mounted it.
///
/// Exit status: 0 received, 1 not all was received.
#[derive(Args, Debug)]
#[command(after_help = "Examples:\n  vlinder receive -f monday.stream store.img:/\n  \
                  ssh host btrfs send /home/.snapshots/1 | vlinder receive store.img:/host")]
pub struct ReceiveArguments {
    /// Read the stream from this file instead of standard input.
    #[arg(short = 'f', value_name = "FILE", value_hint = clap::ValueHint::FilePath)]
    file: Option<PathBuf>,
    /// Print the commands of the stream, one a line, and receive nothing.
    #[arg(long)]
    dump: bool,
    /// As --quiet.
    #[arg(short = 'q', hide = true)]
    pub quiet_short: bool,
    /// As --verbose; may be given several times, as to btrfs-progs.
    #[arg(short = 'v', hide = true, action = clap::ArgAction::Count)]
    verbose_short: u8,
    #[command(flatten)]
    images: ImageArguments,
    /// IMAGE:/PATH of the directory that the subvolumes go to, or its path on a mount of vlinder's.
    #[arg(value_name = "DIRECTORY", required_unless_present = "dump")]
    target: Option<OsString>,
}

/// A subvolume that was received.
struct Made {
    name: Vec<u8>,
    id: RootId,
}

/// Runs the verb.
pub fn run(arguments: &ReceiveArguments, session: &Session) -> Result<ExitStatus, Failure> {
    if arguments.dump {
        let file = arguments.file.as_ref().map_or(OsStr::new("-"), |file| file.as_os_str());
        return dump::print(&[file], session);
    }
    let Some(target) = &arguments.target else { return Err(Failure::usage("no directory to receive into")) };
    let images = Images::new(&arguments.images)?;
    let input = StreamInput::open(arguments.file.as_deref(), Progress::new(session, "receiving", None))?;
    let target = Object::find(&images, target, Purpose::Write, Follow::Yes)?;
    let made = match target {
        Object::Image(directory) => {
            let received = receive(&directory, input);
            // What was received is made durable, and a part of a subvolume with it.
            let closed = images.close();
            let made = received?;
            closed?;
            made
        }
        Object::Mounted(directory) => receive_there(&directory, input)?,
    };
    if made.is_empty() {
        return Err(Failure::new(Kind::Invalid, "the stream is empty, and makes no subvolume")
            .hint("look at what the sender said"));
    }
    for subvolume in &made {
        session.tell(format!("Received subvolume '{}'", crate::text::escaped(&subvolume.name)))?;
    }
    if session.json {
        let object = |made: &Made| json!({ "id": made.id.0, "name": report::name(&made.name) });
        session.object(json!({ "subvolumes": made.iter().map(object).collect::<Vec<Value>>() }))?;
    }
    Ok(ExitStatus::Done)
}

fn receive(directory: &Named, input: StreamInput) -> Result<Vec<Made>, Failure> {
    let filesystem = &directory.image().filesystem;
    let mut streams = StreamReader::new(input);
    let received = Receiver::new(filesystem, directory.inode()?).receive(&mut streams);
    let position = streams.position();
    let received = received.map_err(|error| failure_of(error, position, &directory.place()))?;
    Ok(received.into_iter().map(|received| Made { name: received.name, id: received.id }).collect())
}

fn receive_there(directory: &Mounted, input: StreamInput) -> Result<Vec<Made>, Failure> {
    let received = directory.receive(input)?;
    Ok(received.into_iter().map(|(id, name)| Made { name, id }).collect())
}

/// What ended a receive, at a byte of the stream.
fn failure_of(error: ReceiveError, position: u64, place: &str) -> Failure {
    let text = format!("{error} (byte {position} of the stream)");
    let kind = match error {
        ReceiveError::Wire(WireError::Io(error)) => return Failure::host(&error, "the stream"),
        ReceiveError::Filesystem(error) => return from_fs(error, place),
        ReceiveError::Command { error, .. } => {
            let failure = from_fs(*error, place);
            return Failure { message: text, ..failure };
        }
        ReceiveError::Unsupported { .. } => Kind::Unsupported,
        ReceiveError::MissingSource { .. } => Kind::NotFound,
        _ => Kind::Invalid,
    };
    Failure::new(kind, text).at(place)
}
