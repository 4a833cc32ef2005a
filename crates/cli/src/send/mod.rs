//! `send`: snapshots, or what changed between them, as a stream.

mod clone_parent;
mod failure;
mod output;
mod snapshot;

use std::cell::{Cell, RefCell};
use std::ffi::OsString;
use std::path::PathBuf;

use clap::Args;
use serde_json::{Value, json};
use vlinder_base::sync::Arc;
use vlinder_fs::LeasedState;
use vlinder_places::failure::{ExitStatus, Failure, Kind};
use vlinder_places::image::{ImageArguments, Images};
use vlinder_places::place::image::{OpenImage, from_fs};
use vlinder_places::progress::Progress;
use vlinder_places::report;
use vlinder_places::session::Session;
use vlinder_places::text::escaped;
use vlinder_stream::resume::ResumeToken;
use vlinder_stream::send::{SendError, SendOptions, Sending, count_data_bytes, send};
use vlinder_stream::wire::{Command, Protocol, StreamWriter};

use self::failure::failure_of;
use self::output::StreamOutput;
use self::snapshot::Snapshot;

/// Send snapshots as a stream, from which btrfs receive or vlinder receive makes the same ones elsewhere.
///
/// With -p the stream has only what changed since another snapshot, which the receiver has too. Of an image
/// that a mount of vlinder's holds, the last commit is sent (a commit is made first) while the mount goes on;
/// this is for root and who mounted it. The image is only read. The receiver gets the files that Linux's
/// btrfs send would give it, and the same snapshots give the same bytes each time.
///
/// Exit status: 0 sent, 1 the stream is not whole, and should not be received.
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
    /// A snapshot that the receiver has too: what is shared with it is not sent again. Without -p the parent
    /// is chosen among these. May be given several times.
    #[arg(short = 'c', value_name = "CLONE-SOURCE")]
    clone_sources: Vec<OsString>,
    /// Write the stream to this file instead of standard output.
    #[arg(short = 'f', value_name = "FILE", value_hint = clap::ValueHint::FilePath)]
    file: Option<PathBuf>,
    /// The version of the stream: 1, which every Linux reads; 2 (Linux 6.0), with times of birth,
    /// preallocated ranges and compressed extents; 0 for the highest.
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

/// Of the 128 MiB that a send may take: what it keeps of tree blocks. The rest is for data that are read and
/// decompressed at once.
const CACHE_BYTES: u64 = 36 << 20;

/// What the arguments name.
struct Operands {
    snapshots: Vec<Snapshot>,
    parent: Option<Snapshot>,
    clone_sources: Vec<Snapshot>,
    token: Option<ResumeToken>,
}

impl Operands {
    fn find(arguments: &SendArguments, images: &Images<'_>) -> Result<Self, Failure> {
        let find = |target: &OsString| Snapshot::find(images, target);
        let snapshots = arguments.targets.iter().map(find).collect::<Result<Vec<_>, _>>()?;
        let parent = arguments.parent.as_ref().map(find).transpose()?;
        let clone_sources = arguments.clone_sources.iter().map(find).collect::<Result<Vec<_>, _>>()?;
        let token = arguments.resume.as_deref().map(str::parse::<ResumeToken>).transpose();
        let token = token.map_err(|error| Failure::usage(format!("--resume: {error}")))?;
        if token.is_some() && snapshots.len() > 1 {
            let failure = Failure::usage("a token is of one snapshot");
            return Err(failure.hint("send the others by calls of their own"));
        }
        if arguments.compressed_data && arguments.proto < Protocol::V2 && token.is_none() {
            let failure = Failure::usage("--compressed-data needs version 2 of the stream");
            return Err(failure.hint("give --proto 2"));
        }
        Ok(Self { snapshots, parent, clone_sources, token })
    }

    /// Refuses clone sources among which the first snapshot has no parent, before anything is written. Those
    /// that follow have it for a clone source.
    fn require_parent(&self) -> Result<(), Failure> {
        match self.snapshots.first() {
            Some(first) if self.parent.is_none() && !self.clone_sources.is_empty() => {
                clone_parent::choose(first, &self.clone_sources).map(drop)
            }
            _ => Ok(()),
        }
    }

    /// The image of all of them.
    fn image(&self) -> Result<Arc<OpenImage>, Failure> {
        let Some(first) = self.snapshots.first() else { return Err(Failure::usage("no snapshot to send")) };
        for other in self.snapshots.iter().chain(&self.parent).chain(&self.clone_sources) {
            other.require_read_only()?;
            if !Arc::ptr_eq(first.named.image(), other.named.image()) {
                let text = "it is in another file system than the first snapshot";
                return Err(Failure::new(Kind::Invalid, text)
                    .at(other.named.place())
                    .hint("send snapshots of one file system at a time"));
            }
        }
        Ok(Arc::clone(first.named.image()))
    }
}

