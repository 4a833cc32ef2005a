//! The verbs that change subvolumes.

use std::ffi::{OsStr, OsString};
use std::path::Path;

use clap::Args;
use serde_json::{Value, json};
use vlinder_control::Request;
use vlinder_control::protocol::SubvolumeTarget;
use vlinder_format::RootId;
use vlinder_places::caller::umask;
use vlinder_places::devices::Purpose;
use vlinder_places::failure::{ExitStatus, Failure, Kind};
use vlinder_places::image::{ImageArguments, Images};
use vlinder_places::mounted::Mounted;
use vlinder_places::object::{Named, Object, information, of_subvolume};
use vlinder_places::place::image::{OpenImage, from_fs};
use vlinder_places::progress::Waiting;
use vlinder_places::report;
use vlinder_places::session::Session;
use vlinder_places::tally::Tally;
use vlinder_places::target::{Follow, Target};
use vlinder_places::text;
use vlinder_places::values::parse_number;

use super::nested::{DEFAULT_HINT, deletable_below, refuse_roots};
use crate::files::make_ancestors;

/// Blocks of deleted subvolumes that are freed between two commits.
const BLOCKS_BETWEEN_COMMITS: usize = 8192;

/// Make subvolumes.
#[derive(Args, Debug)]
#[command(after_help = "Examples:\n  vlinder subvolume create disk.img:/home\n  \
                        vlinder subvolume create -p disk.img:/var/lib/machines")]
pub struct CreateArguments {
    /// Make missing directories above, too.
    #[arg(short, long)]
    parents: bool,
    /// Put it into a quota group (not supported yet).
    #[arg(short = 'i', value_name = "QGROUP")]
    quota_group: Vec<String>,
    #[command(flatten)]
    images: ImageArguments,
    /// IMAGE:/PATH of the new subvolume.
    #[arg(required = true, value_name = "TARGET")]
    targets: Vec<OsString>,
}

fn refuse_quota_groups(groups: &[String]) -> Result<(), Failure> {
    match groups.first() {
        None => Ok(()),
        Some(_) => Err(Failure::new(Kind::Unsupported, "quota groups can't be changed by this version")
            .hint("leave -i out, or use Linux itself")),
    }
}

/// What the name of a new subvolume or snapshot names.
fn find_new(images: &Images<'_>, target: &OsStr, follow: Follow) -> Result<Object, Failure> {
    Object::find(images, target, Purpose::Write, follow).map_err(|failure| match Target::parse(target) {
        Ok(Target::Host(_)) if failure.kind == Kind::NotFound => failure
            .hint("subvolumes lie in an image: name it IMAGE:/PATH, or give a path on a mount of vlinder's"),
        _ => failure,
    })
}

/// Runs `create`.
pub fn create(arguments: &CreateArguments, session: &Session) -> Result<ExitStatus, Failure> {
    refuse_quota_groups(&arguments.quota_group)?;
    let images = Images::new(&arguments.images)?;
    let (mut tally, mut made) = (Tally::default(), Vec::new());
    for target in &arguments.targets {
        let above = if arguments.parents { make_ancestors(&images, target) } else { Ok(()) };
        let result = above.and_then(|()| find_new(&images, target, Follow::No)).and_then(|object| {
            let root = match &object {
                Object::Image(named) => {
                    named.directory.refuse_itself(&named.name)?;
                    let (image, directory) = (named.image(), named.directory.inode()?);
                    let made = image.filesystem.subvolumes().create(&image.caller, &directory, &named.name);
                    made.map_err(|error| from_fs(error, named.place()))?.root
                }
                Object::Mounted(mounted) => {
                    let request = Request::SubvolumeCreate { path: mounted.inner(), umask: umask() };
                    mounted.change_subvolume(&request)?.id
                }
            };
            made.push(subvolume_object(root, target));
            session.tell(format!("Create subvolume '{}'", as_given(target)))
        });
        tally.add(result, session);
    }
    images.close()?;
    if session.json {
        session
            .object(json!({ "subvolumes": made, "failures": tally.failed(), "errors": tally.errors() }))?;
    }
    Ok(tally.ending())
}

