//! `filesystem du`: what files, directories and subvolumes take, and what deleting them would free.

use std::cell::RefCell;
use std::ffi::OsString;
use std::ops::ControlFlow;
use std::os::unix::ffi::OsStrExt;

use clap::Args;
use serde_json::{Value, json};
use vlinder_base::sync::Arc;
use vlinder_format::ObjectId;
use vlinder_format::inode::FileType;
use vlinder_fs::{FsError, InodeId, LeasedState};
use vlinder_places::failure::{ExitStatus, Failure, Kind};
use vlinder_places::image::{ImageArguments, Images};
use vlinder_places::object::Object;
use vlinder_places::place::image::{OpenImage, from_fs};
use vlinder_places::progress::Progress;
use vlinder_places::report;
use vlinder_places::session::Session;
use vlinder_places::tally::Tally;
use vlinder_places::target::Target;
use vlinder_places::units::{UnitArguments, Units};
use vlinder_snapshots::usage::{DeletionSet, Freed, Usage, UsageError, UsageLine, UsageReader, UsageTarget};

/// Show what files, directories and subvolumes take, alone and shared, and what deleting them would free.
///
/// Total, Exclusive and Set shared are those of btrfs-progs: bytes of files, shared where Linux's fiemap says
/// so. Freed is exact: the bytes on disk of all extents and tree blocks that deleting the target would free,
/// with the subvolumes in it. Of a mount of vlinder's, the last commit is measured (a commit is made first);
/// this is for root and who mounted it.
#[derive(Args, Debug)]
#[command(disable_help_flag = true)]
#[command(after_help = "Examples:\n  vlinder filesystem du -s disk.img:/home disk.img:/var\n  \
                  vlinder filesystem du --only-freed disk.img:/monday disk.img:/tuesday")]
pub struct DuArguments {
    /// Show one line for each target.
    #[arg(short = 's', long)]
    summarize: bool,
    /// Show, too, what deleting each target would free, and all of them together.
    #[arg(long)]
    freed: bool,
    /// Show only what deleting would free: reads little more than what goes.
    #[arg(long)]
    only_freed: bool,
    #[command(flatten)]
    units: UnitArguments,
    /// Print help.
    #[arg(long, action = clap::ArgAction::Help)]
    help: (),
    #[command(flatten)]
    images: ImageArguments,
    /// IMAGE:/PATH, an image, or a path on a mounted vlinder.
    #[arg(required = true, value_name = "TARGET")]
    targets: Vec<OsString>,
}

/// What an opened image keeps of tree blocks: the rest of 256 MiB is for what is counted.
const CACHE_BYTES: u64 = 96 << 20;
/// What a line of all targets together has for a name.
const TOGETHER: &str = "(all of these together)";

/// A target that was found.
struct FoundTarget<'t> {
    /// As the user wrote it.
    shown: &'t [u8],
    /// What stands before the names below it.
    base: Vec<u8>,
    image: Arc<OpenImage>,
    inode: InodeId,
    /// The directory and name by which it was found.
    name: Option<(ObjectId, Vec<u8>)>,
    /// Whether btrfs-progs has a line for it: it has none for other kinds of files.
    has_line: bool,
    place: String,
}

impl<'t> FoundTarget<'t> {
    fn find(images: &Images<'_>, target: &'t OsString) -> Result<Self, Failure> {
        let named = Object::find_in_image(images, target)?;
        let found = named.inode()?;
        let inode = found.id();
        let has_line = matches!(found.file_type(), FileType::Regular | FileType::Directory);
        let name = match named.name.as_slice() {
            b"." | b"" => None,
            name => Some((named.directory.inode()?.id().number, name.to_vec())),
        };
        let shown = target.as_bytes();
        let mut base = shown.to_vec();
        // Of an image that was named alone, names below it are as they can be given again.
        if matches!(Target::parse(target), Ok(Target::Host(path)) if !path.is_dir()) && name.is_none() {
            base.push(b':');
        }
        while base.ends_with(b"/") {
            base.pop();
        }
        let (image, place) = (Arc::clone(named.image()), named.place());
        Ok(Self { shown, base, image, inode, name, has_line, place })
    }

    fn target(&self) -> UsageTarget<'_> {
        let name = self.name.as_ref().map(|(directory, name)| (*directory, name.as_slice()));
        UsageTarget { root: self.inode.root, inode: self.inode.number, name }
    }

    /// The name of something below it, as the lines show it.
    fn below(&self, path: &[u8]) -> Vec<u8> {
        [&self.base, &b"/"[..], path].concat()
    }
}

