//! fio's jobs: through the library by the engine of `tools/fio-engine`, against the kernel's own driver.

use std::path::PathBuf;
use std::time::Instant;

use anyhow::{Context, Result, bail, ensure};

use super::group_watch::Watch;
use super::mounts::{Mounted, Server};
use crate::command::{directory, shell};
use crate::host::Host;
use crate::observation::Observation;
use crate::row::{Outcome, Row, Settings, Side};
use crate::span::Span;

/// The file that all jobs share, as fio writes sizes.
const FILE: &str = "2G";
/// What each job writes: a gibibyte in all.
const EACH: &str = "87381k";
/// The job of `state_trim`'s workload (docs/benchmarks/workloads.md), but for where it goes.
const JOB: &str = "--name=s5 --rw=randwrite --bs=4k --direct=1 --iodepth=64 --numjobs=12 --thread --fallocate=none \
                   --group_reporting --overwrite=1 --norandommap";
const IMAGE: &str = "fio";

/// The job of `block_group_skip`'s workload, until ten times the size of its file is written.
const S3_JOB: &str = "--name=s3 --size=512M --io_size=1280M --rw=randwrite --direct=1 --bs=4k --iodepth=64 --numjobs=4 --thread \
                      --fallocate=none --fsync_on_close=1 --group_reporting";
const GROUPS_UPDATED: &str = "group items updated";
/// What is counted beside the time of that.
const S3_COUNTS: [(&str, &str); 7] = [
    ("transaction.commits", "commits"),
    ("block_groups.items_updated", GROUPS_UPDATED),
    ("block_groups.item_writes", "times that one was written"),
    ("block_groups.phase_time_ns.mean", "group phase of a commit, ns"),
    ("block_groups.phase_time_ns.p50", "group phase of a commit, median, ns"),
    ("transaction.critical_time_ns.mean", "critical phase of a commit, ns"),
    ("transaction.begin_wait_time_ns.p99", "stall of a new handle, p99, ns"),
];

/// What the library counts of S5a's workload in a comparison with an earlier commit.
const COUNTED: [&str; 10] = [
    "tree.descents",
    "tree.blocks_cowed",
    "tree.blocks_read",
    "tree.leaf_batches",
    "tree.splits",
    "transaction.commits",
    "transaction.blocks_written",
    "write_back.extents",
    "delayed_references.heads_run",
    "extent_state.records_allocated",
];

pub fn rows() -> Vec<Row> {
    vec![s3(), s5a()]
}

fn s3() -> Row {
    Row {
        id: "S3",
        workload: "fio: 4 jobs write 5 GiB in blocks of 4 KiB to random places of one file of 512 MiB, with a commit every second",
        goal: "items updated: exactly the groups that changed; group phase ≥ 18 % shorter than off; p99 of the stall ≤ 20 ms; ≥ 24 commits",
        files: Some(1),
        prepare: |_, _| Ok(()),
        sides: vec![
            Side { name: "vlinder, fio engine", needs: "fio", run: |host, _| groups(host, "commit=1") },
            Side {
                name: "block_group_skip off",
                needs: "fio",
                run: |host, _| groups(host, "commit=1,disable=block_group_skip"),
            },
        ],
    }
}

fn groups(host: &Host, options: &str) -> Result<Outcome> {
    let (image, engine) = (host.path("s3"), engine()?);
    shell(&format!("rm -f {image}; truncate -s 40G {image}; vlinder mkfs -f {image} >/dev/null"))?;
    let names = S3_COUNTS.map(|(name, _)| name).join(" ");
    let watch = Watch::begin(&image)?;
    let start = Instant::now();
    let said = shell(&format!(
        "/usr/bin/time -f 'peak %M' fio {engine} --image={image} --filename=/file --mount_options='{options}' --statistics='{names}' {S3_JOB} 2>&1"
    ))?;
    let time = start.elapsed();
    let number = |lead: &str| -> Result<f64> {
        let text = said.lines().find_map(|line| line.strip_prefix(lead));
        Ok(text.with_context(|| format!("no line {lead}in: {said}"))?.trim().parse()?)
    };
    let changed = watch.end()?;
    for (name, what) in S3_COUNTS {
        let value = number(&format!("vlinder: {name} "))?;
        host.note(what, value);
        if what == GROUPS_UPDATED && value != changed as f64 {
            bail!("{value} group items updated, but {changed} differ from one superblock to the next");
        }
    }
    host.note("groups that differ from one superblock to the next", changed as f64);
    judge(&image)?;
    Ok(Outcome { time, peak_bytes: number("peak ")? as u64 * 1024 })
}

