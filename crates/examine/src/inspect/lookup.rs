//! `inspect-internal rootid` and `inode-resolve`: which subvolume and which names.

use std::ffi::OsString;

use clap::Args;
use serde_json::json;
use vlinder_fs::{InodeId, ObjectId};
use vlinder_places::devices::Purpose;
use vlinder_places::failure::{ExitStatus, Failure, Kind};
use vlinder_places::image::{ImageArguments, Images};
use vlinder_places::object::Object;
use vlinder_places::place::image::from_fs;
use vlinder_places::report;
use vlinder_places::session::Session;
use vlinder_places::target::Follow;
use vlinder_places::text;
use vlinder_places::values::number;

/// Print the number of the subvolume that a path lies in.
#[derive(Args, Debug)]
#[command(after_help = "Example:\n  vlinder inspect-internal rootid disk.img:/home/user")]
pub struct RootidArguments {
    #[command(flatten)]
    images: ImageArguments,
    /// IMAGE:/PATH, or an image.
    target: OsString,
}

/// Runs `rootid`.
pub fn rootid(arguments: &RootidArguments, session: &Session) -> Result<ExitStatus, Failure> {
    let images = Images::new(&arguments.images)?;
    let root = Object::find(&images, &arguments.target, Purpose::Read, Follow::Yes)?.root()?;
    images.close()?;
    if session.json {
        session.object(json!({ "id": root.0 }))?;
    } else {
        session.line(root.to_string())?;
    }
    Ok(ExitStatus::Done)
}

/// Print all names of an inode of a subvolume.
#[derive(Args, Debug)]
#[command(after_help = "Example:\n  vlinder inspect-internal inode-resolve 257 disk.img:/home")]
pub struct InodeResolveArguments {
    /// As --verbose; outdated.
    #[arg(short = 'v', hide = true)]
    verbose_short: bool,
    #[command(flatten)]
    images: ImageArguments,
    /// The inode's number.
    #[arg(value_parser = number)]
    inode: u64,
    /// IMAGE:/PATH of a subvolume or anything in it; names are shown below it.
    target: OsString,
}

/// Runs `inode-resolve`.
pub fn inode_resolve(arguments: &InodeResolveArguments, session: &Session) -> Result<ExitStatus, Failure> {
    let images = Images::new(&arguments.images)?;
    let object = Object::find(&images, &arguments.target, Purpose::Read, Follow::Yes)?;
    let (number, root) = (arguments.inode, object.root()?);
    let place = format!("{}: inode {number} of subvolume {root}", object.label());
    let paths = match &object {
        Object::Image(named) => {
            let id = InodeId::new(root, ObjectId(number));
            named.image().filesystem.names().paths_in_subvolume(id).map_err(|error| from_fs(error, &place))?
        }
        Object::Mounted(mounted) => mounted.inode_paths(number)?,
    };
    images.close()?;
    if paths.is_empty() {
        return Err(Failure::new(Kind::NotFound, "there is no such inode, or it has no name").at(place));
    }
    if session.json {
        let paths: Vec<_> = paths.iter().map(|path| report::name(path)).collect();
        session.object(json!({ "paths": paths }))?;
        return Ok(ExitStatus::Done);
    }
    let target = arguments.target.as_encoded_bytes();
    for path in paths {
        // As btrfs-progs does: below what the user named, whatever lies between.
        let separator: &[u8] = if target.ends_with(b"/") { b"" } else { b"/" };
        session.line(text::escaped(&[target, separator, &path].concat()))?;
    }
    Ok(ExitStatus::Done)
}