/// What is to be made, as btrfs-progs tells it: the directory as it was given, and the name.
fn as_given(target: &OsStr) -> String {
    match Target::parse(target) {
        Ok(Target::Host(path)) => {
            let above = path.parent().unwrap_or(Path::new("/")).as_os_str();
            let above = if above.is_empty() { b"." } else { above.as_encoded_bytes() };
            let name = path.file_name().unwrap_or_default().as_encoded_bytes();
            format!("{}/{}", text::escaped(above), text::escaped(name))
        }
        Ok(target @ Target::Image { .. }) => target.to_string(),
        Err(_) => text::escaped(target.as_encoded_bytes()),
    }
}

/// A name in a directory that was given.
fn in_given(directory: &OsStr, name: &[u8]) -> String {
    let directory = text::escaped(directory.as_encoded_bytes());
    format!("{}/{}", directory.trim_end_matches('/'), text::escaped(name))
}

fn subvolume_object(root: RootId, target: &OsString) -> Value {
    json!({ "id": root.0, "target": report::name(target.as_encoded_bytes()) })
}

/// Delete subvolumes and snapshots.
///
/// Their names go at once, their blocks before the command ends; a command that is interrupted is resumed by
/// the next one that writes. The default subvolume is refused.
#[derive(Args, Debug)]
#[command(
    after_help = "Examples:\n  vlinder subvolume delete disk.img:/old\n  vlinder subvolume delete -i 257 disk.img:/"
)]
pub struct DeleteArguments {
    /// Commit once at the end. (On an image that no mount holds it always does.)
    #[arg(short, long)]
    commit_after: bool,
    /// Commit after each.
    #[arg(short = 'C', long)]
    commit_each: bool,
    /// Delete the subvolume of this number; then the target only names the image.
    #[arg(short = 'i', long, value_name = "ID")]
    subvolid: Option<u64>,
    /// Delete the subvolumes in it as well, those within them first. Nothing goes where the default
    /// subvolume, or the one that is shown, is among them.
    #[arg(short = 'R', long)]
    recursive: bool,
    /// As --verbose; outdated.
    #[arg(short = 'v', hide = true)]
    verbose_short: bool,
    #[command(flatten)]
    images: ImageArguments,
    /// IMAGE:/PATH of a subvolume, or its path on a mounted vlinder.
    #[arg(required = true, value_name = "TARGET")]
    targets: Vec<OsString>,
}

/// Runs `delete`.
pub fn delete(arguments: &DeleteArguments, session: &Session) -> Result<ExitStatus, Failure> {
    if arguments.subvolid.is_some() && arguments.targets.len() > 1 {
        return Err(Failure::usage("--subvolid takes one target"));
    }
    let images = Images::new(&arguments.images)?;
    let (mut tally, mut deleted) = (Tally::default(), Vec::new());
    for (index, target) in arguments.targets.iter().enumerate() {
        let is_last = index + 1 == arguments.targets.len();
        let result = one(arguments, &images, (target, is_last), session).map(|id| deleted.push(id.0));
        tally.add(result, session);
    }
    let waiting = Waiting::new(session, "freeing");
    images.close()?;
    for image in images.written() {
        free_blocks(&image)?;
    }
    drop(waiting);
    if session.json {
        session
            .object(json!({ "deleted": deleted, "failures": tally.failed(), "errors": tally.errors() }))?;
    }
    Ok(tally.ending())
}

fn one(
    arguments: &DeleteArguments,
    images: &Images<'_>,
    (target, is_last): (&OsString, bool),
    session: &Session,
) -> Result<RootId, Failure> {
    let object = Object::find(images, target, Purpose::Write, Follow::No)?;
    let number = arguments.subvolid;
    refuse_roots(&object, number)?;
    if arguments.recursive {
        let top = match number {
            Some(number) => RootId(number),
            None => object.subvolume()?.id,
        };
        for below in deletable_below(&object, top)? {
            match &object {
                Object::Image(named) => delete_in_image(Some(below.0), named)?,
                Object::Mounted(mounted) => delete_mounted(arguments, Some(below.0), mounted)?,
            };
        }
    }
    // Without a mount the command commits at its end.
    let (commits_after, (root, path)) = match &object {
        Object::Image(named) => (true, delete_in_image(number, named)?),
        Object::Mounted(mounted) => (arguments.commit_after, delete_mounted(arguments, number, mounted)?),
    };
    let is_committed = arguments.commit_each || commits_after && is_last;
    let kind = if is_committed { "commit" } else { "no-commit" };
    let place = match arguments.subvolid {
        Some(_) => text::escaped(&path),
        None => object.place(),
    };
    session.tell(format!("Delete subvolume {root} ({kind}): '{place}'"))?;
    if arguments.commit_each {
        images.close()?;
    }
    Ok(root)
}

