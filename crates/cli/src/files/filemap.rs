//! `filemap`: where the bytes of files lie, printed as `filefrag -v` (e2fsprogs) prints what FS_IOC_FIEMAP
//! says.

use std::ffi::OsString;
use std::fmt::Write as _;
use std::os::unix::ffi::OsStrExt;

use clap::Args;
use serde_json::json;
use vlinder_fs::data::{MappedExtent, OpenCache};
use vlinder_fs::{ByteRange, Filesystem, Inode};
use vlinder_places::devices::Purpose;
use vlinder_places::failure::{ExitStatus, Failure};
use vlinder_places::image::{ImageArguments, Images};
use vlinder_places::object::Object;
use vlinder_places::patterns;
use vlinder_places::place::image::from_fs;
use vlinder_places::report;
use vlinder_places::session::Session;
use vlinder_places::tally::Tally;
use vlinder_places::target::Follow;
use vlinder_places::text;

/// Show where the bytes of files lie, as filefrag -v does: offsets and addresses in blocks (of inline data in
/// bytes).
///
/// Addresses are those of the file system's own address space, as Linux tells them too. Flags: last (extent
/// of the file), unknown_loc and delalloc (not written yet), encoded (compressed), not_aligned and inline (in
/// the tree), unwritten (preallocated), shared (other files, snapshots or places refer to it), eof.
#[derive(Args, Debug)]
#[command(
    after_help = "Examples:\n  vlinder filemap disk.img:/var/log/syslog\n  vlinder filemap /mnt/var/log/syslog"
)]
pub struct FilemapArguments {
    #[command(flatten)]
    images: ImageArguments,
    /// IMAGE:/PATH of a file, or a file on a mounted vlinder.
    #[arg(required = true, value_name = "TARGET")]
    targets: Vec<OsString>,
}

/// Runs of a file asked for at a time.
const RUNS: usize = 512;
/// What statfs(2) calls Btrfs, as filefrag prints it.
const FILE_SYSTEM_TYPE: &str = "9123683e";

/// Runs the verb.
pub fn run(arguments: &FilemapArguments, session: &Session) -> Result<ExitStatus, Failure> {
    let images = Images::new(&arguments.images)?;
    let (mut tally, mut files) = (Tally::default(), Vec::new());
    let refuse = &mut |failure| tally.add(Err(failure), session);
    let targets = patterns::expand_all(&images, &arguments.targets, Purpose::Read, refuse);
    for target in &targets {
        let result = one(&images, target).and_then(|(size_bytes, block_bytes, runs)| {
            if session.json {
                let extents: Vec<_> = runs.iter().map(object).collect();
                files.push(json!({
                    "path": report::name(target.as_bytes()),
                    "size_bytes": size_bytes,
                    "extents": extents,
                }));
                return Ok(());
            }
            let name = text::escaped(target.as_bytes());
            session.bytes(text(&name, size_bytes, block_bytes, &runs).as_bytes())
        });
        tally.add(result, session);
    }
    images.close()?;
    if session.json {
        session.object(json!({ "files": files, "failures": tally.failed(), "errors": tally.errors() }))?;
    }
    Ok(tally.ending())
}

fn one(images: &Images<'_>, target: &OsString) -> Result<(u64, u64, Vec<MappedExtent>), Failure> {
    match Object::find(images, target, Purpose::Read, Follow::Yes)? {
        Object::Mounted(mounted) => mounted.file_map(),
        Object::Image(named) => {
            let (filesystem, inode) = (&named.image().filesystem, named.inode()?);
            let runs = all_runs(filesystem, &inode).map_err(|error| from_fs(error, named.place()))?;
            Ok((inode.size(), u64::from(filesystem.sector_size()), runs))
        }
    }
}

/// The runs of a file of an image.
///
/// # Errors
/// What reading the trees met.
pub fn all_runs(
    filesystem: &Filesystem,
    inode: &vlinder_base::sync::Arc<Inode>,
) -> Result<Vec<MappedExtent>, vlinder_fs::FsError> {
    let (mut runs, cache, mut at) = (Vec::<MappedExtent>::new(), OpenCache::new(), 0);
    while let Some(rest) = ByteRange::new(at, u64::MAX).filter(|rest| !rest.is_empty()) {
        let found = filesystem.files().extent_map(inode, &cache, rest, RUNS)?;
        let Some(last) = found.last() else { break };
        let is_last = last.last;
        at = last.offset.saturating_add(last.length);
        runs.extend(found);
        if is_last {
            break;
        }
    }
    Ok(runs)
}

