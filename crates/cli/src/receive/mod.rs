//! `receive`: subvolumes of a stream.

mod input;

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;

use clap::Args;
use serde_json::{Value, json};
use vlinder_control::protocol::{PartialRecord, ReceiveRequest, ReceivedSubvolume};
use vlinder_control::{Answer, ErrorBody, Name, Request};
use vlinder_places::devices::Purpose;
use vlinder_places::failure::{ExitStatus, Failure, Kind};
use vlinder_places::image::{ImageArguments, Images};
use vlinder_places::mounted::{self, Mounted};
use vlinder_places::object::{Named, Object};
use vlinder_places::progress::Progress;
use vlinder_places::report;
use vlinder_places::session::Session;
use vlinder_places::target::Follow;
use vlinder_places::text::escaped;
use vlinder_stream::receive::ReceiveOptions;

use self::input::ReceivedInput;
use crate::stream::dump;

/// Make subvolumes from a stream that btrfs send or vlinder send wrote.
///
/// Owners, devices and attributes are written into the image, and nothing is asked of the host, so that every
/// user may receive into an image of their own. A stream names nothing outside the subvolume that it makes.
/// Each subvolume gets the name that it had where it was sent, is read-only when it is whole, and keeps the
/// UUID by which the next incremental stream names it. On a mount of vlinder's this is for root and who
/// mounted it.
///
/// If receiving is interrupted by anything, what came is kept beside the other subvolumes, under a name
/// that says so: vlinder send --resume goes on with it, --partial lists it, --discard removes it. A stream of
/// Linux's can't be gone on with.
///
/// Exit status: 0 received, 1 not all was received, 3 received but for what was told (fs-verity, commands
/// that could not be applied).
#[derive(Args, Debug)]
#[command(after_help = "Examples:\n  vlinder receive -f monday.stream store.img:/\n  \
                  ssh host btrfs send /home/.snapshots/1 | vlinder receive store.img:/host")]
pub struct ReceiveArguments {
    /// Read the stream from this file instead of standard input.
    #[arg(short = 'f', value_name = "FILE", value_hint = clap::ValueHint::FilePath)]
    file: Option<PathBuf>,
    /// End with the first end command, and leave what follows in the input.
    #[arg(short = 'e')]
    ends_at_end_command: bool,
    /// End when this many commands could not be applied; 0 goes on after any number. A subvolume that lacks a
    /// command is not marked as received.
    #[arg(short = 'E', long, value_name = "NUMBER", default_value_t = 1)]
    max_errors: u64,
    /// Print the commands of the stream, one a line, and receive nothing.
    #[arg(long, conflicts_with_all = ["partial", "discard"])]
    dump: bool,
    /// List what was received in part in DIRECTORY, with the tokens for vlinder send --resume.
    #[arg(long, conflicts_with = "discard")]
    partial: bool,
    /// Remove what was received in part of the subvolume that was to have this name.
    #[arg(long, value_name = "NAME", allow_hyphen_values = true)]
    discard: Option<OsString>,
    /// Taken for the sake of btrfs-progs' habits: a stream is always confined.
    #[arg(short = 'C', long = "chroot", hide = true)]
    _confined: bool,
    /// Taken for the sake of btrfs-progs' habits: the mount is found.
    #[arg(short = 'm', hide = true, value_name = "ROOTMOUNT")]
    _root_mount: Option<OsString>,
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

/// Where streams are received.
enum Place {
    Image(Named),
    Mounted(Mounted),
}

/// Runs the verb.
pub fn run(arguments: &ReceiveArguments, session: &Session) -> Result<ExitStatus, Failure> {
    if arguments.dump {
        let file = arguments.file.as_ref().map_or(OsStr::new("-"), |file| file.as_os_str());
        return dump::print(&[file], session);
    }
    let Some(target) = &arguments.target else { return Err(Failure::usage("no directory to receive into")) };
    let images = Images::new(&arguments.images)?;
    let purpose = if arguments.partial { Purpose::Read } else { Purpose::Write };
    let open = || -> Result<Place, Failure> {
        Ok(match Object::find(&images, target, purpose, Follow::Yes)? {
            Object::Image(named) => Place::Image(named),
            Object::Mounted(mounted) => Place::Mounted(mounted),
        })
    };
    if arguments.partial {
        return list(open()?.parts()?, session);
    }
    if let Some(name) = &arguments.discard {
        open()?.discard(name)?;
        images.close()?;
        session.tell(format!("Discarded '{}'", escaped(name.as_bytes())))?;
        if session.json {
            session.object(json!({ "discarded": report::name(name.as_bytes()) }))?;
        }
        return Ok(ExitStatus::Done);
    }
    let (max_errors, ends_at_end_command) = (arguments.max_errors, arguments.ends_at_end_command);
    let progress = Progress::new(session, "receiving", None);
    let input = ReceivedInput::open(arguments.file.as_deref(), ends_at_end_command, progress)?;
    let received = open()?.receive(ReceiveRequest { max_errors, ends_at_end_command }, input);
    let closed = images.close();
    let received = received?;
    closed?;
    tell(received, session)
}

impl Place {
    fn name(&self) -> String {
        match self {
            Self::Image(named) => named.place(),
            Self::Mounted(mounted) => mounted.place().to_owned(),
        }
    }