fn s5a() -> Row {
    Row {
        id: "S5a",
        workload: "fio: 12 threads write 1 GiB in blocks of 4 KiB to random places of one file of 2 GiB, 64 in flight each, on the device when they complete; made durable at the end",
        goal: "≥ 10 × kernel",
        files: Some(1),
        prepare,
        sides: vec![
            Side { name: "vlinder, fio engine", needs: "fio", run: through_the_engine },
            Side { name: "kernel, libaio", needs: "fio", run: through_the_kernel },
        ],
    }
}

/// The engine's directory, beside that of the command.
pub fn engine_directory() -> Result<PathBuf> {
    Ok(directory()?.join("../fio-engine"))
}

/// The engine, built beside the command.
fn engine() -> Result<String> {
    let path = engine_directory()?.join("vlinder.so");
    ensure!(
        path.exists(),
        "the engine for fio is not built ({}): run `make fio-engine` first",
        path.display()
    );
    let path = path.canonicalize()?;
    Ok(format!("--ioengine=external:{}", path.display()))
}

/// An image with the file in it, from which every run starts.
fn prepare(host: &Host, _: &Settings) -> Result<()> {
    let (image, engine) = (host.path(IMAGE), engine()?);
    shell(&format!(
        "truncate -s 12G {image}; vlinder mkfs -f {image} >/dev/null;
         fio {engine} --thread --image={image} --filename=/file --name=fill --rw=write --bs=1M --size={FILE} >/dev/null"
    ))
    .map(drop)
}

fn copy(host: &Host) -> Result<String> {
    let run = host.path("fio-run");
    shell(&format!("cp --sparse=always {} {run}", host.path(IMAGE)))?;
    Ok(run)
}

fn judge(image: &str) -> Result<()> {
    shell(&format!("btrfs check --check-data-csum {image}; rm {image}")).map(drop)
}

fn through_the_engine(host: &Host, _: &Settings) -> Result<Outcome> {
    let (image, engine) = (copy(host)?, engine()?);
    // To be counted, the work is committed once more: that is left to the runs whose time nobody looks at.
    let statistics = match host.observation() {
        Observation::Allocations(_) => format!("--statistics='{}'", COUNTED.join(" ")),
        Observation::Nothing | Observation::Counters => String::new(),
    };
    let span = Span::begin(host, None)?;
    // The image is closed, and so durable, when fio ends.
    let said = shell(&format!(
        "/usr/bin/time -f 'peak %M' fio {engine} --image={image} --filename=/file {statistics} --size={FILE} --io_size={EACH} {JOB} 2>&1"
    ))?;
    let time = span.end()?;
    for line in said.lines().filter_map(|line| line.strip_prefix("vlinder: ")) {
        let (name, value) = line.split_once(' ').with_context(|| format!("a count in: {line}"))?;
        host.note(name, value.trim().parse()?);
    }
    let peak = said.lines().find_map(|line| line.strip_prefix("peak ")).context("no peak memory")?;
    judge(&image)?;
    Ok(Outcome { time, peak_bytes: peak.trim().parse::<u64>()? * 1024 })
}

fn through_the_kernel(host: &Host, _: &Settings) -> Result<Outcome> {
    let image = copy(host)?;
    let mut mounted = Mounted::open(host, Server::Kernel, "fio-run", "")?;
    let file = mounted.path("file");
    let start = Instant::now();
    shell(&format!(
        "fio --ioengine=libaio --filename={file} --size={FILE} --io_size={EACH} {JOB} >/dev/null"
    ))?;
    mounted.sync()?;
    let time = start.elapsed();
    mounted.end()?;
    judge(&image)?;
    Ok(Outcome { time, peak_bytes: 0 })
}
