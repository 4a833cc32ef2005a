//! `stream extract`.
//!
//! Every name is made in an open directory, which this call made itself but for the one that the user named,
//! and never through a symbolic link: nothing that a stream says leads elsewhere.

use std::collections::HashMap;
use std::ffi::OsString;
use std::path::Path;

use clap::Args;
use serde_json::json;
use vlinder_format::Uuid;
use vlinder_format::inode::{FileType, Timestamp};
use vlinder_places::failure::{ExitStatus, Failure, Kind};
use vlinder_places::place::{
    ACCESS_LISTS, Attributed, Change, Directory, FileStatus, FileTimes, Location, Owner, WITHOUT_SET_ID_BITS,
    locate,
};
use vlinder_places::progress::Progress;
use vlinder_places::session::Session;
use vlinder_places::tally::Tally;
use vlinder_places::target::Follow;
use vlinder_places::text::{counted, escaped};
use vlinder_stream::files::{ContentError, ContentPart, FileId, StreamFileStatus, SubvolumeView};

use super::inputs::{Passes, StreamArguments, StreamInputs, StreamTargets, file_of, subvolume_of};
use super::outcome;

/// Of directories until all in them is there.
const WHILE_FILLED: u32 = 0o700;
/// Of files and directories whose permissions the streams do not tell.
const FILE_PERMISSIONS: u32 = 0o644;
const DIRECTORY_PERMISSIONS: u32 = 0o755;
/// The permissions that an access list limits: without the list they would be the owning group's.
const GROUP_BITS: u32 = 0o070;

/// Extract files of a stream to a directory, as any user.
///
/// The whole subvolume goes to DIRECTORY/NAME, where NAME is its name in the stream; a PATH goes to a name in
/// DIRECTORY. Contents, permissions, times, access lists, extended attributes "user.*", symbolic links, hard
/// links, pipes and sockets are extracted, and holes stay holes. Other users' files become yours and lose
/// their set-id bits; devices and other attributes are left out; each is told, and the exit status is 3. A
/// file that is there is never replaced.
#[derive(Args, Debug)]
#[command(
    after_help = "Examples:\n  vlinder stream extract full.stream -C /tmp/out\n  vlinder stream extract --after full.stream monday.stream:/etc/fstab monday.stream:/home -C /tmp/out"
)]
pub struct ExtractArguments {
    /// Where to.
    #[arg(short = 'C', long, value_name = "DIRECTORY", default_value = ".", value_hint = clap::ValueHint::DirPath)]
    directory: OsString,
    /// Extract owners, devices and all extended attributes, too. For root.
    #[arg(long)]
    all: bool,
    #[command(flatten)]
    stream: StreamArguments,
    /// A stream, or a path in one. All are of the same stream.
    #[arg(required = true, value_name = "STREAM[:/PATH]")]
    targets: Vec<OsString>,
}

/// What was not extracted, though nothing failed.
#[derive(Default)]
struct LeftOut {
    owners: u64,
    devices: u64,
    attributes: u64,
    /// Files of which some bytes lie in streams that were not given, and one of those.
    incomplete: u64,
    missing: Option<Uuid>,
}

/// A directory that is being filled.
struct ExtractFrame<I> {
    inside: Directory,
    location: Location,
    file: FileId,
    entries: I,
}

struct Extraction<'a> {
    view: SubvolumeView<'a>,
    inputs: &'a StreamInputs,
    session: &'a Session,
    progress: Progress,
    all: bool,
    me: (u32, u32),
    /// The first name of each file that has several.
    links: HashMap<FileId, Location>,
    left_out: LeftOut,
    tally: Tally,
    bytes: u64,
}

/// Runs the verb.
pub fn run(arguments: &ExtractArguments, session: &Session) -> Result<ExitStatus, Failure> {
    let targets = StreamTargets::parse(&arguments.targets)?;
    let inputs = StreamInputs::open(&targets.streams(&arguments.stream), Passes::Two)?;
    let target = locate::on_host(Path::new(&arguments.directory), Follow::Yes)?;
    // Before the streams are read, which may take long.
    target.directory.enter(&target.name)?;
    let index = inputs.index(session)?;
    let view = subvolume_of(&index, &arguments.stream, &targets)?;
    let me = (rustix::process::geteuid().as_raw(), rustix::process::getegid().as_raw());
    let mut extraction = Extraction {
        view,
        inputs: &inputs,
        session,
        progress: Progress::new(session, "extracting", None),
        all: arguments.all,
        me,
        links: HashMap::new(),
        left_out: LeftOut::default(),
        tally: Tally::default(),
        bytes: 0,
    };
    for path in &targets.paths {
        let name = path.rsplit(|byte| *byte == b'/').next().filter(|name| !name.is_empty());
        let to = target.below(name.unwrap_or(view.name()))?;
        match file_of(&view, path, &targets) {
            Ok(file) => extraction.extract(file, &to)?,
            Err(failure) => extraction.tally.add(Err(failure), session),
        }
    }
    extraction.end()
}