    fn failure(&self, body: ErrorBody) -> Failure {
        mounted::of_server(body).at(self.name())
    }

    fn receive(&self, how: ReceiveRequest, mut input: ReceivedInput) -> Result<Answer, Failure> {
        match self {
            Self::Mounted(mounted) => mounted.receive(how, input),
            Self::Image(named) => {
                // The server of a mount outlives the command; here what came has to be kept before the end.
                input.end_by_signals()?;
                let options = ReceiveOptions {
                    max_errors: how.max_errors,
                    ends_at_end_command: how.ends_at_end_command,
                    ..ReceiveOptions::default()
                };
                let filesystem = &named.image().filesystem;
                let received = vlinder_control::receive::receive(
                    filesystem,
                    &named.inode()?,
                    options,
                    &mut input,
                    |_| (),
                );
                received.map_err(|body| self.failure(body))
            }
        }
    }

    fn parts(&self) -> Result<Vec<PartialRecord>, Failure> {
        let answer = match self {
            Self::Mounted(mounted) => {
                mounted.request(&Request::ReceiveParts { directory: mounted.inner() })?
            }
            Self::Image(named) => {
                let parts = vlinder_control::receive::parts(&named.image().filesystem, &*named.inode()?);
                parts.map_err(|body| self.failure(body))?
            }
        };
        match answer {
            Answer::Parts { parts } => Ok(parts),
            _ => Err(Failure::new(Kind::Invalid, "an answer that was not asked for").at(self.name())),
        }
    }

    fn discard(&self, name: &OsStr) -> Result<(), Failure> {
        match self {
            Self::Mounted(mounted) => {
                let (directory, name) = (mounted.inner(), Name(name.as_bytes().to_vec()));
                mounted.order(&Request::ReceiveDiscard { directory, name })
            }
            Self::Image(named) => {
                let filesystem = &named.image().filesystem;
                let discarded =
                    vlinder_control::receive::discard_part(filesystem, &named.inode()?, name.as_bytes());
                discarded.map(drop).map_err(|body| self.failure(body))
            }
        }
    }
}

/// Tells what was received.
fn tell(received: Answer, session: &Session) -> Result<ExitStatus, Failure> {
    let Answer::Received { subvolumes, warnings, errors } = received else {
        return Err(Failure::new(Kind::Invalid, "the mount's server gave an answer that was not asked for"));
    };
    if subvolumes.is_empty() {
        return Err(Failure::new(Kind::Invalid, "the stream is empty, and makes no subvolume")
            .hint("look at what the sender said"));
    }
    for subvolume in &subvolumes {
        let what = if subvolume.is_whole { "Received subvolume" } else { "Received without some commands:" };
        session.tell(format!("{what} '{}'", escaped(&subvolume.name.0)))?;
    }
    for text in errors.iter().chain(&warnings) {
        session.warn(text);
    }
    if session.json {
        let object = |made: &ReceivedSubvolume| json!({ "id": made.number, "name": report::name(&made.name.0), "is_whole": made.is_whole });
        let all = subvolumes.iter().map(object).collect::<Vec<Value>>();
        session.object(json!({ "subvolumes": all, "warnings": warnings, "errors": errors }))?;
    }
    let is_whole = warnings.is_empty() && errors.is_empty();
    Ok(if is_whole { ExitStatus::Done } else { ExitStatus::Partial })
}

/// Lists what was received in part.
fn list(parts: Vec<PartialRecord>, session: &Session) -> Result<ExitStatus, Failure> {
    if session.json {
        let object = |part: &PartialRecord| {
            json!({
                "name": report::name(&part.name.0),
                "received_bytes": part.received_bytes,
                "token": part.token,
            })
        };
        session.object(json!({ "partial": parts.iter().map(object).collect::<Vec<Value>>() }))?;
        return Ok(ExitStatus::Done);
    }
    for part in parts {
        let token = part.token.as_deref().unwrap_or("-");
        session.line(format!("{} {} {token}", escaped(&part.name.0), part.received_bytes))?;
    }
    Ok(ExitStatus::Done)
}