fn delete_mounted(
    arguments: &DeleteArguments,
    number: Option<u64>,
    mounted: &Mounted,
) -> Result<(RootId, Vec<u8>), Failure> {
    let target = match number {
        Some(number) => SubvolumeTarget::Number(number),
        None => mounted.target(),
    };
    let request = Request::SubvolumeDelete { target: target.clone(), commit: arguments.commit_each };
    let deleted = match &target {
        SubvolumeTarget::Path(_) => mounted.change_subvolume(&request),
        SubvolumeTarget::Number(_) => mounted.subvolume(&request),
    };
    let deleted = deleted.map_err(|failure| {
        let default = mounted.subvolume(&Request::SubvolumeGetDefault);
        let meant = mounted.subvolume(&Request::SubvolumeShow { target });
        let is_default = default.ok().zip(meant.ok()).is_some_and(|(default, meant)| default.id == meant.id);
        if is_default { failure.hint(DEFAULT_HINT) } else { failure }
    })?;
    if arguments.commit_after {
        mounted.sync()?;
    }
    Ok((deleted.id, deleted.path))
}

fn delete_in_image(number: Option<u64>, named: &Named) -> Result<(RootId, Vec<u8>), Failure> {
    let image = named.image();
    let (directory, entry, root) = match number {
        None => {
            let root = named.subvolume()?;
            // `IMAGE:/` with another subvolume as root: its name lies above what is shown.
            match named.name.as_slice() {
                b"." => by_number(image, root)?,
                entry => (named.directory.inode()?, entry.to_vec(), root),
            }
        }
        Some(number) => by_number(image, RootId(number))?,
    };
    let place = named.place();
    let path = information(image, root)?.path;
    let refused = image.filesystem.subvolumes().delete(&image.caller, &directory, &entry);
    refused.map_err(|error| {
        let failure = from_fs(error, &place);
        let is_default = image.filesystem.subvolumes().default().is_ok_and(|default| default == root);
        if is_default { failure.hint(DEFAULT_HINT) } else { failure }
    })?;
    Ok((root, path))
}

type Found = (vlinder_base::sync::Arc<vlinder_fs::Inode>, Vec<u8>, RootId);

fn by_number(image: &OpenImage, root: RootId) -> Result<Found, Failure> {
    let found = information(image, root)?;
    let place = format!("{}: subvolume {root}", image.label);
    let parent = found.parent.ok_or_else(|| Failure::new(Kind::Invalid, "it has no name").at(&place))?;
    let directory = image.filesystem.inode(parent).map_err(|error| from_fs(error, &place))?;
    Ok((directory, found.name, root))
}

/// Frees the blocks of deleted subvolumes, in commits of bounded size.
pub fn free_blocks(image: &OpenImage) -> Result<(), Failure> {
    let engine = image.filesystem.engine();
    let fail = |error: vlinder_fs::FsError| from_fs(error, &image.label);
    loop {
        let is_more = engine.clean(BLOCKS_BETWEEN_COMMITS).map_err(|error| fail(error.into()))?;
        image.filesystem.sync().map_err(fail)?;
        if !is_more {
            return Ok(());
        }
    }
}

