//! Files made in a directory and every other one removed, again and again through the library, in one
//! process: what the batches of pending items take. It is the workload of `delayed_batch`
//! (docs/benchmarks/workloads.md) without the transport.
//!
//! `delayed-items IMAGE FILES ROUNDS OPTIONS` prints one JSON object, of medians over the rounds; the first
//! does not count, for what an engine touches for the first time costs more than all of these items. OPTIONS
//! are those of a mount.

use std::time::Instant;

use anyhow::{Context, Result, bail, ensure};
use vlinder_base::metrics::Value;
use vlinder_fs::OpenOptions;
use vlinder_fs::path::Files;

/// The command's allocator.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// Batches so far, and the nanoseconds that they took: of indexes, and of inodes.
fn batches(files: &Files) -> Result<[(u64, u64); 2]> {
    let samples = files.filesystem().engine().registry().snapshot();
    let value = |name: &str| samples.iter().find(|sample| sample.name == name).map(|sample| &sample.value);
    let of_kind = |batches, time| match (value(batches), value(time)) {
        (Some(Value::Counter(batches)), Some(Value::Histogram(time))) => Ok((*batches, time.sum)),
        _ => bail!("the batches are not counted"),
    };
    Ok([
        of_kind("delayed_items.insert_batches", "delayed_items.insert_time_ns")?,
        of_kind("delayed_items.other_batches", "delayed_items.other_time_ns")?,
    ])
}

/// The seed's script, in a directory of its own.
fn round(files: &Files, count: u64, number: u64) -> Result<()> {
    let directory = format!("/testdir{number}");
    files.create_dir(&directory)?;
    for file in 1..=count {
        files.create(format!("{directory}/file_{file}"))?;
    }
    for file in (1..=count).step_by(2) {
        files.remove_file(format!("{directory}/file_{file}"))?;
    }
    Ok(())
}

fn median(values: &mut [f64]) -> Result<f64> {
    values.sort_by(f64::total_cmp);
    values.get(values.len() / 2).copied().context("no rounds")
}

fn main() -> Result<()> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [image, count, rounds, options] = arguments.as_slice() else {
        bail!("usage: delayed-items IMAGE FILES ROUNDS OPTIONS");
    };
    let (count, rounds): (u64, u64) = (count.parse().context("FILES")?, rounds.parse().context("ROUNDS")?);
    let options = OpenOptions::parse(options).map_err(|error| anyhow::anyhow!("{error}"))?;
    let files = Files::open_with(image, options)?;
    let mut medians = serde_json::Map::new();
    let (mut counts, mut syncs) = (<[Vec<f64>; 4]>::default(), Vec::new());
    for number in 0..=rounds {
        let before = batches(&files)?;
        round(&files, count, number)?;
        let start = Instant::now();
        files.sync()?;
        let seconds = start.elapsed().as_secs_f64();
        let after = batches(&files)?;
        ensure!(after[0].0 > before[0].0, "nothing was inserted");
        if number > 0 {
            for kind in 0..2 {
                counts[2 * kind].push((after[kind].0 - before[kind].0) as f64);
                counts[2 * kind + 1].push((after[kind].1 - before[kind].1) as f64 / 1000.0);
            }
            syncs.push(seconds);
        }
    }
    files.close()?;
    let names = ["insert batches", "insert time, µs", "inode batches", "inode time, µs"];
    for (name, values) in names.iter().zip(&mut counts) {
        medians.insert((*name).into(), median(values)?.into());
    }
    medians.insert("seconds".into(), median(&mut syncs)?.into());
    println!("{}", serde_json::Value::Object(medians));
    Ok(())
}
