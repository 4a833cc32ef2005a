//! One kind of thing made in ever larger numbers, through the library, in one process: what it takes in time,
//! work and memory (rows G6 to G10).
//!
//! `grow KIND IMAGE COUNT [OPTIONS]` prints one JSON object. Kinds: `chunks` of data are made by
//! preallocating files; `extents` are preallocated in one file, each behind a hole, mapped, and removed;
//! `snapshots` are taken of a subvolume of which a file changes before each; `names` are made in one
//! directory and looked up; `dirty` writes so many MiB at random places of one file, which is twice as long,
//! and makes them durable at the end. OPTIONS are those of a mount.

use std::time::Instant;

use anyhow::{Context, Result, bail, ensure};
use vlinder_base::metrics::Value;
use vlinder_base::random::{Random, SeededRandom};
use vlinder_extent_state::ByteRange;
use vlinder_fs::data::Allocate;
use vlinder_fs::path::{File, Files};
use vlinder_fs::{Caller, ContentTimes, OpenOptions, WriteOrigin};

/// The command's allocator.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

const SECTOR_BYTES: u64 = 4096;
const MEBIBYTE: u64 = 1 << 20;
const GIBIBYTE: u64 = 1 << 30;
/// What lies in the small file of an image with many chunks: more than a leaf takes in, so that its data have
/// a chunk.
const SMALL_BYTES: usize = 16_384;
/// Files of a subvolume that is snapshotted.
const SNAPSHOTTED: u64 = 1_000;
/// Names that are looked up.
const LOOKED_UP: u64 = 10_000;
/// Extents asked for in one go.
const MAPPED: usize = 1_000;
/// What the engine counts.
const COUNTERS: [&str; 7] = [
    "tree.descents",
    "tree.leaf_batches",
    "tree.blocks_cowed",
    "tree.blocks_read",
    "transaction.commits",
    "transaction.blocks_written",
    "chunks.made",
];

fn counts(files: &Files) -> Vec<u64> {
    let samples = files.filesystem().engine().registry().snapshot();
    let value =
        |name: &str| match samples.iter().find(|sample| sample.name == name).map(|sample| &sample.value) {
            Some(Value::Counter(value)) => *value,
            _ => 0,
        };
    COUNTERS.iter().map(|name| value(name)).collect()
}

fn allocate(files: &Files, file: &File, offset: u64, length: u64) -> Result<()> {
    let (reserve, origin) =
        (Allocate::Reserve { keep_size: false }, WriteOrigin::OpenFile { times: ContentTimes::Move });
    let caller = Caller::superuser();
    files.filesystem().files().allocate_file(&caller, file.inode(), reserve, offset, length, origin)?;
    Ok(())
}

/// Chunks of 1 GiB, the longest that Linux makes on one device.
fn chunks(files: &Files, count: u64) -> Result<u64> {
    let random = SeededRandom::new(8);
    let small: Vec<u8> = (0..SMALL_BYTES).map(|_| random.next_u64() as u8).collect();
    files.write("/small", &small)?;
    let mut at = 0;
    let file = files.create("/large")?;
    while at < count {
        let part = (count - at).min(1024);
        allocate(files, &file, at * GIBIBYTE, part * GIBIBYTE)?;
        at += part;
    }
    files.sync()?;
    let made = counts(files)[6];
    ensure!(made >= count, "{made} chunks made for {count} GiB");
    Ok(made)
}

fn extents(files: &Files, count: u64) -> Result<u64> {
    let file = files.options().read(true).write(true).create(true).open("/file")?;
    for number in 0..count {
        allocate(files, &file, number * 2 * SECTOR_BYTES, SECTOR_BYTES)?;
    }
    files.sync()?;
    let (mut at, mut mapped) = (0, 0);
    while let Some(rest) = ByteRange::new(at, count * 2 * SECTOR_BYTES).filter(|rest| !rest.is_empty()) {
        let part = file.extent_map(rest, MAPPED)?;
        let Some(last) = part.last() else { break };
        mapped += part.len() as u64;
        at = last.offset + last.length;
    }
    ensure!(mapped == count, "{mapped} extents of {count} are mapped");
    drop(file);
    files.remove_file("/file")?;
    files.sync()?;
    Ok(count)
}

