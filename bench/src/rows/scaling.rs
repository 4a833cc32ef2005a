//! Growth of one kind of thing at a time: the program `grow` makes ever more of it on a fresh image.
//!
//! What the library counts for each of them is noted beside the time; a count that grew faster than the
//! logarithm of their number fails the row.

use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};

use crate::command::{program, shell};
use crate::host::Host;
use crate::row::{Outcome, Row, Side};

/// A kind that the program knows, and the images that it needs.
#[derive(Clone, Copy)]
struct Kind {
    name: &'static str,
    /// The smallest number, that the growth is measured from.
    least: u64,
    image_size: &'static str,
    options: &'static str,
    /// What the mount may keep in memory by its options, in bytes.
    memory: u64,
    /// The most that [`STEADY`] may come to for each, however many there are, where the fewest are no
    /// measure.
    most: Option<[f64; 3]>,
}

const MEBIBYTE: u64 = 1 << 20;
/// The default of `cache=` and `dirty=`, and what the rest of a process takes.
const DEFAULT_MEMORY: u64 = (256 + 64 + 64) * MEBIBYTE;

/// The subvolume's root names about 140 leaves. For each snapshot they get a reference more. With few
/// snapshots these lie together; with many each leaf has a list of references longer than a leaf, and two
/// leaves of the extent tree change for it, that with the item and that with the end of the list, after up to
/// eight descents.
const SNAPSHOTS: Kind = Kind {
    name: "snapshots",
    least: 10,
    image_size: "16G",
    options: "",
    memory: DEFAULT_MEMORY,
    most: Some([2_500.0, 1.0, 360.0]),
};
const EXTENTS: Kind = Kind {
    name: "extents",
    least: 1_000,
    image_size: "64G",
    options: "",
    memory: DEFAULT_MEMORY,
    most: None,
};
const CHUNKS: Kind =
    Kind { name: "chunks", least: 10, image_size: "1P", options: "", memory: DEFAULT_MEMORY, most: None };
const DIRTY: Kind = Kind {
    name: "dirty",
    least: 32,
    image_size: "16G",
    options: "dirty=32M",
    memory: (256 + 32 + 64) * MEBIBYTE,
    most: None,
};

/// A directory has its names in the order of their hashes, so each lies in any of the leaves. As long as
/// these are in memory, one that many names change is written once for all of them. Ten million names have
/// 252,212 blocks of 16 KiB, too many for that, and each name has one read and written of its own.
const NAMES: Kind = Kind {
    name: "names",
    least: 1_000,
    image_size: "64G",
    options: "",
    memory: DEFAULT_MEMORY,
    most: Some([24.0, 1.0, 1.5]),
};

/// Counts that must not grow with the number but by the depth of the trees.
const STEADY: [&str; 3] = ["tree.descents each", "tree.blocks_read each", "transaction.blocks_written each"];

pub fn rows() -> Vec<Row> {
    macro_rules! row {
        ($id:literal, $workload:literal, $kind:expr, $($name:literal: $count:literal),+) => {
            Row {
                id: $id,
                workload: $workload,
                goal: "O(n log n) at worst (the ratio is the growth of the whole); memory within the settings",
                files: Some(1),
                prepare: |_, _| Ok(()),
                sides: vec![$(Side { name: $name, needs: "grow", run: |host, _| grow(host, $kind, $count) }),+],
            }
        };
    }
    vec![
        row!(
            "G6",
            "snapshots of a subvolume of 1,000 inline files, one of which changes before each",
            SNAPSHOTS,
            "10": 10, "100": 100, "1,000": 1_000, "10,000": 10_000
        ),
        row!(
            "G7",
            "extents preallocated in one file, each behind a hole, mapped, and removed",
            EXTENTS,
            "1,000": 1_000, "10,000": 10_000, "100,000": 100_000, "1,000,000": 1_000_000, "4,000,000": 4_000_000
        ),
        row!(
            "G8",
            "chunks of 1 GiB made for preallocated files in an image of 1 PiB",
            CHUNKS,
            "10": 10, "100": 100, "1,000": 1_000, "10,000": 10_000, "100,000": 100_000
        ),
        row!(
            "G9",
            "MiB written in blocks of 4 KiB to random places of one file with dirty=32M, and made durable",
            DIRTY,
            "32": 32, "64": 64, "128": 128, "256": 256
        ),
        row!(
            "G10",
            "files made in one directory, and made durable, and 10,000 random ones of them looked up",
            NAMES,
            "1,000": 1_000, "10,000": 10_000, "100,000": 100_000, "1,000,000": 1_000_000, "10,000,000": 10_000_000
        ),
    ]
}

/// So many of a kind on a fresh image, which both checkers judge.
fn grow(host: &Host, kind: Kind, count: u64) -> Result<Outcome> {
    let image = host.path("grow");
    shell(&format!(
        "rm -f {image}; truncate -s {} {image}; vlinder mkfs -f {image} >/dev/null",
        kind.image_size
    ))?;
    let result = run(&image, kind, count)?;
    let number = |name: &str| result[name].as_f64().with_context(|| format!("no {name} in {result}"));
    let peak_bytes = result["peak_bytes"].as_u64().context("no peak_bytes")?;
    ensure!(peak_bytes <= kind.memory, "{count} {}: {} MiB of memory", kind.name, peak_bytes / MEBIBYTE);
    for name in ["processor µs each", "transaction.commits each"].iter().chain(&STEADY) {
        host.note(name, number(name)?);
    }
    if count > kind.least {
        let most = match kind.most {
            Some(most) => most,
            None => most_by_least(host, kind, count)?,
        };
        for (name, most) in STEADY.iter().zip(most) {
            ensure!(number(name)? <= most, "{count} {}: {} {name}, at most {most}", kind.name, number(name)?);
        }
    }
    judge(&image)?;
    Ok(Outcome { time: Duration::from_secs_f64(number("seconds")?), peak_bytes })
}

/// What the counts may come to by those of the smallest number. A tree of n items has a depth of at least 1,
/// so a logarithm grows by no more than the number of digits does.
fn most_by_least(host: &Host, kind: Kind, count: u64) -> Result<[f64; 3]> {
    let few = run_least(host, kind)?;
    let digits = f64::from(count.ilog10()) / f64::from(kind.least.ilog10());
    let mut most = [0.0; 3];
    for (name, most) in STEADY.iter().zip(&mut most) {
        *most = 1.0 + few[name].as_f64().with_context(|| format!("no {name}"))? * digits * 1.25;
    }
    Ok(most)
}

/// The smallest number of a kind, on an image of its own.
fn run_least(host: &Host, kind: Kind) -> Result<serde_json::Value> {
    let image = host.path("grow-least");
    shell(&format!("truncate -s {} {image}; vlinder mkfs -f {image} >/dev/null", kind.image_size))?;
    let result = run(&image, kind, kind.least);
    shell(&format!("rm {image}"))?;
    result
}

fn run(image: &str, kind: Kind, count: u64) -> Result<serde_json::Value> {
    let output = Command::new(program("grow")?)
        .args([kind.name, image, &count.to_string(), kind.options])
        .output()
        .context("running grow")?;
    if !output.status.success() {
        bail!("grow {} {count}: {}", kind.name, String::from_utf8_lossy(&output.stderr));
    }
    Ok(serde_json::from_slice(&output.stdout)?)
}

fn judge(image: &str) -> Result<()> {
    shell(&format!(
        "vlinder check {image} >/dev/null 2>&1; btrfs check --readonly {image} >/dev/null 2>&1; rm {image}"
    ))
    .map(drop)
}
