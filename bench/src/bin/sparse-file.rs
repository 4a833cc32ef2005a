//! A sparse file, 4 KiB of data and 4 KiB of hole in turn, copied as cp does it: seek to data, seek to the
//! hole behind, read what lies between, from the file's start to its end; through the library, in one
//! process. It is the workload of `seek_cache` (docs/benchmarks/workloads.md).
//!
//! `sparse-file STATE IMAGE MEBIBYTES [OPTIONS]` prints one JSON object. States: `make` writes `/foobar` into
//! an image, `cold` copies it from an image that was just opened, `warm` a second time, `delalloc` writes it
//! and copies it before any of it is flushed. OPTIONS are those of a mount. A copy that is timed looks at the
//! ends of what it reads, one that is not, before or after it, at all of it: cp does not look either.

use std::time::Instant;

use anyhow::{Context, Result, bail, ensure};
use vlinder_base::metrics::Value;
use vlinder_fs::data::Seek;
use vlinder_fs::path::{File, Files};
use vlinder_fs::{FsError, OpenOptions, Refusal};

const PIECE_BYTES: u64 = 4096;
const PIECE: [u8; PIECE_BYTES as usize] = [0xab; PIECE_BYTES as usize];
/// What the engine counts.
const COUNTERS: [&str; 4] =
    ["delalloc.states_visited", "extent_state.records_visited", "tree.descents", "tree.blocks_read"];
/// What the system counts: bytes that came through read(2) and its kin.
const BYTES_READ: &str = "bytes read";

fn write(files: &Files, mebibytes: u64) -> Result<File> {
    let file = files.options().read(true).write(true).create(true).open("/foobar")?;
    for offset in (0..mebibytes << 20).step_by(2 * PIECE_BYTES as usize) {
        file.write_at(&PIECE, offset)?;
    }
    Ok(file)
}

/// Whether these are bytes that were written, all of them.
fn are_right(bytes: &[u8]) -> bool {
    bytes.chunks(PIECE_BYTES as usize).all(|bytes| bytes == &PIECE[..bytes.len()])
}

/// Whether these are, as far as the ends tell.
fn end_right(bytes: &[u8]) -> bool {
    matches!(bytes, [0xab, .., 0xab])
}

/// Gives how many seeks it took, and how many bytes were data.
fn copy(file: &File, are_fine: impl Fn(&[u8]) -> bool) -> Result<(u64, u64)> {
    let (mut seeks, mut bytes, mut at) = (0, 0, 0);
    let mut buffer = vec![0; 1 << 20];
    loop {
        seeks += 1;
        let start = match file.seek_from(at, Seek::Data) {
            Ok(start) => start,
            Err(FsError::Refused(Refusal::NoSuchOffset)) => return Ok((seeks, bytes)),
            Err(error) => return Err(error.into()),
        };
        seeks += 1;
        let end = file.seek_from(start, Seek::Hole)?;
        at = start;
        while at < end {
            let part = buffer.len().min(usize::try_from(end - at)?);
            let read = file.read_at(&mut buffer[..part], at)?;
            ensure!(are_fine(&buffer[..read]), "wrong bytes at {at}");
            at += read as u64;
            bytes += read as u64;
        }
    }
}

fn bytes_read() -> Result<u64> {
    let account = std::fs::read_to_string("/proc/self/io").context("the account of reads")?;
    let line = account.lines().find_map(|line| line.strip_prefix("rchar: "));
    Ok(line.context("no count of bytes read")?.parse()?)
}

fn counts(files: &Files) -> Result<Vec<u64>> {
    let samples = files.filesystem().engine().registry().snapshot();
    let value =
        |name: &str| match samples.iter().find(|sample| sample.name == name).map(|sample| &sample.value) {
            Some(Value::Counter(value)) => *value,
            _ => 0,
        };
    let mut counts: Vec<u64> = COUNTERS.iter().map(|name| value(name)).collect();
    counts.push(bytes_read()?);
    Ok(counts)
}

/// What the process has used of all processors, in seconds.
fn processor_time() -> f64 {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ProcessCPUTime);
    time.tv_sec as f64 + time.tv_nsec as f64 / 1e9
}

fn main() -> Result<()> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let (state, image, mebibytes, options) = match arguments.as_slice() {
        [state, image, mebibytes] => (state.as_str(), image, mebibytes, ""),
        [state, image, mebibytes, options] => (state.as_str(), image, mebibytes, options.as_str()),
        _ => bail!("usage: sparse-file make|cold|warm|delalloc IMAGE MEBIBYTES [OPTIONS]"),
    };
    let mebibytes: u64 = mebibytes.parse().context("MEBIBYTES")?;
    let read_only = if matches!(state, "cold" | "warm") { "ro," } else { "" };
    let options = OpenOptions::parse(format!("{read_only}{options}").trim_end_matches(','))
        .map_err(|error| anyhow::anyhow!("{error}"))?;
    let files = Files::open_with(image, options)?;
    let file = match state {
        "make" | "delalloc" => write(&files, mebibytes)?,
        "cold" | "warm" => files.open_file("/foobar")?,
        _ => bail!("there is no state {state}"),
    };
    if state == "make" {
        drop(file);
        return Ok(files.close()?);
    }
    if state == "warm" {
        copy(&file, are_right)?;
    }
    let before = counts(&files)?;
    let start = (Instant::now(), processor_time());
    let (seeks, bytes) = copy(&file, end_right)?;
    let (seconds, processor_seconds) = (start.0.elapsed().as_secs_f64(), processor_time() - start.1);
    ensure!(bytes == mebibytes << 19, "{bytes} bytes of data");
    let after = counts(&files)?;
    if state != "warm" {
        copy(&file, are_right)?;
    }
    let extents = bytes / PIECE_BYTES;
    let mut result = serde_json::json!({ "seconds": seconds, "processor_seconds": processor_seconds, "seeks": seeks, "extents": extents });
    if state == "cold" {
        ensure!(after[COUNTERS.len()] - before[COUNTERS.len()] >= bytes, "data came from nowhere");
    }
    for (name, (before, after)) in COUNTERS.iter().chain([&BYTES_READ]).zip(before.iter().zip(after)) {
        result[*name] = (after - before).into();
        result[format!("{name} per extent")] = ((after - before) as f64 / extents as f64).into();
    }
    println!("{result}");
    // What was only written for this is not worth flushing.
    if state == "delalloc" {
        std::process::exit(0);
    }
    Ok(())
}
