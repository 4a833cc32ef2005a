//! What `seek_cache` and `delayed_batch` are worth: a sparse file copied, and files of which every other one
//! is removed (docs/benchmarks/workloads.md).

use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};

use super::mounts::{Mounted, Server};
use crate::command::{program, shell};
use crate::host::Host;
use crate::row::{Outcome, Row, Run, Side};

/// The size of the sparse file.
const FILE_MEBIBYTES: u64 = 1024;
/// Growth is measured over these.
const GROWTH_MEBIBYTES: [u64; 4] = [128, 512, 1024, 4096];
/// Nothing is flushed before the copy is done.
const UNFLUSHED: &str = "dirty=8G,commit=3000";

pub fn rows() -> Vec<Row> {
    let mut rows = copies();
    rows.push(growth());
    rows.extend([few_batches(), many_batches()]);
    rows
}

fn kernel_side(run: Run) -> Side {
    Side { name: "kernel mount, cp", needs: "losetup", run }
}

fn cold_copy() -> Row {
    Row {
        id: "S1A",
        workload: "sparse file of 1 GiB, 131,072 extents of 4 KiB, copied out of a cold image: to /dev/null and to a file",
        goal: "null: ≥ 12 × kernel, and ≤ 1.5 × a plain read of the same bytes; file: ≥ 5 × kernel, holes kept",
        files: Some(1),
        prepare: |host, _| prepare_file(host, FILE_MEBIBYTES),
        sides: vec![
            Side { name: "vlinder cp", needs: "vlinder", run: |host, _| timed_copy(host, "/dev/null") },
            kernel_side(|host, _| kernel_copy(host, "/dev/null", false)),
            Side {
                name: "library, every byte compared",
                needs: "sparse-file",
                run: |host, _| sparse(host, "cold", FILE_MEBIBYTES, ""),
            },
            Side { name: "plain read of the same bytes", needs: "dd", run: |host, _| plain_read(host) },
            Side { name: "vlinder cp to a file", needs: "vlinder", run: |host, _| own_copy(host) },
            Side {
                name: "kernel mount, cp to a file",
                needs: "losetup",
                run: |host, _| {
                    let out = host.path("s1-out");
                    kernel_copy(host, &out, false)
                },
            },
        ],
    }
}

fn copies() -> Vec<Row> {
    vec![
        cold_copy(),
        Row {
            id: "S1B",
            workload: "the same file, warm, in one process",
            goal: "≥ 8 × kernel",
            files: Some(1),
            prepare: |host, _| prepare_file(host, FILE_MEBIBYTES),
            sides: vec![
                Side {
                    name: "library",
                    needs: "sparse-file",
                    run: |host, _| sparse(host, "warm", FILE_MEBIBYTES, ""),
                },
                kernel_side(|host, _| kernel_copy(host, "/dev/null", true)),
                Side {
                    name: "library, seek_cache off",
                    needs: "sparse-file",
                    run: |host, _| sparse(host, "warm", FILE_MEBIBYTES, "disable=seek_cache"),
                },
            ],
        },
        Row {
            id: "S1C",
            workload: "the same file, none of it flushed",
            goal: "≥ 8 × kernel",
            files: Some(1),
            prepare: |_, _| Ok(()),
            sides: vec![
                Side {
                    name: "library",
                    needs: "sparse-file",
                    run: |host, _| sparse(host, "delalloc", FILE_MEBIBYTES, ""),
                },
                kernel_side(|host, _| kernel_delalloc(host)),
                Side {
                    name: "library, seek_cache off",
                    needs: "sparse-file",
                    run: |host, _| sparse(host, "delalloc", FILE_MEBIBYTES, "disable=seek_cache"),
                },
            ],
        },
    ]
}

fn growth() -> Row {
    Row {
        id: "S1D",
        workload: "the same with files of 128, 512, 1,024 and 4,096 MiB: what is visited and read for each extent",
        goal: "states visited, nodes visited and bytes read constant for each extent (counts)",
        files: Some(1),
        prepare: |_, _| Ok(()),
        sides: vec![
            Side { name: "cold", needs: "sparse-file", run: |host, _| growing(host, "cold", "") },
            Side { name: "warm", needs: "sparse-file", run: |host, _| growing(host, "warm", "") },
            Side { name: "unflushed", needs: "sparse-file", run: |host, _| growing(host, "delalloc", "") },
            Side {
                name: "unflushed, seek_cache off",
                needs: "sparse-file",
                run: |host, _| growing(host, "delalloc", "disable=seek_cache"),
            },
        ],
    }
}

fn image_of(host: &Host, mebibytes: u64) -> String {
    host.path(&format!("s1-{mebibytes}"))
}

