//! `send`: snapshots, or what changed between them, as a stream.

mod clone_parent;
mod output;

use std::cell::{Cell, RefCell};
use std::ffi::OsString;
use std::path::PathBuf;

use clap::Args;
use serde_json::json;
use vlinder_base::sync::Arc;
use vlinder_forest::OpenTree;
use vlinder_fs::{LeasedState, SubvolumeInformation};
use vlinder_stream::resume::{ResumeError, ResumeToken};
use vlinder_stream::send::{
    ContentSource, SendError, SendOptions, Sending, SentSubvolume, count_data_bytes, send,
};
use vlinder_stream::wire::{Command, Protocol, StreamWriter, WireError};

use self::output::StreamOutput;
use crate::failure::{ExitStatus, Failure, Kind};
use crate::image::{ImageArguments, Images};
use crate::object::{Named, Object, information};
use crate::place::image::from_fs;
use crate::progress::Progress;
use crate::report;
use crate::session::Session;

/// Send snapshots as a stream, which btrfs receive or vlinder receive makes subvolumes of elsewhere.
///
/// With -p the stream has only what changed since another snapshot, which the receiver has too. Of an image
/// that a mount of vlinder's holds, the last commit is sent (a commit is made first) while the mount goes on;
/// this is for root and who mounted it. The image is only read. What is sent is what Linux's btrfs send would
/// send, and the same snapshots give the same bytes.
///
/// Exit status: 0 sent, 1 the stream is not whole: nothing should be made of it.
#[derive(Args, Debug)]
#[command(after_help = "Examples:\n  vlinder send -f monday.stream disk.img:/monday\n  \
                  vlinder send -p disk.img:/monday disk.img:/tuesday | ssh backup vlinder receive store.img:/")]
pub struct SendArguments {
    /// One stream of several snapshots: only the last one's end ends it.
    #[arg(short = 'e')]
    one_stream: bool,
    /// Send what changed since this snapshot, which the receiver has.
    #[arg(short = 'p', value_name = "PARENT")]
    parent: Option<OsString>,
    /// A snapshot that the receiver has too: what is shared with it is not sent again. Without -p the parent is
    /// chosen among these. May be given several times.
    #[arg(short = 'c', value_name = "CLONE-SOURCE")]
    clone_sources: Vec<OsString>,
    /// Write the stream to this file instead of standard output.
    #[arg(short = 'f', value_name = "FILE", value_hint = clap::ValueHint::FilePath)]
    file: Option<PathBuf>,
    /// The version of the stream: 1, which every Linux reads; 2 (Linux 6.0), with times of birth, preallocated
    /// ranges and compressed extents; 0 for the highest.
    #[arg(long, value_name = "N", value_parser = protocol, default_value = "1")]
    proto: Protocol,
    /// Send compressed extents as they are stored. Needs version 2.
    #[arg(long)]
    compressed_data: bool,
    /// Name the ranges of files that changed, without their bytes: for programs that compare. Nothing can be
    /// received from such a stream.
    #[arg(long)]
    no_data: bool,
    /// Go on with a stream that was interrupted, where this token of vlinder receive says: with the same
    /// snapshot, parent, clone sources and options.
    #[arg(long, value_name = "TOKEN", conflicts_with = "one_stream")]
    resume: Option<String>,
    /// As --quiet.
    #[arg(short = 'q', hide = true)]
    pub quiet_short: bool,
    /// As --verbose; may be given several times, as to btrfs-progs.
    #[arg(short = 'v', hide = true, action = clap::ArgAction::Count)]
    verbose_short: u8,
    #[command(flatten)]
    images: ImageArguments,
    /// IMAGE:/PATH of a snapshot, or its path on a mount of vlinder's; it must be read-only.
    #[arg(required = true, value_name = "SNAPSHOT")]
    targets: Vec<OsString>,
}

/// A version of the stream by its number; 0 is the highest that Linux has outside of tests.
fn protocol(number: &str) -> Result<Protocol, String> {
    match number {
        "0" | "2" => Ok(Protocol::V2),
        "1" => Ok(Protocol::V1),
        _ => Err("there are the versions 1 and 2, and 0 for the higher one".to_owned()),
    }
}