fn snapshots(files: &Files, count: u64) -> Result<u64> {
    files.create_subvolume("/source")?;
    for file in 0..SNAPSHOTTED {
        files.write(format!("/source/file-{file}"), [0xab; 2000])?;
    }
    files.create_dir("/snapshots")?;
    for number in 0..count {
        let file = files.options().write(true).open(format!("/source/file-{}", number % SNAPSHOTTED))?;
        file.write_at(&number.to_le_bytes(), 0)?;
        files.snapshot("/source", format!("/snapshots/{number}"), true)?;
    }
    files.sync()?;
    let oldest = files.read(format!("/snapshots/{}/file-0", count.min(SNAPSHOTTED) - 1))?;
    ensure!(oldest.get(..8) == Some(&[0; 8]), "a snapshot shows a later change");
    Ok(count)
}

fn names(files: &Files, count: u64) -> Result<u64> {
    files.create_dir("/directory")?;
    for number in 0..count {
        files.create(format!("/directory/file-{number}.txt"))?;
    }
    files.sync()?;
    let random = SeededRandom::new(5);
    for _ in 0..LOOKED_UP.min(count) {
        files.metadata(format!("/directory/file-{}.txt", random.next_u64() % count))?;
    }
    Ok(count)
}

fn dirty(files: &Files, mebibytes: u64) -> Result<u64> {
    let sectors = mebibytes * MEBIBYTE / SECTOR_BYTES;
    let file = files.options().read(true).write(true).create(true).open("/file")?;
    let random = SeededRandom::new(6);
    let mut last = 0;
    for _ in 0..sectors {
        last = random.next_u64() % (2 * sectors);
        file.write_at(&[last as u8; SECTOR_BYTES as usize], last * SECTOR_BYTES)?;
    }
    files.sync()?;
    let mut found = vec![0; SECTOR_BYTES as usize];
    file.read_at(&mut found, last * SECTOR_BYTES)?;
    ensure!(found == [last as u8; SECTOR_BYTES as usize], "what was written is not there");
    Ok(sectors)
}

/// The most memory that this process had, in bytes.
fn peak_bytes() -> Result<u64> {
    let status = std::fs::read_to_string("/proc/self/status")?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).context("no VmHWM")?;
    Ok(line.trim().trim_end_matches(" kB").parse::<u64>()? * 1024)
}

/// What the process has used of all processors, in seconds.
fn processor_time() -> f64 {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ProcessCPUTime);
    time.tv_sec as f64 + time.tv_nsec as f64 / 1e9
}

fn main() -> Result<()> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let (kind, image, count, options) = match arguments.as_slice() {
        [kind, image, count] => (kind.as_str(), image, count, ""),
        [kind, image, count, options] => (kind.as_str(), image, count, options.as_str()),
        _ => bail!("usage: grow chunks|extents|snapshots|names|dirty IMAGE COUNT [OPTIONS]"),
    };
    let work = match kind {
        "chunks" => chunks,
        "extents" => extents,
        "snapshots" => snapshots,
        "names" => names,
        "dirty" => dirty,
        _ => bail!("there is no kind {kind}"),
    };
    let options = OpenOptions::parse(options).map_err(|error| anyhow::anyhow!("{error}"))?;
    let files = Files::open_with(image, options)?;
    let (before, start) = (counts(&files), (Instant::now(), processor_time()));
    let units = work(&files, count.parse().context("COUNT")?)?;
    let after = counts(&files);
    files.close()?;
    let (seconds, processor_seconds) = (start.0.elapsed().as_secs_f64(), processor_time() - start.1);
    let mut result = serde_json::json!({
        "seconds": seconds,
        "processor_seconds": processor_seconds,
        "processor µs each": processor_seconds * 1e6 / units as f64,
        "peak_bytes": peak_bytes()?,
        "units": units,
    });
    for (name, (before, after)) in COUNTERS.iter().zip(before.iter().zip(after)) {
        result[format!("{name} each")] = ((after - before) as f64 / units as f64).into();
    }
    println!("{result}");
    Ok(())
}