/// What is told of a target; what was not asked for is none.
struct Measured {
    usage: Option<Usage>,
    freed: Option<Freed>,
}

/// What is told, and how.
struct Telling<'a> {
    session: &'a Session,
    units: Units,
    summarize: bool,
    usage: bool,
    freed: bool,
}

impl<'a> Telling<'a> {
    fn new(arguments: &DuArguments, session: &'a Session) -> Self {
        let freed = arguments.freed || arguments.only_freed || session.json;
        Self {
            session,
            units: arguments.units.units(),
            summarize: arguments.summarize,
            usage: !arguments.only_freed,
            freed,
        }
    }

    fn header(&self) -> Result<(), Failure> {
        if self.session.json {
            return self.session.begin_list("lines");
        }
        let names = ["Total", "Exclusive", "Set shared"].map(|name| Some(name.to_owned()));
        self.row(names, Some("Freed".to_owned()), b"Filename")
    }

    /// A line; columns without a value show a dash.
    fn row(&self, usage: [Option<String>; 3], freed: Option<String>, name: &[u8]) -> Result<(), Failure> {
        let mut line = Vec::new();
        let usage = usage.into_iter().filter(|_| self.usage);
        for column in usage.chain(self.freed.then_some(freed)) {
            line.extend_from_slice(format!("{:>10}  ", column.as_deref().unwrap_or("-")).as_bytes());
        }
        line.extend_from_slice(&self.session.name(name));
        line.push(b'\n');
        self.session.bytes(&line)
    }

    fn line(&self, target: &FoundTarget<'_>, line: &UsageLine<'_>) -> Result<(), Failure> {
        let name = target.below(line.path);
        if self.session.json {
            return self.session.list_item(&json!({
                "path": report::name(&name),
                "directory": line.is_directory,
                "total_bytes": line.total_bytes,
                "exclusive_bytes": line.exclusive_bytes,
            }));
        }
        let show = |bytes: u64| Some(self.units.show(bytes));
        self.row([show(line.total_bytes), show(line.exclusive_bytes), None], None, &name)
    }

    fn target(&self, name: &[u8], measured: &Measured) -> Result<(), Failure> {
        if self.session.json {
            return Ok(());
        }
        let usage = measured.usage.map(|usage| {
            [usage.total_bytes, usage.exclusive_bytes, usage.set_shared_bytes]
                .map(|bytes| Some(self.units.show(bytes)))
        });
        let freed = measured.freed.map(|freed| self.units.show(freed.total_bytes()));
        self.row(usage.unwrap_or_default(), freed, name)
    }
}

/// Runs the verb.
pub fn run(arguments: &DuArguments, session: &Session) -> Result<ExitStatus, Failure> {
    let images = Images::new(&arguments.images)?.with_cache(CACHE_BYTES);
    let telling = Telling::new(arguments, session);
    let (mut tally, mut found) = (Tally::default(), Vec::new());
    for target in &arguments.targets {
        match FoundTarget::find(&images, target) {
            Ok(target) => found.push(target),
            Err(failure) => tally.add(Err(failure), session),
        }
    }
    let states = states_of(&found)?;
    let progress = RefCell::new(Progress::new(session, "reading", None));
    let result = measure_all(&telling, &found, &states, &progress, &mut tally);
    // A lease that is gone makes worthless what was read, damage that was met included.
    for (_, state) in &states {
        let confirmed = state.confirm();
        confirmed.map_err(|revoked| Failure::new(Kind::Busy, revoked.to_string()).hint("try again"))?;
    }
    images.close()?;
    let (targets, together) = result?;
    drop(progress);
    if session.json {
        session.object(json!({
            "targets": targets,
            "together": together,
            "failures": tally.failed(),
            "errors": tally.errors(),
        }))?;
    }
    Ok(tally.ending())
}

type States = Vec<(Arc<OpenImage>, LeasedState)>;