fn prepare_file(host: &Host, mebibytes: u64) -> Result<()> {
    let image = image_of(host, mebibytes);
    if Path::new(&image).exists() {
        return Ok(());
    }
    shell(&format!(
        "truncate -s 8G {image}; vlinder mkfs -f {image} >/dev/null; sparse-file make {image} {mebibytes}; btrfs check --readonly {image} >/dev/null 2>&1"
    ))
    .map(drop)
}

/// What is counted for each extent.
const EXTENT_COUNTS: [&str; 4] =
    ["delalloc.states_visited", "tree.descents", "tree.blocks_read", "bytes read"];

/// Runs the program on the file of an image; its counts for each extent are noted.
fn sparse(host: &Host, state: &str, mebibytes: u64, options: &str) -> Result<Outcome> {
    counted(host, state, mebibytes, options).map(|(outcome, _)| outcome)
}

/// As [`sparse`], and gives the counts.
fn counted(host: &Host, state: &str, mebibytes: u64, options: &str) -> Result<(Outcome, [f64; 4])> {
    let image = if state == "delalloc" {
        let image = host.path("s1-fresh");
        shell(&format!("rm -f {image}; truncate -s 8G {image}; vlinder mkfs -f {image} >/dev/null"))?;
        image
    } else {
        image_of(host, mebibytes)
    };
    let options = match (state, options) {
        ("delalloc", "") => UNFLUSHED.to_owned(),
        ("delalloc", options) => format!("{UNFLUSHED},{options}"),
        (_, options) => options.to_owned(),
    };
    let account = host.path("account");
    let output = Command::new("/usr/bin/time")
        .args(["-f", "%M", "-o", &account])
        .arg(program("sparse-file")?)
        .args([state, &image, &mebibytes.to_string(), &options])
        .output()
        .context("running sparse-file")?;
    if !output.status.success() {
        bail!("sparse-file: {}", String::from_utf8_lossy(&output.stderr));
    }
    let result: serde_json::Value = serde_json::from_slice(&output.stdout)?;
    let mut counts = [0.0; 4];
    for (name, count) in EXTENT_COUNTS.iter().zip(&mut counts) {
        let name = format!("{name} per extent");
        *count = result[&name].as_f64().with_context(|| format!("no {name} in {result}"))?;
        host.note(&format!("{mebibytes} MiB: {name}"), *count);
    }
    host.note("processor s", result["processor_seconds"].as_f64().context("no processor_seconds")?);
    let kib: u64 = std::fs::read_to_string(&account).unwrap_or_default().trim().parse().unwrap_or_default();
    let seconds = result["seconds"].as_f64().context("no seconds")?;
    Ok((Outcome { time: Duration::from_secs_f64(seconds), peak_bytes: kib * 1024 }, counts))
}

/// What a count for each extent may grow by from the smallest file to any other, beside a twentieth: a file
/// has a path of tree blocks however small it is.
const SLACK: f64 = 0.01;

fn growing(host: &Host, state: &str, options: &str) -> Result<Outcome> {
    let (mut time, mut peak_bytes, mut smallest) = (Duration::ZERO, 0, None);
    for mebibytes in GROWTH_MEBIBYTES {
        if state != "delalloc" {
            prepare_file(host, mebibytes)?;
        }
        let (outcome, counts) = counted(host, state, mebibytes, options)?;
        let first = *smallest.get_or_insert(counts);
        for ((name, count), first) in EXTENT_COUNTS.iter().zip(counts).zip(first) {
            if count > first * 1.05 + SLACK {
                bail!("{mebibytes} MiB, {state}: {count} {name} per extent instead of {first}");
            }
        }
        host.note(&format!("{mebibytes} MiB: seconds"), outcome.time.as_secs_f64());
        time += outcome.time;
        peak_bytes = peak_bytes.max(outcome.peak_bytes);
    }
    Ok(Outcome { time, peak_bytes })
}

/// A file of as many bytes as the sparse one has data, read by a program that looks at none of them.
fn plain_read(host: &Host) -> Result<Outcome> {
    let file = host.path("s1-plain");
    if !Path::new(&file).exists() {
        std::fs::write(&file, vec![0xab; usize::try_from(FILE_MEBIBYTES << 19)?])?;
    }
    let start = Instant::now();
    shell(&format!("dd if={file} of=/dev/null bs=1M status=none"))?;
    Ok(Outcome { time: start.elapsed(), peak_bytes: 0 })
}

/// `vlinder cp` of the file, with the opening of the image inside the time.
fn timed_copy(host: &Host, out: &str) -> Result<Outcome> {
    let (image, account) = (image_of(host, FILE_MEBIBYTES), host.path("account"));
    let start = Instant::now();
    shell(&format!("/usr/bin/time -f %M -o {account} vlinder cp {image}:/foobar {out}"))?;
    let time = start.elapsed();
    let kib: u64 = std::fs::read_to_string(&account).unwrap_or_default().trim().parse().unwrap_or_default();
    Ok(Outcome { time, peak_bytes: kib * 1024 })
}

