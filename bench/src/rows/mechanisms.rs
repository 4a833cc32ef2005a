//! What `seek_cache` and `delayed_batch` are worth: a sparse file copied, and files of which every other one is removed
//! (docs/benchmarks/workloads.md).

use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};

use super::mounts::{Mounted, Server};
use crate::command::shell;
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
    rows.push(batches("S2-100", "100 files made, every other one removed, sync (the time of the sync)", 100));
    rows.push(batches(
        "S2-100000",
        "100,000 files made, every other one removed, sync (the time of the sync)",
        100_000,
    ));
    rows
}

fn copies() -> Vec<Row> {
    vec![cold_copy(), warm_copy(), unflushed_copy()]
}

/// The kernel's mount as a peer of a copy.
fn kernel(run: Run) -> Side {
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
            kernel(|host, _| kernel_copy(host, "/dev/null", false)),
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

fn warm_copy() -> Row {
    Row {
        workload: "the same file, warm, in one process",
        prepare: |host, _| prepare_file(host, FILE_MEBIBYTES),
        ..copy_in_one_process(
            "S1B",
            |host, _| sparse(host, "warm", FILE_MEBIBYTES, ""),
            |host, _| kernel_copy(host, "/dev/null", true),
            |host, _| sparse(host, "warm", FILE_MEBIBYTES, "disable=seek_cache"),
        )
    }
}

fn unflushed_copy() -> Row {
    Row {
        workload: "the same file, none of it flushed",
        ..copy_in_one_process(
            "S1C",
            |host, _| sparse(host, "delalloc", FILE_MEBIBYTES, ""),
            |host, _| kernel_delalloc(host),
            |host, _| sparse(host, "delalloc", FILE_MEBIBYTES, "disable=seek_cache"),
        )
    }
}

/// The library against the kernel's mount and itself without the mechanism, with nothing prepared.
fn copy_in_one_process(id: &'static str, own: Run, peer: Run, off: Run) -> Row {
    let library = |name, run| Side { name, needs: "sparse-file", run };
    Row {
        id,
        workload: "",
        goal: "≥ 8 × kernel",
        files: Some(1),
        prepare: |_, _| Ok(()),
        sides: vec![library("library", own), kernel(peer), library("library, seek_cache off", off)],
    }
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

/// Runs the program on the file of an image; its counts for each extent are noted.
fn sparse(host: &Host, state: &str, mebibytes: u64, options: &str) -> Result<Outcome> {
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
    let program = std::env::current_exe()?.with_file_name("sparse-file");
    let output = Command::new("/usr/bin/time")
        .args(["-f", "%M", "-o", &account])
        .arg(program)
        .args([state, &image, &mebibytes.to_string(), &options])
        .output()
        .context("running sparse-file")?;
    if !output.status.success() {
        bail!("sparse-file: {}", String::from_utf8_lossy(&output.stderr));
    }
    let result: serde_json::Value = serde_json::from_slice(&output.stdout)?;
    for name in ["delalloc.states_visited", "tree.descents", "tree.blocks_read"] {
        let name = format!("{name} per extent");
        let value = result[&name].as_f64().with_context(|| format!("no {name} in {result}"))?;
        host.note(&format!("{mebibytes} MiB: {name}"), value);
    }
    host.note("processor s", result["processor_seconds"].as_f64().context("no processor_seconds")?);
    let kib: u64 = std::fs::read_to_string(&account).unwrap_or_default().trim().parse().unwrap_or_default();
    let seconds = result["seconds"].as_f64().context("no seconds")?;
    Ok(Outcome { time: Duration::from_secs_f64(seconds), peak_bytes: kib * 1024 })
}

fn growing(host: &Host, state: &str, options: &str) -> Result<Outcome> {
    let (mut time, mut peak_bytes) = (Duration::ZERO, 0);
    for mebibytes in GROWTH_MEBIBYTES {
        if state != "delalloc" {
            prepare_file(host, mebibytes)?;
        }
        let outcome = sparse(host, state, mebibytes, options)?;
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

/// The file is written to the kernel's mount, and copied before it is flushed: 512 MiB are too few, and a second is too
/// short, for the kernel to begin by itself.
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

fn batches(id: &'static str, workload: &'static str, files: u64) -> Row {
    const OPTIONS: &str = "commit=3000,dirty=1G";
    const OFF: &str = "commit=3000,dirty=1G,disable=delayed_batch";
    let (on, off): (Run, Run) = match files {
        100 => (|host, _| make_and_remove(host, 100, OPTIONS), |host, _| make_and_remove(host, 100, OFF)),
        _ => {
            (|host, _| make_and_remove(host, 100_000, OPTIONS), |host, _| make_and_remove(host, 100_000, OFF))
        }
    };
    Row {
        id,
        workload,
        goal: "100: ≤ 2 batches (off: about 51), their time ≤ 1/3 of off; 100,000: ≤ 1 batch a leaf",
        files: Some(files),
        prepare: |_, _| Ok(()),
        sides: vec![
            Side { name: "vlinder mount", needs: "vlinder", run: on },
            Side { name: "delayed_batch off", needs: "vlinder", run: off },
        ],
    }
}

/// Rounds of the small workload that are measured, after one that is not: what a commit touches for the first time costs
/// more than all of these items.
const ROUNDS: u32 = 20;

fn make_and_remove(host: &Host, files: u64, options: &str) -> Result<Outcome> {
    let image = host.path("s2");
    shell(&format!("rm -f {image}; truncate -s 4G {image}; vlinder mkfs -f {image} >/dev/null"))?;
    let mut mounted = Mounted::open(host, Server::Vlinder, "s2", options)?;
    let (mut time, mut before, mut rounds) = (Duration::ZERO, Inserted::default(), 1);
    if files == 100 {
        make_and_remove_once(&mut mounted, files, 0)?;
        before = Inserted::so_far(&mounted)?;
        rounds = ROUNDS;
    }
    for round in 1..=rounds {
        time += make_and_remove_once(&mut mounted, files, round)?;
    }
    let after = Inserted::so_far(&mounted)?;
    let each = |total: f64| total / f64::from(rounds);
    host.note("insert batches", each(after.batches - before.batches));
    host.note("insert time, µs", each(after.nanoseconds - before.nanoseconds) / 1000.0);
    let time = time / rounds;
    let peak_bytes = mounted.end()?;
    let leaves = shell(&format!("vlinder inspect-internal dump-tree -t 5 {image} | grep -c '^leaf '"))?;
    host.note("leaves of the tree", leaves.trim().parse()?);
    shell(&format!("btrfs check --readonly {image} >/dev/null 2>&1 && rm -f {image}"))?;
    Ok(Outcome { time, peak_bytes })
}

/// Makes files in a directory of their own and removes every other one; gives how long the sync takes.
fn make_and_remove_once(mounted: &mut Mounted, files: u64, round: u32) -> Result<Duration> {
    let directory = mounted.path(&format!("testdir{round}"));
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

/// What was put into trees in batches since the mount.
#[derive(Default)]
struct Inserted {
    batches: f64,
    nanoseconds: f64,
}

impl Inserted {
    fn so_far(mounted: &Mounted) -> Result<Self> {
        let stats: serde_json::Value =
            serde_json::from_str(&shell(&format!("vlinder stats --json {}", mounted.path("")))?)?;
        let value = |name: &str| &stats["metrics"][name]["value"];
        Ok(Self {
            batches: value("delayed_items.insert_batches").as_f64().context("no batches")?,
            nanoseconds: value("delayed_items.insert_time_ns")["sum"].as_f64().context("no sum")?,
        })
    }
}