/// Runs the verb.
pub fn run(arguments: &SendArguments, session: &Session) -> Result<ExitStatus, Failure> {
    if session.json && arguments.file.is_none() {
        return Err(
            Failure::usage("--json and a stream can't both go to standard output").hint("give -f FILE")
        );
    }
    let images = Images::new(&arguments.images)?;
    let find = |target: &OsString| Snapshot::find(&images, target);
    let snapshots = arguments.targets.iter().map(find).collect::<Result<Vec<_>, _>>()?;
    let parent = arguments.parent.as_ref().map(find).transpose()?;
    let mut clone_sources = arguments.clone_sources.iter().map(find).collect::<Result<Vec<_>, _>>()?;
    if arguments.compressed_data && arguments.proto < Protocol::V2 && arguments.resume.is_none() {
        return Err(Failure::usage("--compressed-data needs version 2 of the stream").hint("give --proto 2"));
    }
    let Some(first) = snapshots.first() else { return Err(Failure::usage("no snapshot to send")) };
    for other in snapshots.iter().chain(&parent).chain(&clone_sources) {
        other.require_read_only()?;
        if !Arc::ptr_eq(first.named.image(), other.named.image()) {
            return Err(Failure::new(Kind::Invalid, "it is in another file system than the first snapshot")
                .at(other.named.place())
                .hint("send snapshots of one file system at a time"));
        }
    }
    let state = first.named.image().filesystem.lease();
    let state = state.map_err(|error| from_fs(error, &first.named.image().label))?;
    let token = arguments.resume.as_deref().map(str::parse::<ResumeToken>).transpose();
    let token = token.map_err(|error| Failure::usage(format!("--resume: {error}")))?;
    if token.is_some() && snapshots.len() > 1 {
        return Err(
            Failure::usage("a token is of one snapshot").hint("send the others by calls of their own")
        );
    }
    let output = StreamOutput::open(arguments.file.as_deref(), token)?;
    let protocol = token.map_or(arguments.proto, |token| token.protocol);
    let mut writer = StreamWriter::new(output, protocol);
    let switches = first.named.image().filesystem.options().disabled;
    let options = SendOptions {
        compressed_data: arguments.compressed_data,
        no_data: arguments.no_data,
        no_readahead: switches.send_readahead,
        ..SendOptions::default()
    };
    let mut sent = Vec::new();
    let is_incremental = parent.is_some() || !clone_sources.is_empty();
    for (index, snapshot) in snapshots.into_iter().enumerate() {
        session.note(format!("at subvolume {}", snapshot.named.place()));
        let chosen = match &parent {
            Some(parent) => Some(parent),
            None if is_incremental => Some(clone_parent::choose(&snapshot, &clone_sources)?),
            None => None,
        };
        let is_last = index + 1 == arguments.targets.len();
        let ends = (!arguments.one_stream || index == 0, !arguments.one_stream || is_last);
        let one = One {
            state: &state,
            snapshot: &snapshot,
            parent: chosen,
            clone_sources: &clone_sources,
            options,
        };
        one.send(ends, &mut writer, session)?;
        sent.push(json!({
            "id": snapshot.information.id.0,
            "name": report::name(&snapshot.information.name),
            "uuid": snapshot.information.uuid.to_string(),
            "parent": chosen.map(|parent| parent.information.uuid.to_string()),
        }));
        if is_incremental {
            clone_sources.push(snapshot);
        }
    }
    let bytes = writer.position();
    writer.flush().map_err(|error| failure_of(SendError::Wire(error), "the stream"))?;
    // Revoked, the lease makes worthless what was read: who gets the stream must hear of it.
    state.confirm().map_err(|revoked| Failure::new(Kind::Busy, revoked.to_string()).hint("try again"))?;
    images.close()?;
    writer.into_output().finish()?;
    if session.json {
        session.object(json!({ "bytes": bytes, "subvolumes": sent }))?;
    }
    Ok(ExitStatus::Done)
}

/// A snapshot that was named.
struct Snapshot {
    named: Named,
    information: SubvolumeInformation,
}

impl Snapshot {
    fn find(images: &Images<'_>, target: &OsString) -> Result<Self, Failure> {
        let named = Object::find_in_image(images, target)?;
        let information = information(named.image(), named.subvolume()?)?;
        Ok(Self { named, information })
    }

