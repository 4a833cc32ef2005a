//! `mv`.

use std::ffi::OsString;

use clap::Args;
use serde_json::json;
use vlinder_format::inode::FileType;

use super::copy::destination;
use crate::failure::{Failure, Kind, Status as Ending};
use crate::image::{Follow, ImageArguments, Images};
use crate::place::{Location, Status};
use crate::session::Session;

/// Move or rename files within one image, or on the host.
///
/// Where the destination is a directory, the files move into it. Between images, or an image and the host, copy with
/// cp -a and then remove.
#[derive(Args, Debug)]
#[command(
    override_usage = "vlinder mv [OPTIONS] <SOURCE>... <DESTINATION>",
    after_help = "Example:\n  vlinder mv disk.img:/a disk.img:/b/"
)]
pub struct Arguments {
    /// Leave what the destination has under the same name.
    #[arg(short, long)]
    no_clobber: bool,
    /// Replace what is there, even if it is an image itself; other files are replaced without it too.
    #[arg(short, long, overrides_with = "no_clobber")]
    force: bool,
    /// Take the destination as the new name, even if it is a directory.
    #[arg(short = 'T', long)]
    no_target_directory: bool,
    /// Tell each file that is moved.
    #[arg(short, long)]
    verbose: bool,
    #[command(flatten)]
    images: ImageArguments,
    /// What to move, and where to.
    #[arg(required = true, num_args = 2.., value_names = ["SOURCE", "DESTINATION"])]
    targets: Vec<OsString>,
}

/// Runs the verb.
pub fn run(arguments: &Arguments, session: &Session) -> Result<Ending, Failure> {
    let images = Images::new(&arguments.images)?;
    let Some((to, sources)) = arguments.targets.split_last() else { return Ok(Ending::Done) };
    let mut tally = super::Tally::default();
    let into = destination(&images, to, sources.len(), arguments.no_target_directory, Follow::No)?;
    if !into.is_directory && !arguments.no_clobber {
        super::spare_target(&into.location, arguments.force)?;
    }
    for source in sources {
        let result = super::locate_name(&images, source).and_then(|from| {
            into.takes(from.status()?.file_type)?;
            if from.name == b"." {
                return Err(Failure::new(Kind::Invalid, "the root, . and .. can't be moved").at(from.place()));
            }
            let target =
                if into.is_directory { into.location.below(&from.name)? } else { into.location.clone() };
            let result = from.directory.rename(&from.name, &target, !arguments.no_clobber);
            match result {
                Err(failure) if arguments.no_clobber && failure.kind == Kind::Exists => return Ok(()),
                Err(failure) if failure.kind == Kind::Invalid && failure.hint.is_none() => {
                    return Err(failure.hint("a directory can't be moved into itself"));
                }
                other => other?,
            }
            drop_other_name(&from, &target)?;
            if arguments.verbose {
                session.tell(format!("{} -> {}", from.place(), target.place()))?;
            }
            Ok(())
        });
        tally.add(result, session);
    }
    images.close()?;
    if session.json {
        session.object(json!({ "moved": tally.done, "failures": tally.failed, "errors": tally.errors() }))?;
    }
    Ok(tally.ending())
}

/// Removes the old name where it is still there: of two names of one file rename(2) leaves both.
fn drop_other_name(from: &Location, to: &Location) -> Result<(), Failure> {
    let Some(old) = from.look()? else { return Ok(()) };
    let file = |status: &Status| (status.volume, status.inode);
    if old.file_type == FileType::Directory || file(&old) != file(&to.status()?) {
        return Ok(());
    }
    let is_same_name =
        from.name == to.name && file(&from.directory.status(b".")?) == file(&to.directory.status(b".")?);
    if is_same_name { Ok(()) } else { from.directory.unlink(&from.name) }
}