/// Make a snapshot of a subvolume.
#[derive(Args, Debug)]
#[command(after_help = "Example:\n  vlinder subvolume snapshot -r disk.img:/home disk.img:/home-monday")]
pub struct SnapshotArguments {
    /// The snapshot can't be written.
    #[arg(short = 'r')]
    read_only: bool,
    /// Put it into a quota group (not supported yet).
    #[arg(short = 'i', value_name = "QGROUP")]
    quota_group: Vec<String>,
    #[command(flatten)]
    images: ImageArguments,
    /// IMAGE:/PATH of the subvolume.
    source: OsString,
    /// IMAGE:/PATH of the snapshot, or of the directory in which it gets the subvolume's name.
    target: OsString,
}

/// Runs `snapshot`.
pub fn snapshot(arguments: &SnapshotArguments, session: &Session) -> Result<ExitStatus, Failure> {
    refuse_quota_groups(&arguments.quota_group)?;
    let images = Images::new(&arguments.images)?;
    let source = Object::find(&images, &arguments.source, Purpose::Write, Follow::Yes)?;
    let target = find_new(&images, &arguments.target, Follow::Yes)?;
    let read_only = arguments.read_only;
    let (root, made, name) = match (source, target) {
        (Object::Image(source), Object::Image(target))
            if source.directory.is_same_image(&target.directory) =>
        {
            snapshot_in_image(&source, target, read_only)?
        }
        (Object::Mounted(source), Object::Mounted(target)) if source.is_same_mount(&target) => {
            snapshot_mounted(source, target, read_only)?
        }
        (_, target) => {
            let failure = Failure::new(Kind::Invalid, "a snapshot lies in the image of its subvolume");
            let hint = "name one there, and copy it from there if it is needed elsewhere (vlinder cp -a)";
            return Err(failure.at(target.place()).hint(hint));
        }
    };
    images.close()?;
    let kind = if read_only { "readonly snapshot" } else { "snapshot" };
    let source = text::escaped(arguments.source.as_encoded_bytes());
    let place = match name {
        Some(name) => in_given(&arguments.target, &name),
        None => as_given(&arguments.target),
    };
    session.tell(format!("Create a {kind} of '{source}' in '{place}'"))?;
    if session.json {
        let target = report::name(arguments.target.as_encoded_bytes());
        session.object(json!({ "id": made.0, "source_id": root.0, "target": target }))?;
    }
    Ok(ExitStatus::Done)
}

/// What was snapshotted, the snapshot, and its name, where the target is the directory that it lies in.
type Snapshot = (RootId, RootId, Option<Vec<u8>>);

const NO_NAME: &str = "the snapshot of the top level needs a name there";

fn snapshot_mounted(source: Mounted, target: Mounted, read_only: bool) -> Result<Snapshot, Failure> {
    let source = Object::Mounted(source);
    let found = source.subvolume()?;
    let Object::Mounted(source) = source else { return Err(Failure::usage("no mount")) };
    let mut inside = None;
    let target = match target.path().metadata() {
        Ok(status) if status.is_dir() => {
            let entry = match source.name() {
                b"" => &found.name[..],
                entry => entry,
            };
            if entry.is_empty() {
                let failure = Failure::new(Kind::Exists, NO_NAME).at(target.place());
                return Err(failure.hint("name the snapshot: DIRECTORY/NAME"));
            }
            inside = Some(entry.to_vec());
            target.enter(entry)
        }
        Ok(_) => return Err(Failure::new(Kind::Exists, "it exists, and is no directory").at(target.place())),
        // The server tells what is wrong with a name that can't be looked up.
        Err(_) => target,
    };
    let request = Request::SubvolumeSnapshot { source: source.inner(), path: target.inner(), read_only };
    let made = target.change_subvolume(&request)?;
    Ok((found.id, made.id, inside))
}

fn snapshot_in_image(source: &Named, target: Named, read_only: bool) -> Result<Snapshot, Failure> {
    let root = source.subvolume()?;
    let mut inside = None;
    let target = match target.inode() {
        Ok(_) => {
            let entry = match source.name.as_slice() {
                b"." => information(source.image(), root)?.name,
                entry => entry.to_vec(),
            };
            if entry.is_empty() {
                let failure = Failure::new(Kind::Exists, NO_NAME);
                return Err(failure.at(target.place()).hint("name the snapshot: IMAGE:/DIRECTORY/NAME"));
            }
            inside = Some(entry.clone());
            Named { directory: target.directory.enter(&target.name)?, name: entry }
        }
        Err(failure) if failure.kind == Kind::NotFound => target,
        Err(failure) => return Err(failure),
    };
    let image = source.image();
    let id = image
        .filesystem
        .subvolumes()
        .snapshot(&image.caller, root, &target.directory.inode()?, &target.name, read_only)
        .map_err(|error| from_fs(error, target.place()))?;
    Ok((root, id.root, inside))
}