fn own_copy(host: &Host) -> Result<Outcome> {
    let out = host.path("s1-own");
    shell(&format!("rm -f {out}"))?;
    let outcome = timed_copy(host, &out)?;
    let blocks = shell(&format!("stat -c %b {out}"))?;
    let most = FILE_MEBIBYTES << 20 >> 10;
    if blocks.trim().parse::<u64>()? > most + most / 16 {
        bail!("the copy has no holes: {} blocks", blocks.trim());
    }
    Ok(outcome)
}

/// User and system time that GNU time noted.
fn processor_seconds(account: &str) -> Result<f64> {
    let text = std::fs::read_to_string(account)?;
    let last = text.lines().last().unwrap_or_default();
    last.split_whitespace().map(|part| part.parse::<f64>().context("what time noted")).sum()
}

/// `cp` on the kernel's mount of the image: with the mount inside the time, or warm.
fn kernel_copy(host: &Host, out: &str, warm: bool) -> Result<Outcome> {
    let (image, point) = (image_of(host, FILE_MEBIBYTES), host.path("s1-mnt"));
    shell(&format!("mkdir -p {point}; echo 3 > /proc/sys/vm/drop_caches"))?;
    let start = Instant::now();
    shell(&format!("mount -o loop,ro {image} {point}"))?;
    let mounted = Instant::now();
    let account = host.path("account");
    let copy = || shell(&format!("/usr/bin/time -f '%U %S' -o {account} cp {point}/foobar {out}"));
    copy()?;
    let mut time = start.elapsed();
    if warm {
        let start = Instant::now();
        copy()?;
        time = start.elapsed();
    }
    host.note(
        "without the mount, s",
        if warm { time.as_secs_f64() } else { mounted.elapsed().as_secs_f64() },
    );
    shell(&format!("umount {point}"))?;
    Ok(Outcome { time, peak_bytes: 0 })
}

/// The file is written to the kernel's mount, and copied before it is flushed: 512 MiB are too few, and a
/// second is too short, for the kernel to begin by itself.
fn kernel_delalloc(host: &Host) -> Result<Outcome> {
    use std::os::unix::fs::FileExt;
    let (image, point) = (host.path("s1-kernel"), host.path("s1-mnt"));
    shell(&format!(
        "mkdir -p {point}; rm -f {image}; truncate -s 8G {image}; mkfs.btrfs -q -f {image}; mount -o loop,commit=3000 {image} {point}"
    ))?;
    let made = (|| -> Result<Duration> {
        let file = std::fs::File::create(format!("{point}/foobar"))?;
        for offset in (0..FILE_MEBIBYTES << 20).step_by(8192) {
            file.write_all_at(&[0xab; 4096], offset)?;
        }
        let (start, account) = (Instant::now(), host.path("account"));
        shell(&format!("/usr/bin/time -f '%U %S' -o {account} cp {point}/foobar /dev/null"))?;
        let time = start.elapsed();
        host.note("processor s", processor_seconds(&account)?);
        Ok(time)
    })();
    shell(&format!("umount {point}; rm -f {image}"))?;
    Ok(Outcome { time: made?, peak_bytes: 0 })
}

const UNCOMMITTED: &str = "commit=3000,dirty=1G";
const UNCOMMITTED_OFF: &str = "commit=3000,dirty=1G,disable=delayed_batch";

fn few_batches() -> Row {
    Row {
        id: "S2-100",
        workload: "100 files made, every other one removed, sync (the time of the sync): in one process, again and again; and once on a mount",
        goal: "≤ 2 insert batches (off: about 51), insert time ≤ 1/3 of off",
        files: Some(100),
        prepare: |_, _| Ok(()),
        sides: vec![
            Side { name: "library", needs: "delayed-items", run: |host, _| in_process(host, UNCOMMITTED) },
            Side {
                name: "library, delayed_batch off",
                needs: "delayed-items",
                run: |host, _| in_process(host, UNCOMMITTED_OFF),
            },
            Side {
                name: "vlinder mount",
                needs: "vlinder",
                run: |host, _| make_and_remove(host, 100, UNCOMMITTED),
            },
            Side {
                name: "vlinder mount, delayed_batch off",
                needs: "vlinder",
                run: |host, _| make_and_remove(host, 100, UNCOMMITTED_OFF),
            },
        ],
    }
}

