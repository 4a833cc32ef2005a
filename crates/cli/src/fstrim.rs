//! `fstrim`.

use std::ffi::OsString;

use clap::Args;
use serde_json::json;
use vlinder_places::devices::Purpose;
use vlinder_places::failure::{ExitStatus, Failure, Kind};
use vlinder_places::image::{ImageArguments, Images};
use vlinder_places::object::Object;
use vlinder_places::place::image::{OpenImage, from_fs};
use vlinder_places::progress::Progress;
use vlinder_places::report;
use vlinder_places::session::Session;
use vlinder_places::target::Follow;
use vlinder_places::units::{Base, Units};
use vlinder_transaction::Trimmed;

use crate::subvolume::free_blocks;

/// Give free space of an image back to the host.
///
/// Each free range loses its blocks: of a file as a hole, of a block device by a discard. The image stays as
/// long as it is, and what is in it as it was; `du` shows less. The number that is told is what was free,
/// whether it had blocks or not.
///
/// Of an image that no mount holds, what deleted subvolumes still hold is freed first. A mount goes on
/// meanwhile, and frees such subvolumes by itself: `subvolume sync` waits for it. Root and the user who
/// mounted may trim a mount.
#[derive(Args, Debug)]
#[command(
    after_help = "Examples:\n  vlinder fstrim disk.img\n  vlinder fstrim disk.raw@2\n  vlinder fstrim /mnt"
)]
pub struct TrimArguments {
    #[command(flatten)]
    images: ImageArguments,
    /// The image, IMAGE:/PATH, or a path of a mount.
    target: OsString,
}

/// Runs the verb.
pub fn run(arguments: &TrimArguments, session: &Session) -> Result<ExitStatus, Failure> {
    let images = Images::new(&arguments.images)?;
    let progress = Progress::new(session, "trimming", None);
    let (trimmed, label) = match Object::find(&images, &arguments.target, Purpose::Write, Follow::Yes)? {
        Object::Image(named) => (trim(named.image())?, named.image().label.clone()),
        Object::Mounted(mounted) => (mounted.trim(|bytes| progress.add(bytes))?, mounted.place().to_owned()),
    };
    drop(progress);
    images.close()?;
    let bytes = trimmed.group_bytes.saturating_add(trimmed.unallocated_bytes);
    if bytes == 0 && trimmed.refused_bytes > 0 {
        let text = "the host can't give back parts of it";
        return Err(Failure::new(Kind::Unsupported, text).at(&label).hint(
            "move it to a file system that can punch holes (ext4, XFS, Btrfs, tmpfs), with cp --sparse=always, and \
             trim it there",
        ));
    }
    if session.json {
        session.object(json!({
            "image": report::name(label.as_bytes()),
            "trimmed_bytes": bytes,
            "in_block_groups_bytes": trimmed.group_bytes,
            "unallocated_bytes": trimmed.unallocated_bytes,
            "refused_bytes": trimmed.refused_bytes,
        }))?;
    } else {
        let size = Units::Human(Base::Binary).show(bytes);
        session.tell(format!("{label}: {size} ({bytes} bytes) trimmed"))?;
    }
    if trimmed.refused_bytes > 0 {
        session.warn(format!("{} bytes lie on devices that can't give back any", trimmed.refused_bytes));
    }
    Ok(ExitStatus::Done)
}

fn trim(image: &OpenImage) -> Result<Trimmed, Failure> {
    free_blocks(image)?;
    image.filesystem.engine().trimmer().all().map_err(|error| from_fs(error.into(), &image.label))
}