fn object(run: &MappedExtent) -> serde_json::Value {
    json!({
        "offset_bytes": run.offset,
        "length_bytes": run.length,
        "logical_bytes": run.logical.map(|logical| logical.0),
        "delalloc": run.unflushed,
        "preallocated": run.preallocated,
        "inline": run.inline,
        "encoded": run.encoded,
        "shared": run.shared,
        "last": run.last,
    })
}

fn plural(count: u64) -> &'static str {
    if count == 1 { "" } else { "s" }
}

/// The digits that a number takes, but at least so many.
fn width(number: u64, least: usize) -> usize {
    number.to_string().len().max(least)
}

fn text(name: &str, size_bytes: u64, block_bytes: u64, runs: &[MappedExtent]) -> String {
    let mut text = format!("Filesystem type is: {FILE_SYSTEM_TYPE}\n");
    let blocks = size_bytes.div_ceil(block_bytes);
    // Writing to a string can't fail.
    let _ = writeln!(
        text,
        "File size of {name} is {size_bytes} ({blocks} block{} of {block_bytes} bytes)",
        plural(blocks)
    );
    let physical_end =
        runs.iter().filter_map(|run| run.logical?.0.checked_add(run.length)).max().unwrap_or(0);
    let widths = (width(blocks, 8), width(physical_end / block_bytes, 10));
    if !runs.is_empty() {
        let (offsets, addresses) = (widths.0 * 2 + 3, widths.1 * 2 + 3);
        let _ = writeln!(
            text,
            " ext: {:>offsets$} {:>addresses$} length: {:>expected$} flags:",
            "logical_offset:",
            "physical_offset:",
            "expected:",
            expected = widths.1 + 1,
        );
    }
    let mut pieces = 0;
    let mut before: Option<(u64, u64, u64)> = None;
    for (number, run) in runs.iter().enumerate() {
        let physical = run.logical.map_or(0, |logical| logical.0);
        let (last_physical, last_offset, last_length) = before.unwrap_or_default();
        // Behind the last one, with a gap as large as the file's between them, or right behind.
        let expected = last_physical.wrapping_add(run.offset.wrapping_sub(last_offset));
        let is_apart =
            run.offset != 0 && physical != expected && physical != last_physical.wrapping_add(last_length);
        pieces = if is_apart { pieces + 1 } else { pieces.max(1) };
        line(&mut text, number, run, is_apart.then_some(expected), size_bytes, block_bytes, widths);
        before = Some((physical, run.offset, run.length));
    }
    let _ = writeln!(text, "{name}: {pieces} extent{} found", plural(pieces));
    text
}

fn line(
    text: &mut String,
    number: usize,
    run: &MappedExtent,
    expected: Option<u64>,
    size_bytes: u64,
    block_bytes: u64,
    (offset_width, address_width): (usize, usize),
) {
    let unit = if run.inline { 1 } else { block_bytes };
    let (first, blocks) = (run.offset / unit, run.length.saturating_sub(1) / unit);
    let physical = run.logical.map_or(0, |logical| logical.0) / unit;
    let expected = match expected {
        Some(expected) => format!("{:>address_width$}: ", expected / unit),
        None => " ".repeat(address_width + 2),
    };
    let flags = [
        (run.last, "last"),
        (run.unflushed, "unknown_loc"),
        (run.unflushed, "delalloc"),
        (run.encoded, "encoded"),
        (run.inline, "not_aligned"),
        (run.inline, "inline"),
        (run.preallocated, "unwritten"),
        (run.shared, "shared"),
        (run.offset.saturating_add(run.length) >= size_bytes, "eof"),
    ];
    let mut tail = expected;
    for (_, name) in flags.iter().filter(|(is_set, _)| *is_set) {
        tail.push_str(name);
        tail.push(',');
    }
    // The last comma goes; where there is no flag, filefrag takes a blank instead.
    tail.pop();
    let _ = writeln!(
        text,
        "{number:>4}: {first:>offset_width$}..{:>offset_width$}: {physical:>address_width$}..{:>address_width$}: {:>6}: {tail}",
        first.saturating_add(blocks),
        physical.saturating_add(blocks),
        blocks.saturating_add(1),
    );
}