    fn require_read_only(&self) -> Result<(), Failure> {
        if self.information.is_read_only {
            return Ok(());
        }
        let what = match self.information.parent {
            Some(_) => "not read-only, so it could change while it is sent",
            None => "the top level can't be sent: it has no name",
        };
        Err(Failure::new(Kind::Invalid, what)
            .at(self.named.place())
            .hint("make a snapshot that is: vlinder subvolume snapshot -r SOURCE SNAPSHOT"))
    }

    /// As the sender takes it: the receiver knows one that was received itself by the UUID of the first sender.
    fn sent<'a>(&self, state: &'a LeasedState) -> Result<SentSubvolume<'a>, Failure> {
        let tree: Arc<OpenTree> = state
            .forest()
            .tree(self.information.id)
            .map_err(|error| failure_of(error.into(), self.named.place()))?;
        let (found, root) = (&self.information, Arc::clone(tree.root()));
        let is_received = !found.received_uuid.is_nil();
        let (uuid, transid) = match is_received {
            true if found.send_transaction.0 != 0 => (found.received_uuid, found.send_transaction),
            true => (found.received_uuid, found.change_transaction),
            false => (found.uuid, found.change_transaction),
        };
        Ok(SentSubvolume { forest: state.forest(), root, uuid, transid })
    }
}

/// One snapshot of several that are sent.
struct One<'a> {
    state: &'a LeasedState,
    snapshot: &'a Snapshot,
    parent: Option<&'a Snapshot>,
    clone_sources: &'a [Snapshot],
    options: SendOptions<'a>,
}

impl One<'_> {
    /// Sends it; the stream's beginning and end with it, where they are its to send.
    fn send(
        &self,
        (begins, ends): (bool, bool),
        writer: &mut StreamWriter<StreamOutput>,
        session: &Session,
    ) -> Result<(), Failure> {
        let Self { state, snapshot, parent, clone_sources, options } = *self;
        let place = snapshot.named.place();
        let fail = |error: SendError| failure_of(error, &place);
        let is_parent =
            |other: &&Snapshot| parent.is_none_or(|parent| parent.information.id != other.information.id);
        let others = clone_sources.iter().filter(is_parent);
        let checksums = state.checksums().map_err(|error| from_fs(error, &place))?;
        let progress = RefCell::new(Progress::new(session, "sending", None));
        let told = Cell::new(0);
        let tell = |sent: u64| progress.borrow().add(sent - told.replace(sent));
        let mut sending = Sending {
            name: &snapshot.information.name,
            subvolume: snapshot.sent(state)?,
            parent: parent.map(|parent| parent.sent(state)).transpose()?,
            clone_sources: others.map(|other| other.sent(state)).collect::<Result<_, _>>()?,
            source: ContentSource { volume: state.volume(), checksums, sector_bytes: state.sector_size() },
            options,
        };
        if Progress::is_wanted(session) {
            // For whoever waits, the trees are read once more.
            let bytes = count_data_bytes(&sending, writer.protocol()).map_err(fail)?;
            progress.borrow_mut().expect(bytes);
            sending.options.progress = Some(&tell);
        }
        if begins {
            writer.begin().map_err(|error| fail(error.into()))?;
        }
        send(&sending, writer).map_err(fail)?;
        if ends {
            writer.put(&Command::End).map_err(|error| fail(error.into()))?;
        }
        Ok(())
    }
}

fn is_of_resuming(error: &std::io::Error) -> bool {
    error.get_ref().is_some_and(|inner| inner.is::<ResumeError>())
}

/// What ended a send.
fn failure_of(error: SendError, place: impl std::fmt::Display) -> Failure {
    let text = error.to_string();
    let failure = match error {
        SendError::Wire(WireError::Io(error)) if is_of_resuming(&error) => {
            Failure::new(Kind::Invalid, error.to_string())
        }
        SendError::Wire(WireError::Io(error)) if error.kind() == std::io::ErrorKind::BrokenPipe => {
            Failure::new(Kind::Device, "who reads the stream ended before it was whole")
                .hint("look at what the receiver said")
        }
        SendError::Wire(WireError::Io(error)) => return Failure::host(&error, "the stream's output"),
        SendError::Wire(_) => Failure::new(Kind::Unsupported, text),
        SendError::Volume(error) => error.into(),
        SendError::UnknownCompression { .. } => Failure::new(Kind::Unsupported, text),
        _ => Failure::new(Kind::Corruption, text)
            .hint("keep the image as it is; vlinder check names what is damaged"),
    };
    failure.at(place)
}