impl Extraction<'_> {
    /// Extracts a file with all below it; what fails is told, and ends the extraction only where all that
    /// follows would fail as well.
    fn extract(&mut self, file: FileId, to: &Location) -> Result<(), Failure> {
        if to.look()?.is_some() {
            let failure = Failure::new(Kind::Exists, "it is there already").at(to.place());
            self.tally
                .add(Err(failure.hint("extract to another directory, or remove it first")), self.session);
            return Ok(());
        }
        let mut frames = Vec::new();
        let mut next = Some((file, to.clone()));
        loop {
            if let Some((file, location)) = next.take() {
                match self.begin(file, &location) {
                    Ok(Some(inside)) => {
                        let entries = self.view.entries(file);
                        frames.push(ExtractFrame { inside, location, file, entries });
                    }
                    Ok(None) => {}
                    Err(failure) => self.fail(failure)?,
                }
            }
            let Some(frame) = frames.last_mut() else { return Ok(()) };
            if let Some((name, file)) = frame.entries.next() {
                next = Some((file, Location { directory: frame.inside.clone(), name: name.to_vec() }));
            } else if let Some(frame) = frames.pop() {
                let status = self.view.status(frame.file);
                let set = self.set_attributes(&frame.location, frame.file, &status);
                match set {
                    Ok(()) => self.tally.add(Ok(()), self.session),
                    Err(failure) => self.fail(failure)?,
                }
            }
        }
    }

    fn fail(&mut self, failure: Failure) -> Result<(), Failure> {
        if failure.kind == Kind::NoSpace {
            return Err(failure);
        }
        self.tally.add(Err(failure), self.session);
        Ok(())
    }

    /// Makes a file; gives the directory to be filled, if it is one.
    fn begin(&mut self, file: FileId, to: &Location) -> Result<Option<Directory>, Failure> {
        let status = self.view.status(file);
        self.progress.name(|| escaped(&to.name));
        if let Some(first) = self.links.get(&file) {
            first.directory.link(&first.name, to)?;
            self.tally.add(Ok(()), self.session);
            return Ok(None);
        }
        let made = match status.file_type {
            Some(FileType::Directory) => {
                to.directory.make_directory(&to.name, WHILE_FILLED)?;
                return to.directory.enter(&to.name).map(Some);
            }
            Some(FileType::Regular) => self.regular(file, to, &status)?,
            Some(FileType::SymbolicLink) => {
                to.directory.make_link(&to.name, self.view.link_target(file).unwrap_or_default())?;
                self.set_attributes(to, file, &status)?;
                true
            }
            Some(file_type) => self.special(file, to, &status, file_type)?,
            None => {
                self.left_out.incomplete += 1;
                self.left_out.missing = self.view.missing_base();
                false
            }
        };
        if made {
            self.tally.add(Ok(()), self.session);
            if status.names > 1 {
                self.links.insert(file, to.clone());
            }
        }
        Ok(None)
    }

    /// A device, pipe or socket; false if it is left out.
    fn special(
        &mut self,
        file: FileId,
        to: &Location,
        status: &StreamFileStatus,
        file_type: FileType,
    ) -> Result<bool, Failure> {
        let is_device = matches!(file_type, FileType::CharacterDevice | FileType::BlockDevice);
        if is_device && !self.all {
            self.left_out.devices += 1;
            return Ok(false);
        }
        to.directory.make_node(&to.name, &node_status(file_type, status.device))?;
        self.set_attributes(to, file, status)?;
        Ok(true)
    }

    /// A regular file, which gets its name when it is whole; false if it is left out.
    fn regular(&mut self, file: FileId, to: &Location, status: &StreamFileStatus) -> Result<bool, Failure> {
        if let Err(ContentError::Missing { uuid }) = self.view.check_content(file) {
            self.left_out.incomplete += 1;
            self.left_out.missing = Some(uuid);
            return Ok(false);
        }
        let mut sink = to.directory.create(&to.name, WHILE_FILLED)?;
        let (mut offset, mut result) = (0_u64, Ok(()));
        let (view, inputs) = (self.view, self.inputs);
        let read = view.read(file, inputs, &mut |part| {
            match part {
                ContentPart::Data(data) => {
                    result = sink.write_at(offset, data);
                    offset += data.len() as u64;
                    self.bytes += data.len() as u64;
                    self.progress.add(data.len() as u64);
                }
                ContentPart::Hole(length) => offset += length,
            }
            result.is_ok()
        });
        read.map_err(|error| outcome::no_content(&error, &to.place()))?;
        result?;
        sink.set_size(offset)?;
        self.set_attributes(&*sink, file, status)?;
        sink.finish()?;
        Ok(true)
    }

    /// Owner, extended attributes, permissions, times: each could take away what comes before it.
    fn set_attributes(
        &mut self,
        to: &dyn Attributed,
        file: FileId,
        status: &StreamFileStatus,
    ) -> Result<(), Failure> {
        let default = match status.file_type {
            Some(FileType::Directory) => DIRECTORY_PERMISSIONS,
            _ => FILE_PERMISSIONS,
        };
        let mut permissions = status.permissions.map_or(default, u32::from);
        if !self.give_owner(to, status)? {
            permissions &= WITHOUT_SET_ID_BITS;
        }
        let is_link = status.file_type == Some(FileType::SymbolicLink);
        if !self.set_extended(to, file, is_link)? {
            permissions &= !GROUP_BITS;
        }
        to.change(&Change {
            permissions: Some(permissions).filter(|_| !is_link),
            times: status.times,
            ..Change::default()
        })
    }

    /// Whether the file belongs to whom it belonged.
    fn give_owner(&mut self, to: &dyn Attributed, status: &StreamFileStatus) -> Result<bool, Failure> {
        let Some((user, group)) = status.owner else { return Ok(false) };
        let owner = Owner::new(user, group).filter(|_| self.all || (user, group) == self.me);
        if let Some(owner) = owner {
            match to.change(&Change { owner: Some(owner), ..Change::default() }) {
                Ok(()) => return Ok(true),
                Err(failure) if matches!(failure.kind, Kind::Permission | Kind::Invalid) => {}
                Err(failure) => return Err(failure),
            }
        }
        self.left_out.owners += 1;
        Ok(false)
    }

    /// Sets extended attributes; false if the list of who else may use the file had to be left out.
    fn set_extended(&mut self, to: &dyn Attributed, file: FileId, is_link: bool) -> Result<bool, Failure> {
        if !is_link {
            // What the directory above gave it.
            ACCESS_LISTS.iter().try_for_each(|list| to.remove_attribute(list))?;
        }
        let mut keeps_access = true;
        for name in self.view.xattr_names(file) {
            let is_list = ACCESS_LISTS.contains(&name);
            let is_set = if self.all || is_list || name.starts_with(b"user.") {
                let value = self.view.xattr(file, name, self.inputs);
                let value = value.map_err(|error| outcome::no_content(&error, &escaped(name)))?;
                match to.set_attribute(name, &value.unwrap_or_default()) {
                    Ok(()) => true,
                    Err(failure) if failure.kind == Kind::NoSpace => return Err(failure),
                    Err(_) => false,
                }
            } else {
                false
            };
            if !is_set {
                self.left_out.attributes += 1;
                keeps_access &= !is_list;
            }
        }
        Ok(keeps_access)
    }

    fn end(mut self) -> Result<ExitStatus, Failure> {
        let left = &self.left_out;
        let parts = [
            (left.owners, "the owner of", "file", "files"),
            (left.devices, "", "device", "devices"),
            (left.attributes, "", "extended attribute", "extended attributes"),
        ];
        let told: Vec<String> = parts
            .iter()
            .filter(|(count, ..)| *count > 0)
            .map(|(count, what, one, many)| {
                format!("{what} {}", counted(*count, one, many)).trim().to_owned()
            })
            .collect();
        if !told.is_empty() {
            let hint = if self.all { "" } else { "; root extracts all with --all" };
            self.session.warn(format!("left out: {}{hint}", told.join(", ")));
        }
        if let Some(uuid) = left.missing.filter(|_| left.incomplete > 0) {
            let files = counted(left.incomplete, "file", "files");
            let hint = outcome::missing_hint(uuid);
            self.session.warn(format!("left out: {files}, of which the streams hold only a part\n  {hint}"));
        }
        let is_partial = !told.is_empty() || left.incomplete > 0;
        if self.session.json {
            self.session.object(json!({
                "files": self.tally.done(),
                "bytes": self.bytes,
                "left_out": {
                    "owners": left.owners,
                    "devices": left.devices,
                    "attributes": left.attributes,
                    "incomplete_files": left.incomplete,
                },
                "failures": self.tally.failed(),
                "errors": self.tally.errors(),
            }))?;
        } else {
            self.session.tell(format!("{} extracted", counted(self.tally.done(), "file", "files")))?;
        }
        match self.tally.ending() {
            ExitStatus::Done if is_partial => Ok(ExitStatus::Partial),
            ending => Ok(ending),
        }
    }
}

/// What a node is made by.
fn node_status(file_type: FileType, device: (u32, u32)) -> FileStatus {
    let never = Timestamp::EPOCH;
    FileStatus {
        file_type,
        permissions: 0o600,
        user: 0,
        group: 0,
        links: 1,
        size_bytes: 0,
        allocated_bytes: 0,
        device,
        volume: 0,
        inode: 0,
        times: FileTimes { access: never, modification: never, change: never, birth: None },
    }
}
