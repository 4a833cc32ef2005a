//! `dedupe`: files share the extents of what they have in common.

mod index;
mod options;
mod scan;
mod volume;

use std::ffi::OsString;

use clap::Args;
use serde_json::json;
use vlinder_places::failure::{ExitStatus, Failure};
use vlinder_places::image::{ImageArguments, Images};
use vlinder_places::session::Session;
use vlinder_places::text;
use vlinder_places::units::{Base, Units, parse_size};

use self::options::{DedupeOptions, MAX_BLOCK_BYTES};
use self::scan::Scan;

/// Let files share the extents of what they have in common.
///
/// All regular files in the targets, of directories at any depth, subvolumes and snapshots among them, are
/// read in blocks, and all blocks with the same bytes come to show the extents of the first one. The bytes
/// that are told as shared are stored once in the end. Bytes are compared again right before they are shared,
/// while nobody can write them. No content and no time changes, so read-only snapshots take part. Holes,
/// preallocated space and what lies in the tree are left as they are; files without checksums (chattr +C)
/// share with their like alone.
///
/// On a mount, a user may dedupe the files that they own or may write, and root all. With all targets in one
/// file system, the memory that this takes is some 60 bytes for each block.
#[derive(Args, Debug)]
#[command(
    after_help = "Examples:\n  vlinder dedupe disk.img:/\n  vlinder dedupe --dry-run /mnt/home /mnt/.snapshots"
)]
pub struct DedupeArguments {
    /// Tell what would be shared, by the blocks' hashes, and change nothing.
    #[arg(short = 'n', long)]
    dry_run: bool,
    /// The size of a block: a power of two from 4K on, a sector at least. Smaller ones find more, and cut
    /// extents smaller.
    #[arg(short, long, value_name = "SIZE", value_parser = parse_block, default_value = "64K")]
    block_size: u64,
    /// Tell each file that shares something.
    #[arg(short, long)]
    verbose: bool,
    #[command(flatten)]
    images: ImageArguments,
    /// IMAGE:/PATH, or a path on a mounted vlinder, of a file or directory.
    #[arg(required = true, value_name = "TARGET")]
    targets: Vec<OsString>,
}

fn parse_block(text: &str) -> Result<u64, String> {
    let bytes = parse_size(text)?;
    if bytes.is_power_of_two() && (4096..=MAX_BLOCK_BYTES).contains(&bytes) {
        return Ok(bytes);
    }
    Err(format!("{text:?} is no power of two from 4K to 16M"))
}

/// Runs the verb.
pub fn run(arguments: &DedupeArguments, session: &Session) -> Result<ExitStatus, Failure> {
    let images = Images::new(&arguments.images)?;
    let DedupeArguments { dry_run, block_size, verbose, .. } = *arguments;
    let mut scan = Scan::new(DedupeOptions { dry_run, block_size, verbose }, session);
    for target in &arguments.targets {
        if let Err(failure) = scan.target(&images, target) {
            scan.note(Err(failure));
        }
    }
    images.close()?;
    let (counts, mut tally) = scan.end();
    let (shared, before) = (counts.shared_bytes, counts.shared_before_bytes);
    if session.json {
        session.object(json!({
            "files": tally.done(),
            "bytes": counts.bytes,
            "shared_bytes": shared,
            "shared_before_bytes": before,
            "differing_bytes": counts.differing_bytes,
            "dry_run": arguments.dry_run,
            "failures": tally.failed(),
            "errors": tally.errors(),
        }))?;
    } else {
        let show = |bytes| Units::Human(Base::Binary).show(bytes);
        let files = text::counted(tally.done(), "file", "files");
        let verb = if arguments.dry_run { "would be shared" } else { "shared" };
        session.tell(format!(
            "{files}, {}: {} {verb}, {} shared before",
            show(counts.bytes),
            show(shared),
            show(before)
        ))?;
    }
    Ok(tally.ending())
}
