//! `inspect-internal logical-resolve`: which files show the data at an address.

use std::collections::BTreeSet;
use std::ffi::OsString;
use std::path::PathBuf;

use clap::Args;
use serde_json::json;
use vlinder_forest::ExtentUser;
use vlinder_fs::{Filesystem, InodeId, RootId};
use vlinder_places::failure::{ExitStatus, Failure, Kind};
use vlinder_places::image::{ImageArguments, Images};
use vlinder_places::object::Object;
use vlinder_places::place::image::from_fs;
use vlinder_places::report;
use vlinder_places::session::Session;
use vlinder_places::text;
use vlinder_places::values::number;

/// Print the files that show the data at a logical address.
///
/// Files in subvolumes that do not lie below TARGET's are told with a line that says so, as btrfs-progs does.
#[derive(Args, Debug)]
#[command(
    after_help = "Examples:\n  vlinder inspect-internal logical-resolve 14680064 disk.img:/\n  vlinder inspect-internal logical-resolve 14680064 /mnt"
)]
pub struct LogicalResolveArguments {
    /// Print inode, offset and root instead of paths.
    #[arg(short = 'P')]
    numbers: bool,
    /// Every file that refers to the extent, whether it shows that byte of it or not.
    #[arg(short = 'o')]
    ignore_offsets: bool,
    /// Size of a buffer; without effect, since none is needed here.
    #[arg(short = 's', value_name = "BYTES")]
    buffer: Option<u64>,
    /// As --verbose; outdated.
    #[arg(short = 'v', hide = true)]
    verbose_short: bool,
    /// Mount options: subvol=PATH, subvolid=N …. (-o has its meaning of btrfs-progs here.)
    #[arg(long = "options", value_name = "OPTIONS")]
    options: Vec<String>,
    /// A further device of the image's file system; may be given several times.
    #[arg(short = 'D', long = "device", value_name = "DEVICE")]
    devices: Vec<PathBuf>,
    /// The address in the file system's own address space, in bytes.
    #[arg(value_parser = number)]
    logical: u64,
    /// IMAGE:/PATH, an image, or a path on a mounted vlinder: paths are shown below it. Of what is mounted,
    /// the last commit is searched.
    target: OsString,
}

/// Runs the verb.
pub fn run(arguments: &LogicalResolveArguments, session: &Session) -> Result<ExitStatus, Failure> {
    let images = ImageArguments::new(&arguments.options, &arguments.devices);
    let images = Images::new(&images)?;
    let named = Object::find_in_image(&images, &arguments.target)?;
    let filesystem = &named.image().filesystem;
    let place = format!("{}: address {}", named.image().label, arguments.logical);
    let users = users(filesystem, arguments, &place)?;
    let base = named.inode()?.id().root;
    let mut lines = Vec::new();
    let mut objects = Vec::new();
    for (user, offset) in &users {
        let paths = paths(filesystem, base, user).map_err(|error| from_fs(error, &place))?;
        objects.push(json!({
            "inode": user.inode.0,
            "root": user.root.0,
            "offset_bytes": offset,
            "paths": paths.iter().map(|path| report::name(path)).collect::<Vec<_>>(),
        }));
        if arguments.numbers {
            lines.push(format!("inode {} offset {offset} root {}", user.inode, user.root));
        } else if !paths.is_empty() {
            let target = arguments.target.as_encoded_bytes();
            let separator: &[u8] = if target.ends_with(b"/") { b"" } else { b"/" };
            lines.extend(paths.iter().map(|path| text::escaped(&[target, separator, path].concat())));
        } else {
            let information = filesystem.subvolumes().information(user.root);
            let path = information.map(|found| found.path).map_err(|error| from_fs(error, &place))?;
            let path = text::escaped(&path);
            lines.push(format!("inode {} subvol {path} could not be accessed: not mounted", user.inode));
        }
    }
    images.close()?;
    if session.json {
        session.object(json!({ "users": objects }))?;
    } else {
        lines.into_iter().try_for_each(|line| session.line(line))?;
    }
    Ok(ExitStatus::Done)
}

/// The runs that show the address, each with the file offset that is told.
fn users(
    filesystem: &Filesystem,
    arguments: &LogicalResolveArguments,
    place: &str,
) -> Result<BTreeSet<(ExtentUser, u64)>, Failure> {
    let logical = vlinder_format::Logical(arguments.logical);
    let met = |error: vlinder_forest::ForestError| from_fs(error.into(), place);
    let mut walk = filesystem.engine().extent_user_walk(None).map_err(met)?;
    let extent = walk.extent_at(logical).map_err(met)?.filter(|extent| extent.is_data);
    let Some(extent) = extent else {
        let failure = Failure::new(Kind::NotFound, "no file data lie there").at(place);
        return Err(failure.hint("filemap shows the addresses of a file"));
    };
    let inside = logical.0 - extent.start.0;
    let found = walk.users(extent.start).map_err(met)?;
    let mut users = BTreeSet::new();
    for user in found {
        if arguments.ignore_offsets || user.compressed {
            users.insert((user, user.file_offset));
        } else if let Some(behind) =
            inside.checked_sub(user.extent_offset).filter(|at| *at < user.length_bytes)
        {
            users.insert((user, user.file_offset + behind));
        }
    }
    Ok(users)
}

/// The names of a file below the subvolume `base`; none if its subvolume does not lie there.
fn paths(
    filesystem: &Filesystem,
    base: RootId,
    user: &ExtentUser,
) -> Result<Vec<Vec<u8>>, vlinder_fs::FsError> {
    let mut above = if user.root == base {
        Vec::new()
    } else if base == RootId::FS_TREE {
        filesystem.names().path_of(InodeId::root_of(user.root))?
    } else {
        return Ok(Vec::new());
    };
    if !above.is_empty() {
        above.push(b'/');
    }
    let names = filesystem.names().paths_in_subvolume(InodeId::new(user.root, user.inode))?;
    Ok(names.into_iter().map(|name| [&above[..], &name].concat()).collect())
}