/// Runs the verb.
pub fn run(arguments: &SendArguments, session: &Session) -> Result<ExitStatus, Failure> {
    if session.json && arguments.file.is_none() {
        let failure = Failure::usage("--json and a stream can't both go to standard output");
        return Err(failure.hint("give -f FILE"));
    }
    let images = Images::new(&arguments.images)?.with_cache(CACHE_BYTES);
    let operands = Operands::find(arguments, &images)?;
    let image = operands.image()?;
    let state = image.filesystem.lease().map_err(|error| from_fs(error, &image.label))?;
    operands.require_parent()?;
    let output = StreamOutput::open(arguments.file.as_deref(), operands.token)?;
    let protocol = operands.token.map_or(arguments.proto, |token| token.protocol);
    let mut writer = StreamWriter::new(output, protocol);
    let options = SendOptions {
        compressed_data: arguments.compressed_data,
        no_data: arguments.no_data,
        no_readahead: image.filesystem.options().disabled.send_readahead,
        ..SendOptions::default()
    };
    // A lease that is gone makes worthless what was read, and the stream with it.
    let confirm = || {
        let confirmed = state.confirm();
        confirmed.map_err(|revoked| Failure::new(Kind::Busy, revoked.to_string()).hint("try again"))?;
        images.confirm()
    };
    let sent = send_all(arguments, operands, (&state, options, &confirm), &mut writer, session);
    // Nor is damage any that was met without it.
    let sent = sent.map_err(|failure| confirm().err().unwrap_or(failure))?;
    let bytes = writer.position();
    writer
        .flush()
        .map_err(|error| failure_of(SendError::Wire(error), "the stream", output_name(arguments)))?;
    images.close()?;
    writer.into_output().finish()?;
    if session.json {
        session.object(json!({ "bytes": bytes, "subvolumes": sent }))?;
    }
    Ok(ExitStatus::Done)
}

/// What the stream goes to, in messages.
fn output_name(arguments: &SendArguments) -> String {
    arguments.file.as_ref().map_or_else(|| "standard output".to_owned(), |file| file.display().to_string())
}

/// Sends one snapshot after the other; gives an object of each.
fn send_all(
    arguments: &SendArguments,
    operands: Operands,
    (state, options, confirm): (&LeasedState, SendOptions<'_>, &dyn Fn() -> Result<(), Failure>),
    writer: &mut StreamWriter<StreamOutput>,
    session: &Session,
) -> Result<Vec<Value>, Failure> {
    let Operands { snapshots, parent, mut clone_sources, .. } = operands;
    let (mut sent, output) = (Vec::new(), output_name(arguments));
    let is_incremental = parent.is_some() || !clone_sources.is_empty();
    for (index, snapshot) in snapshots.into_iter().enumerate() {
        // In btrfs-progs' words.
        let given = arguments.targets.get(index).map_or_else(OsString::new, OsString::clone);
        session.note(format!("At subvol {}", escaped(given.as_encoded_bytes())));
        let chosen = match &parent {
            Some(parent) => Some(parent),
            None if is_incremental => Some(clone_parent::choose(&snapshot, &clone_sources)?),
            None => None,
        };
        let is_last = index + 1 == arguments.targets.len();
        let ends = (!arguments.one_stream || index == 0, !arguments.one_stream || is_last);
        let clone_sources_now = clone_sources.as_slice();
        let one = One {
            state,
            snapshot: &snapshot,
            parent: chosen,
            clone_sources: clone_sources_now,
            options,
            output: &output,
            confirm,
        };
        one.send(ends, writer, session)?;
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
    Ok(sent)
}

/// One snapshot of several that are sent.
struct One<'a> {
    state: &'a LeasedState,
    snapshot: &'a Snapshot,
    parent: Option<&'a Snapshot>,
    clone_sources: &'a [Snapshot],
    options: SendOptions<'a>,
    /// What its stream goes to, in messages.
    output: &'a str,
    /// Whether what was read is of the state that is sent.
    confirm: &'a dyn Fn() -> Result<(), Failure>,
}

impl One<'_> {
    /// Sends it; the stream's beginning and end with it, where they are its to send.
    fn send(
        &self,
        (begins, ends): (bool, bool),
        writer: &mut StreamWriter<StreamOutput>,
        session: &Session,
    ) -> Result<(), Failure> {
        let Self { state, snapshot, parent, clone_sources, options, .. } = *self;
        let place = snapshot.named.place();
        let fail = |error: SendError| failure_of(error, &place, self.output);
        let is_parent =
            |other: &&Snapshot| parent.is_none_or(|parent| parent.information.id != other.information.id);
        let others = clone_sources.iter().filter(is_parent);
        let source = state.content_source().map_err(|error| from_fs(error, &place))?;
        let progress = RefCell::new(Progress::new(session, "sending", None));
        let told = Cell::new(0);
        let tell = |sent: u64| progress.borrow().add(sent - told.replace(sent));
        let mut sending = Sending {
            name: &snapshot.information.name,
            subvolume: snapshot.sent(state)?,
            parent: parent.map(|parent| parent.sent(state)).transpose()?,
            clone_sources: others.map(|other| other.sent(state)).collect::<Result<_, _>>()?,
            source,
            options,
        };
        if Progress::is_wanted(session) {
            // Somebody waits: the trees are read once more to know how long.
            let bytes = count_data_bytes(&sending, writer.protocol()).map_err(fail)?;
            progress.borrow_mut().expect(bytes);
            sending.options.progress = Some(&tell);
        }
        if begins {
            writer.begin().map_err(|error| fail(error.into()))?;
        }
        send(&sending, writer).map_err(fail)?;
        if ends {
            // The end command tells the receiver that all of it is right.
            (self.confirm)()?;
            writer.put(&Command::End).map_err(|error| fail(error.into()))?;
        }
        Ok(())
    }
}
