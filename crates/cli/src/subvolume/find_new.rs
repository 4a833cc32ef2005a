//! `subvolume find-new`: the extents that a transaction and later ones made.

use std::ffi::OsString;

use clap::Args;
use serde_json::{Value, json};
use vlinder_format::Generation;
use vlinder_places::failure::{ExitStatus, Failure, Kind};
use vlinder_places::image::{ImageArguments, Images};
use vlinder_places::object::Object;
use vlinder_places::place::image::from_fs;
use vlinder_places::report;
use vlinder_places::session::Session;
use vlinder_places::values::number;
use vlinder_snapshots::{NamesError, NewExtent, find_new};

/// Print the extents of files that a transaction or a later one made, as btrfs subvolume find-new does.
///
/// The last line says the subvolume's own transaction: give that plus one the next time. Extents are found,
/// not changes: what was removed or renamed does not show (vlinder diff shows that). Of a mount, and of the
/// image that it holds, the last commit is read (a commit is made first); this is for root and who mounted
/// it.
#[derive(Args, Debug)]
#[command(
    after_help = "Examples:\n  vlinder subvolume find-new disk.img:/home 1200\n  vlinder subvolume find-new /mnt/home 1200"
)]
pub struct FindNewArguments {
    #[command(flatten)]
    images: ImageArguments,
    /// IMAGE:/PATH of a subvolume, or its path on a mounted vlinder.
    subvolume: OsString,
    /// The transaction (generation) from which on extents are shown.
    #[arg(value_name = "LAST-GEN", value_parser = number)]
    last_generation: u64,
}

/// What ended the search.
enum SearchEnd {
    Names(NamesError),
    Output(Failure),
}

impl From<NamesError> for SearchEnd {
    fn from(error: NamesError) -> Self {
        Self::Names(error)
    }
}

/// Runs the verb.
pub fn run(arguments: &FindNewArguments, session: &Session) -> Result<ExitStatus, Failure> {
    let images = Images::new(&arguments.images)?.with_dirty_pages();
    let named = Object::find_in_image(&images, &arguments.subvolume)?;
    let id = named.subvolume()?;
    let state = named.image().filesystem.lease().map_err(|error| from_fs(error, named.place()))?;
    let since = Generation(arguments.last_generation);
    if session.json {
        session.begin_list("extents")?;
    }
    let found = find_new(state.forest(), id, since, |extent| {
        let shown = match session.json {
            true => session.list_item(&object(&extent)),
            false => session.bytes(&line(&extent, &session.name(&extent.path))),
        };
        shown.map_err(SearchEnd::Output)
    });
    let generation = found.map_err(|ended| match ended {
        SearchEnd::Output(failure) => failure,
        SearchEnd::Names(error) => {
            // Damage that was met without a lease is none.
            let failure = Failure::new(Kind::Corruption, error.to_string()).at(named.place());
            let failure = failure.hint("keep the image as it is; vlinder check names what is damaged");
            images.confirm().err().unwrap_or(failure)
        }
    })?;
    images.close()?;
    if session.json {
        session.object(json!({ "generation": generation.0 }))?;
    } else {
        session.line(format!("transid marker was {generation}"))?;
    }
    Ok(ExitStatus::Done)
}

fn flags(extent: &NewExtent) -> Vec<&'static str> {
    let all = [
        (extent.is_compressed, "COMPRESS"),
        (extent.is_preallocated, "PREALLOC"),
        (extent.is_inline, "INLINE"),
    ];
    all.into_iter().filter(|(has, _)| *has).map(|(_, name)| name).collect()
}

/// The line of btrfs-progs 6.2.
fn line(extent: &NewExtent, path: &[u8]) -> Vec<u8> {
    let flags = flags(extent);
    let flags = if flags.is_empty() { "NONE".to_owned() } else { flags.join("|") };
    let text = format!(
        "inode {} file offset {} len {} disk start {} offset {} gen {} flags {flags} ",
        extent.inode,
        extent.file_offset,
        extent.length_bytes,
        extent.disk_start.0,
        extent.offset_bytes,
        extent.generation
    );
    [text.as_bytes(), path, b"\n"].concat()
}

fn object(extent: &NewExtent) -> Value {
    json!({
        "inode": extent.inode.0,
        "path": report::name(&extent.path),
        "file_offset_bytes": extent.file_offset,
        "length_bytes": extent.length_bytes,
        "disk_start_bytes": extent.disk_start.0,
        "offset_bytes": extent.offset_bytes,
        "generation": extent.generation.0,
        "compressed": extent.is_compressed,
        "preallocated": extent.is_preallocated,
        "inline": extent.is_inline,
    })
}
