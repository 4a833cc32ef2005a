//! The judge against `btrfs check`, and how its time and memory grow.

use std::fs::{File, OpenOptions};
use std::io::Write;
use std::path::Path;

use anyhow::{Context, Result, bail};

use crate::command::shell;
use crate::host::Host;
use crate::row::{Outcome, Row, Side};
use crate::span::Span;

/// Files of the image that all judges check.
const FILES: u64 = 200_000;
/// Files of the subvolume that is snapshotted again and again.
const SNAPSHOTTED: u64 = 5_000;

pub fn rows() -> Vec<Row> {
    vec![
        Row {
            id: "U6",
            workload: "check of 200,000 files of 2,000 bytes (inline) and 50,000 more, with two snapshots, made by the kernel (1.4 GB, all metadata)",
            goal: "≥ 5 on 2 cores; ≤ 256 MiB",
            files: Some(FILES),
            prepare: |host, _| make_inline(host, "u6", FILES),
            sides: vec![
                Side { name: "vlinder check", needs: "vlinder", run: |host, _| own(host, "u6") },
                Side { name: "btrfs check", needs: "btrfs", run: |host, _| peer(host, "u6") },
            ],
        },
        Row {
            id: "G4",
            workload: "check of 5,000 inline files under snapshots, one file in 50 changed before each",
            goal: "time by block constant (the ratio is the growth of the whole); ≤ 256 MiB",
            files: Some(SNAPSHOTTED),
            prepare: |host, _| [10, 100, 1000].into_iter().try_for_each(|count| make_snapshots(host, count)),
            sides: vec![
                Side { name: "10 snapshots", needs: "vlinder", run: |host, _| own(host, "g4-10") },
                Side { name: "100 snapshots", needs: "vlinder", run: |host, _| own(host, "g4-100") },
                Side { name: "1,000 snapshots", needs: "vlinder", run: |host, _| own(host, "g4-1000") },
                Side { name: "btrfs check, 10", needs: "btrfs", run: |host, _| peer(host, "g4-10") },
                Side { name: "btrfs check, 100", needs: "btrfs", run: |host, _| peer(host, "g4-100") },
                Side { name: "btrfs check, 1,000", needs: "btrfs", run: |host, _| peer(host, "g4-1000") },
            ],
        },
        Row {
            id: "G5",
            workload: "check of empty files in directories of 1,000",
            goal: "time by file constant (the ratio is the growth of the whole); ≤ 256 MiB",
            files: Some(1_000_000),
            prepare: |host, _| {
                [1_000, 10_000, 100_000, 1_000_000].into_iter().try_for_each(|files| make_empty(host, files))
            },
            sides: vec![
                Side { name: "1,000 files", needs: "vlinder", run: |host, _| own(host, "g5-1000") },
                Side { name: "10,000 files", needs: "vlinder", run: |host, _| own(host, "g5-10000") },
                Side { name: "100,000 files", needs: "vlinder", run: |host, _| own(host, "g5-100000") },
                Side { name: "1,000,000 files", needs: "vlinder", run: |host, _| own(host, "g5-1000000") },
                Side {
                    name: "btrfs check, 1,000,000",
                    needs: "btrfs",
                    run: |host, _| peer(host, "g5-1000000"),
                },
            ],
        },
    ]
}

/// An image that the kernel fills through a mount.
fn make(host: &Host, name: &str, fill: impl FnOnce(&Path) -> Result<()>) -> Result<()> {
    let (image, mountpoint) = (host.path(name), host.path("check-mount"));
    if Path::new(&image).exists() {
        return Ok(());
    }
    shell(&format!(
        "truncate -s 8G {image}; mkfs.btrfs -q {image} 2>/dev/null; mkdir -p {mountpoint}; mount -o loop,max_inline=2048 {image} {mountpoint}"
    ))?;
    let filled = fill(Path::new(&mountpoint));
    shell(&format!("umount {mountpoint}"))?;
    filled
}

fn write_inline(directory: &Path, numbers: impl Iterator<Item = u64>) -> Result<()> {
    for number in numbers {
        let path = directory.join(format!("file_{number}"));
        File::create(&path).and_then(|mut file| file.write_all(&[0xab; 2000])).context("writing a file")?;
    }
    Ok(())
}

fn change(directory: &Path, numbers: impl Iterator<Item = u64>, byte: u8) -> Result<()> {
    for number in numbers {
        let path = directory.join(format!("file_{number}"));
        let file = OpenOptions::new().write(true).open(&path);
        file.and_then(|mut file| file.write_all(&[byte; 20])).context("changing a file")?;
    }
    Ok(())
}

fn snapshot(directory: &Path, name: &str) -> Result<()> {
    let directory = directory.display();
    shell(&format!("btrfs subvolume snapshot -r {directory} {directory}/{name}")).map(drop)
}

/// The image of `send_readahead`'s workload (docs/benchmarks/workloads.md), of which an incremental send
/// would be made.
pub(super) fn make_inline(host: &Host, name: &str, files: u64) -> Result<()> {
    make(host, name, |directory| {
        write_inline(directory, 1..=files)?;
        shell(&format!("sync -f {}", directory.display()))?;
        snapshot(directory, "snap1")?;
        write_inline(directory, files + 1..=files + files / 4)?;
        change(directory, (1..files).step_by(50), 0xcd)?;
        snapshot(directory, "snap2")
    })
}

fn make_snapshots(host: &Host, count: u64) -> Result<()> {
    make(host, &format!("g4-{count}"), |directory| {
        let source = directory.join("source");
        shell(&format!("btrfs subvolume create {}", source.display()))?;
        write_inline(&source, 1..=SNAPSHOTTED)?;
        for round in 0..count {
            change(&source, (1 + round % 50..SNAPSHOTTED).step_by(50), round.to_le_bytes()[0])?;
            let (source, directory) = (source.display(), directory.display());
            shell(&format!("btrfs subvolume snapshot -r {source} {directory}/snapshot-{round}"))?;
        }
        Ok(())
    })
}

fn make_empty(host: &Host, files: u64) -> Result<()> {
    make(host, &format!("g5-{files}"), |directory| {
        for file in 0..files {
            let inside = directory.join(format!("d{}", file / 1000));
            if file % 1000 == 0 {
                std::fs::create_dir(&inside)?;
            }
            File::create(inside.join(format!("file-{file}.txt")))?;
        }
        Ok(())
    })
}

/// The judge, timed under GNU time for its peak memory; it must find nothing.
fn timed(host: &Host, script: &str) -> Result<(Outcome, String)> {
    let account = host.path("check-account");
    let span = Span::begin(host, None)?;
    let said = shell(&format!("/usr/bin/time -f %M -o {account} {script} 2>&1"))?;
    let time = span.end()?;
    let kib = std::fs::read_to_string(&account).unwrap_or_default();
    Ok((Outcome { time, peak_bytes: kib.trim().parse::<u64>().unwrap_or_default() * 1024 }, said))
}

fn own(host: &Host, name: &str) -> Result<Outcome> {
    let (outcome, said) = timed(host, &format!("vlinder check {}", host.path(name)))?;
    if !said.contains("clean") || outcome.peak_bytes > 256 << 20 {
        bail!("{} MiB at most, and it said: {said}", outcome.peak_bytes >> 20);
    }
    Ok(outcome)
}

fn peer(host: &Host, name: &str) -> Result<Outcome> {
    let (outcome, said) = timed(host, &format!("btrfs check --readonly {}", host.path(name)))?;
    if !said.contains("no error found") {
        bail!("it said: {said}");
    }
    Ok(outcome)
}
