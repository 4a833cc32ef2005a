//! `restore`: files out of damaged images.
//!
//! What an image says can't lead a file out of the directory that the user named: every name is a single one,
//! looked up in an open directory and never through a symbolic link ([`vlinder_places::place`]); a directory
//! is entered once, however many names lead to it. A file that could be read in part only gets another name,
//! `NAME.partial`.

mod content;
mod numbers;
mod options;
mod report;
mod target;
mod visited;
mod walk;

use std::path::PathBuf;

use clap::Args;
use serde_json::json;
use vlinder_base::sync::Arc;
use vlinder_device::Device;
use vlinder_format::inode::FileType;
use vlinder_format::superblock::SuperblockMirror;
use vlinder_format::{Logical, RootId};
use vlinder_fs::salvage::{Salvage, SalvageOptions};
use vlinder_places::devices::{Purpose, open_devices};
use vlinder_places::failure::{ExitStatus, Failure, Kind};
use vlinder_places::path_filter::PathFilter;
use vlinder_places::place::image::from_fs;
use vlinder_places::place::{Directory, locate};
use vlinder_places::session::Session;
use vlinder_places::target::Follow;

use self::options::RestoreOptions;
use self::report::Report;
use self::walk::Restorer;

/// Get files out of a damaged file system into a directory of the host.
///
/// Every copy of the superblock, of each tree block and of the data is tried, and where the trees of the last
/// commit can't be read, those of the commits before. Where the chunk tree, which tells where everything
/// lies, can't be read whole, its older leaves are looked for in the system chunks, as btrfs rescue
/// chunk-recover does. The verb goes on past whatever is damaged, and ends with a report of what it could not
/// read: each with its path, the range of the file, and the reason. A file that could be read in part gets
/// the name NAME.partial; what is missing in it are holes. Files whose names are lost go to
/// lost+found/ROOT-DIRECTORY/. Data whose checksums are lost are given out, and counted as unverified.
///
/// Symbolic links, special files, owners, modes, times, attributes and snapshots are restored only where a
/// flag asks for them, as by btrfs restore. The image is only read.
///
/// Exit status: 0 all was restored, 1 nothing was, 3 done in part.
#[derive(Args, Debug)]
#[command(
    after_help = "Examples:\n  vlinder restore -m -x -S damaged.img rescued/\n  vlinder restore --list-roots damaged.img\n  \
                  vlinder restore --dry-run -v damaged.img rescued/"
)]
pub struct RestoreArguments {
    #[command(flatten)]
    what: RestoreOptions,
    #[command(flatten)]
    state: StateArguments,
    /// List the trees that the root tree names, and restore nothing.
    #[arg(short, long)]
    list_roots: bool,
    /// Only say what would be restored; file contents are not read.
    #[arg(short = 'D', long)]
    dry_run: bool,
    /// Only what this expression matches, by its path from the root (each directory on the way must match
    /// too): ^/(|home(|/me(|/.*)))$
    ///
    /// A name is bytes: . stands for any letter and for any byte, a newline among them; \xFF in (?-u:\xFF) is
    /// that byte.
    #[arg(long, value_name = "REGEX")]
    path_regex: Option<String>,
    /// Letters of either case match in --path-regex.
    #[arg(short = 'c')]
    ignores_case: bool,
    /// Tell each file that is restored.
    #[arg(short, long)]
    verbose: bool,
    /// Mount options, as in vlinder mount: subvol=, subvolid=, rescue=ignoredatacsums, cache= …
    #[arg(long = "options", value_name = "OPTIONS")]
    options: Vec<String>,
    /// A further device of the file system; may be given several times.
    #[arg(long = "device", value_name = "DEVICE")]
    devices: Vec<PathBuf>,
    /// The damaged image or device.
    #[arg(value_name = "IMAGE")]
    image: PathBuf,
    /// The directory that the files go to; it must exist.
    #[arg(value_name = "DIRECTORY", value_hint = clap::ValueHint::DirPath, required_unless_present = "list_roots")]
    target: Option<PathBuf>,
}