/// A committed state of each image.
fn states_of(found: &[FoundTarget<'_>]) -> Result<States, Failure> {
    let mut states: States = Vec::new();
    for target in found {
        if !states.iter().any(|(image, _)| Arc::ptr_eq(image, &target.image)) {
            let state = target.image.filesystem.lease();
            let state = state.map_err(|error| from_fs(error, &target.image.label))?;
            states.push((Arc::clone(&target.image), state));
        }
    }
    Ok(states)
}

/// Measures one target after the other, and all together; gives an object of each.
fn measure_all(
    telling: &Telling<'_>,
    found: &[FoundTarget<'_>],
    states: &States,
    progress: &RefCell<Progress>,
    tally: &mut Tally,
) -> Result<(Vec<Value>, Value), Failure> {
    let block_bytes = |state: &LeasedState| u64::from(state.forest().trees().source().node_size());
    let watches: Vec<Box<dyn Fn(u64) + '_>> = states
        .iter()
        .map(|(_, state)| {
            let bytes = block_bytes(state);
            Box::new(move |blocks| progress.borrow().add(blocks * bytes)) as Box<dyn Fn(u64)>
        })
        .collect();
    let mut readers = Vec::new();
    for ((image, state), watch) in states.iter().zip(&watches) {
        let reader = UsageReader::new(state.forest(), watch);
        readers.push(reader.map_err(|error| failure_of(error, &image.label))?);
    }
    telling.header()?;
    let mut targets = Vec::new();
    for target in found {
        let place = states.iter().position(|(image, _)| Arc::ptr_eq(image, &target.image));
        let Some((reader, (_, state))) =
            place.and_then(|place| readers.get_mut(place).zip(states.get(place)))
        else {
            continue;
        };
        progress.borrow().name(|| target.place.clone());
        let measured = measure(telling, target, state, reader);
        let measured = measured.and_then(|measured| {
            if target.has_line {
                telling.target(target.shown, &measured)?;
            }
            targets.push(object_of(target, &measured));
            Ok(())
        });
        tally.add(measured, telling.session);
        if telling.session.is_output_closed() {
            break;
        }
    }
    // A sum without some of its parts would be taken for the whole.
    let is_whole = telling.freed && tally.failed() == 0 && found.len() > 1;
    let (true, [(image, state)], [reader]) = (is_whole, &states[..], &mut readers[..]) else {
        return Ok((targets, Value::Null));
    };
    let freed = freed_by(found, state, reader)
        .map_err(|error| failure_of(error, format!("{}: {TOGETHER}", image.label)))?;
    telling.target(TOGETHER.as_bytes(), &Measured { usage: None, freed: Some(freed) })?;
    Ok((targets, freed_object(&freed)))
}

fn measure(
    telling: &Telling<'_>,
    target: &FoundTarget<'_>,
    state: &LeasedState,
    reader: &mut UsageReader<'_>,
) -> Result<Measured, Failure> {
    let met = |error: UsageError| failure_of(error, &target.place);
    let usage = match (telling.usage, telling.summarize) {
        (false, _) => None,
        (true, true) => Some(reader.summary(&target.target()).map_err(met)?),
        (true, false) => {
            let mut ended = Ok(());
            let mut each = |line: &UsageLine<'_>| {
                ended = telling.line(target, line);
                let goes_on = ended.is_ok() && !telling.session.is_output_closed();
                if goes_on { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
            };
            let usage = reader.list(&target.target(), &mut each).map_err(met)?;
            ended?;
            Some(usage)
        }
    };
    let freed = telling.freed.then(|| freed_by(std::slice::from_ref(target), state, reader));
    Ok(Measured { usage, freed: freed.transpose().map_err(met)? })
}

/// What deleting all of these would free.
fn freed_by(
    all: &[FoundTarget<'_>],
    state: &LeasedState,
    reader: &mut UsageReader<'_>,
) -> Result<Freed, UsageError> {
    let mut set = DeletionSet::new();
    all.iter().try_for_each(|target| set.add(state.forest(), &target.target()))?;
    reader.freed(set, &mut |_| ())
}

fn object_of(target: &FoundTarget<'_>, measured: &Measured) -> Value {
    json!({
        "path": report::name(target.shown),
        "total_bytes": measured.usage.map(|usage| usage.total_bytes),
        "exclusive_bytes": measured.usage.map(|usage| usage.exclusive_bytes),
        "set_shared_bytes": measured.usage.map(|usage| usage.set_shared_bytes),
        "freed": measured.freed.as_ref().map(freed_object),
    })
}

fn freed_object(freed: &Freed) -> Value {
    json!({ "data_bytes": freed.data_bytes, "metadata_bytes": freed.metadata_bytes })
}

/// What ended measuring.
fn failure_of(error: UsageError, place: impl std::fmt::Display) -> Failure {
    match error {
        UsageError::Forest(error) => from_fs(FsError::from(error), place),
        deep @ UsageError::PathTooLong { .. } => Failure::new(Kind::Unsupported, deep.to_string())
            .at(place)
            .hint("give -s, or name a directory further down"),
        other => Failure::new(Kind::Corruption, other.to_string())
            .at(place)
            .hint("keep the image as it is; vlinder check names what is damaged"),
    }
}