fn many_batches() -> Row {
    const FILES: u64 = 100_000;
    Row {
        id: "S2-100000",
        workload: "100,000 files made on a mount, every other one removed, sync (the time of the sync)",
        goal: "≤ 1 insert batch a leaf",
        files: Some(FILES),
        prepare: |_, _| Ok(()),
        sides: vec![
            Side {
                name: "vlinder mount",
                needs: "vlinder",
                run: |host, _| make_and_remove(host, FILES, UNCOMMITTED),
            },
            Side {
                name: "delayed_batch off",
                needs: "vlinder",
                run: |host, _| make_and_remove(host, FILES, UNCOMMITTED_OFF),
            },
        ],
    }
}

/// Rounds of the small workload that are measured, after one that is not: what a commit touches for the first
/// time costs more than all of these items.
const ROUNDS: u32 = 100;

/// The workload through the library, in one process.
fn in_process(host: &Host, options: &str) -> Result<Outcome> {
    let image = host.path("s2");
    shell(&format!("rm -f {image}; truncate -s 4G {image}; vlinder mkfs -f {image} >/dev/null"))?;
    let account = host.path("account");
    let said =
        shell(&format!("/usr/bin/time -f %M -o {account} delayed-items {image} 100 {ROUNDS} {options}"))?;
    let result: serde_json::Value = serde_json::from_str(&said)?;
    for name in ["insert batches", "insert time, µs", "inode batches", "inode time, µs"] {
        host.note(name, result[name].as_f64().with_context(|| format!("no {name} in {said}"))?);
    }
    shell(&format!("btrfs check --readonly {image} >/dev/null 2>&1 && rm -f {image}"))?;
    let kib: u64 = std::fs::read_to_string(&account)?.trim().parse()?;
    let seconds = result["seconds"].as_f64().context("no seconds")?;
    Ok(Outcome { time: Duration::from_secs_f64(seconds), peak_bytes: kib * 1024 })
}

fn make_and_remove(host: &Host, files: u64, options: &str) -> Result<Outcome> {
    let image = host.path("s2");
    shell(&format!("rm -f {image}; truncate -s 4G {image}; vlinder mkfs -f {image} >/dev/null"))?;
    let mut mounted = Mounted::open(host, Server::Vlinder, "s2", options)?;
    let before = Inserted::so_far(&mounted)?;
    let time = make_and_remove_once(&mut mounted, files)?;
    let after = Inserted::so_far(&mounted)?;
    for (name, after, before) in [
        ("insert batches", after.batches, before.batches),
        ("insert time, µs", after.microseconds, before.microseconds),
        ("inode batches", after.inode_batches, before.inode_batches),
        ("inode time, µs", after.inode_microseconds, before.inode_microseconds),
    ] {
        host.note(name, after - before);
    }
    let peak_bytes = mounted.end()?;
    let leaves = shell(&format!("vlinder inspect-internal dump-tree -t 5 {image} | grep -c '^leaf '"))?;
    host.note("leaves of the tree", leaves.trim().parse()?);
    shell(&format!("btrfs check --readonly {image} >/dev/null 2>&1 && rm -f {image}"))?;
    Ok(Outcome { time, peak_bytes })
}

/// Makes files in a directory of their own and removes every other one; gives how long the sync takes.
fn make_and_remove_once(mounted: &mut Mounted, files: u64) -> Result<Duration> {
    let directory = mounted.path("testdir");
    std::fs::create_dir(&directory)?;
    for number in 1..=files {
        std::fs::File::create(format!("{directory}/file_{number}"))?;
    }
    for number in (1..=files).step_by(2) {
        std::fs::remove_file(format!("{directory}/file_{number}"))?;
    }
    let start = Instant::now();
    mounted.sync()?;
    Ok(start.elapsed())
}

/// What was put into trees in batches since the mount: directory indexes, and inodes.
struct Inserted {
    batches: f64,
    microseconds: f64,
    inode_batches: f64,
    inode_microseconds: f64,
}

impl Inserted {
    fn so_far(mounted: &Mounted) -> Result<Self> {
        let stats: serde_json::Value =
            serde_json::from_str(&shell(&format!("vlinder stats --json {}", mounted.path("")))?)?;
        let value = |name: &str| &stats["metrics"][name]["value"];
        let count = |name: &str| value(name).as_f64().with_context(|| format!("no {name}"));
        let sum = |name: &str| -> Result<f64> {
            Ok(value(name)["sum"].as_f64().with_context(|| format!("no {name}"))? / 1000.0)
        };
        Ok(Self {
            batches: count("delayed_items.insert_batches")?,
            microseconds: sum("delayed_items.insert_time_ns")?,
            inode_batches: count("delayed_items.other_batches")?,
            inode_microseconds: sum("delayed_items.other_time_ns")?,
        })
    }
}