/// Set the subvolume that a mount shows where no subvol= or subvolid= is given.
#[derive(Args, Debug)]
#[command(
    after_help = "Examples:\n  vlinder subvolume set-default disk.img:/home\n  vlinder subvolume set-default 256 disk.img:/"
)]
pub struct SetDefaultArguments {
    #[command(flatten)]
    images: ImageArguments,
    /// IMAGE:/PATH of a subvolume; or its number, and the image.
    #[arg(required = true, num_args = 1..=2, value_names = ["SUBVOLUME", "TARGET"])]
    arguments: Vec<OsString>,
}

/// Runs `set-default`.
pub fn set_default(arguments: &SetDefaultArguments, session: &Session) -> Result<ExitStatus, Failure> {
    let images = Images::new(&arguments.images)?;
    let (object, root) = match arguments.arguments.as_slice() {
        [number, target] => {
            let number = number.to_str().and_then(parse_number).map(RootId);
            let number =
                number.ok_or_else(|| Failure::usage("the first of two arguments is a subvolume's number"))?;
            (Object::find(&images, target, Purpose::Write, Follow::Yes)?, number)
        }
        [target, ..] => {
            let object = Object::find(&images, target, Purpose::Write, Follow::Yes)?;
            let root = object.subvolume()?.id;
            (object, root)
        }
        [] => return Ok(ExitStatus::Done),
    };
    // 0 stands for the top level, as in subvolid=.
    let root = if root.0 == 0 { RootId::FS_TREE } else { root };
    match &object {
        Object::Image(named) => {
            let image = named.image();
            let set = image.filesystem.subvolumes().set_default(&image.caller, root);
            set.map_err(|error| of_subvolume(error, root, &image.label))?;
        }
        Object::Mounted(mounted) => {
            let request = Request::SubvolumeSetDefault { target: SubvolumeTarget::Number(root.0) };
            mounted.order(&request)?;
        }
    }
    images.close()?;
    if session.json {
        session.object(json!({ "id": root.0 }))?;
    }
    Ok(ExitStatus::Done)
}

/// Wait until deleted subvolumes are gone from the disk. On an image that no mount holds, frees their blocks.
#[derive(Args, Debug)]
#[command(after_help = "Example:\n  vlinder subvolume sync disk.img:/")]
pub struct SubvolumeSyncArguments {
    /// Look again every so many seconds.
    #[arg(short = 's', value_name = "SECONDS", default_value_t = 1)]
    seconds: u64,
    #[command(flatten)]
    images: ImageArguments,
    /// The image, or IMAGE:/PATH.
    target: OsString,
    /// Wait for these alone.
    #[arg(value_name = "ID")]
    ids: Vec<u64>,
}

/// Runs `sync`.
pub fn sync(arguments: &SubvolumeSyncArguments, session: &Session) -> Result<ExitStatus, Failure> {
    let images = Images::new(&arguments.images)?;
    let waiting = Waiting::new(session, "freeing");
    let freed = match Object::find(&images, &arguments.target, Purpose::Write, Follow::Yes)? {
        Object::Image(named) => {
            let waiting = named.image().filesystem.engine().dead_trees().ids();
            let wanted = |root: &u64| arguments.ids.is_empty() || arguments.ids.contains(root);
            let freed: Vec<u64> = waiting.into_iter().map(|root| root.0).filter(wanted).collect();
            free_blocks(named.image())?;
            freed
        }
        Object::Mounted(mounted) => mounted.await_deletions(&arguments.ids)?,
    };
    drop(waiting);
    for root in &freed {
        session.tell(format!("Subvolume id {root} is gone"))?;
    }
    if session.json {
        session.object(json!({ "freed": freed }))?;
    }
    Ok(ExitStatus::Done)
}