/// Which state of the file system is read.
#[derive(Args, Debug)]
struct StateArguments {
    /// Where the root tree lies, in bytes.
    #[arg(short, value_name = "BYTENR")]
    tree_location: Option<u64>,
    /// Go by this superblock copy: 0, 1 or 2.
    #[arg(short = 'u', long = "super", value_name = "MIRROR", value_parser = clap::value_parser!(u8).range(0..3))]
    mirror: Option<u8>,
    /// Restore the subvolume of this number.
    #[arg(short, long, value_name = "ROOTID")]
    root: Option<u64>,
}

impl RestoreArguments {
    fn filter(&self) -> Result<Option<PathFilter>, Failure> {
        let Some(expression) = &self.path_regex else { return Ok(None) };
        let built = PathFilter::new(expression, self.ignores_case);
        built.map(Some).map_err(|error| Failure::usage(format!("--path-regex: {error}")))
    }

    fn open(&self) -> Result<Salvage, Failure> {
        let mut paths = vec![self.image.clone()];
        paths.extend(self.devices.iter().cloned());
        let mut options = vlinder_places::options::parse(&self.options)?;
        let devices: Vec<Arc<dyn Device>> = open_devices(&options.device_names(&paths)?, Purpose::Read)?;
        options.read_only = true;
        let mirror =
            self.state.mirror.and_then(|mirror| SuperblockMirror::ALL.get(usize::from(mirror)).copied());
        let how = SalvageOptions { mirror, root_tree: self.state.tree_location.map(Logical), options };
        Salvage::open(&devices, &how).map_err(|error| from_fs(error, self.image.display()))
    }
}

/// Runs the verb.
///
/// # Errors
/// Where no device can be opened, nothing leads to a tree of files, or the target can't be used. What could
/// not be read on the way is no failure: the report names it, and the exit status says so.
pub fn run(arguments: &RestoreArguments, session: &Session) -> Result<ExitStatus, Failure> {
    let filter = arguments.filter()?;
    let target = match &arguments.target {
        Some(path) if !arguments.list_roots && !arguments.dry_run => Some(target(path)?),
        _ => None,
    };
    let salvage = arguments.open()?;
    for note in salvage.notes() {
        session.warn(note);
    }
    let mut report = Report::new(session);
    if salvage.is_older() {
        report.lose(
            b"/",
            None,
            "the last commit can't be read: what was done since the one that is shown is lost",
        );
    }
    if arguments.list_roots {
        list_roots(&salvage, session, &mut report)?;
    } else {
        let start = arguments.state.root.map_or(salvage.start(), RootId);
        let mut restorer =
            Restorer::new(&arguments.what, arguments.verbose, session, &salvage, filter, report);
        restorer.run(start, target.as_ref(), arguments.state.root.is_none());
        report = restorer.into_report();
    }
    if session.json {
        session.object(report.object(&salvage))?;
    } else {
        report.tell()?;
    }
    Ok(report.ending())
}

/// The directory that files go to.
fn target(path: &std::path::Path) -> Result<Directory, Failure> {
    let location = locate::on_host(path, Follow::Yes)?;
    match location.look()? {
        Some(status) if status.file_type == FileType::Directory => location.directory.enter(&location.name),
        Some(_) => Err(Failure::new(Kind::Invalid, "no directory").at(location.place())),
        None => Err(Failure::new(Kind::NotFound, "no such directory")
            .at(location.place())
            .hint("make it first: nothing is restored to where it was not meant to go")),
    }
}

fn list_roots(salvage: &Salvage, session: &Session, report: &mut Report<'_>) -> Result<(), Failure> {
    let mut roots = Vec::new();
    let lost = salvage.roots(&mut |root| roots.push(root));
    for part in lost {
        report.lose(
            b"/",
            None,
            &format!("root items {} to {}: {}", part.keys.start(), part.keys.end(), part.reason),
        );
    }
    for root in roots {
        if session.json {
            report.list_root(json!({
                "id": root.id.0,
                "address": root.address.0,
                "level": root.level.0,
                "generation": root.generation.0,
                "is_snapshot": root.is_snapshot,
                "is_deleted": root.is_deleted,
            }));
        } else {
            let (id, address, level, generation) =
                (root.id.0, root.address.0, root.level.0, root.generation.0);
            session.line(format!("tree {id}: address {address} level {level} generation {generation}"))?;
        }
    }
    Ok(())
}
