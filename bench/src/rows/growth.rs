//! What grows with a file system: the cost of names in one directory, the memory of a mount.
//!
//! These rows compare vlinder with itself: the first side is the small directory (or the default settings), and the ratio
//! of the other is the growth.

use std::fs::File;
use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};

use super::mounts::{Mounted, Server};
use crate::command::shell;
use crate::host::Host;
use crate::row::{Outcome, Row, Side};
use crate::tree::Dice;

const FEW: u64 = 1_000;
const MANY: u64 = 1_000_000;
/// Files of each directory of the image whose mount's memory is measured.
const IN_DIRECTORY: u64 = 1_000;
/// Names used in one go.
const BATCH: u64 = 500;
/// Goes that are counted: 10,000 operations.
const ROUNDS: u64 = 20;
/// Goes before, which bring the server's caches to their steady state.
const WARM_UP: u64 = 20;

pub fn rows() -> Vec<Row> {
    macro_rules! growth {
        ($id:literal, $workload:literal, $operation:expr) => {
            Row {
                id: $id,
                workload: $workload,
                goal: "≤ 2 × (the ratio is the growth)",
                files: Some(MANY),
                prepare: |host, _| prepare(host),
                sides: vec![
                    Side {
                        name: "in 1,000 files",
                        needs: "vlinder",
                        run: |host, _| names(host, Server::Vlinder, FEW, $operation),
                    },
                    Side {
                        name: "in 1,000,000 files",
                        needs: "vlinder",
                        run: |host, _| names(host, Server::Vlinder, MANY, $operation),
                    },
                    Side {
                        name: "kernel, in 1,000 files",
                        needs: "losetup",
                        run: |host, _| names(host, Server::Kernel, FEW, $operation),
                    },
                    Side {
                        name: "kernel, in 1,000,000 files",
                        needs: "losetup",
                        run: |host, _| names(host, Server::Kernel, MANY, $operation),
                    },
                ],
            }
        };
    }
    vec![
        growth!(
            "G1",
            "10,000 look-ups of random names in one directory (lstat; the kernel's names dropped before, the server warm; default cache=)",
            Operation::LookUp
        ),
        growth!(
            "G2",
            "10,000 files made in one directory, and made durable (default cache=)",
            Operation::Create
        ),
        growth!(
            "G3",
            "10,000 random files of one directory removed, and that made durable (default cache=)",
            Operation::Unlink
        ),
        growth!(
            "G3L",
            "10,000 files of one directory removed in the order in which it lists them, as rm does, and that made durable (default cache=)",
            Operation::UnlinkAsListed
        ),
        memory(),
    ]
}

/// Memory of a mount over many files.
fn memory() -> Row {
    Row {
        id: "M1",
        workload: "find -ls over 1,000,000 files in 1,000 directories: the server's peak memory",
        goal: "≤ cache + dirty + 64 MiB: 384 MiB; 192 MiB with cache=96M,dirty=32M",
        files: Some(MANY),
        prepare: |host, _| prepare_walk(host),
        sides: vec![
            Side { name: "defaults", needs: "vlinder", run: |host, _| walk(host, "", 256 + 64 + 64) },
            Side {
                name: "cache=96M,dirty=32M",
                needs: "vlinder",
                run: |host, _| walk(host, "cache=96M,dirty=32M", 96 + 32 + 64),
            },
        ],
    }
}

/// What is done with names.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Operation {
    LookUp,
    Create,
    Unlink,
    UnlinkAsListed,
}

fn image_of(files: u64) -> String {
    format!("growth-{files}")
}

/// Empty files, so many in each directory, and an image of them.
fn make_image(host: &Host, image: &str, files: u64, in_directory: u64) -> Result<()> {
    let (source, path) = (host.path("growth-source"), host.path(image));
    if Path::new(&path).exists() {
        return Ok(());
    }
    for file in 0..files {
        let directory = format!("{source}/d{}", file / in_directory);
        if file % in_directory == 0 {
            std::fs::create_dir_all(&directory)?;
        }
        File::create(format!("{directory}/{}", name(file)))?;
    }
    shell(&format!(
        "truncate -s 8G {path}; vlinder mkfs -f --rootdir {source} {path} >/dev/null; rm -r {source}"
    ))
    .map(drop)
}

fn name(file: u64) -> String {
    format!("file-{file}.txt")
}

fn prepare(host: &Host) -> Result<()> {
    for files in [FEW, MANY] {
        make_image(host, &image_of(files), files, files)?;
    }
    Ok(())
}

fn prepare_walk(host: &Host) -> Result<()> {
    make_image(host, "growth-walk", MANY, IN_DIRECTORY)
}

/// So many different files of a directory.
fn pick(dice: &mut Dice, files: u64) -> Vec<u64> {
    // A step that ends in 3 has no factor in common with a power of ten, so no file comes up twice.
    let (start, step) = (dice.roll(files), 10 * dice.roll(files / 10) + 3);
    (0..BATCH).map(|number| (start + number * step) % files).collect()
}

fn names(host: &Host, server: Server, files: u64, operation: Operation) -> Result<Outcome> {
    // A fresh copy for each run: files that were made again lie closer together than those that are there from the start.
    let (image, copy) = (host.path(&image_of(files)), "growth-run");
    shell(&format!("cp --sparse=always {image} {}", host.path(copy)))?;
    let mut mounted = Mounted::open(host, server, copy, "")?;
    let directory = mounted.path("d0");
    let paths = |dice: &mut Dice| -> Result<Vec<String>> {
        if operation == Operation::UnlinkAsListed {
            let first = std::fs::read_dir(&directory)?.take(BATCH as usize);
            return first.map(|entry| Ok(entry?.path().display().to_string())).collect();
        }
        Ok(pick(dice, files).into_iter().map(|file| format!("{directory}/{}", name(file))).collect())
    };
    let mut dice = Dice(7);
    let mut time = Duration::ZERO;
    for round in 0..WARM_UP + ROUNDS {
        let paths = paths(&mut dice)?;
        let counted = |now: Operation| {
            let is_asked =
                operation == now || (operation, now) == (Operation::UnlinkAsListed, Operation::Unlink);
            round >= WARM_UP && is_asked
        };
        if operation == Operation::LookUp {
            std::fs::write("/proc/sys/vm/drop_caches", "2").context("dropping the kernel's names")?;
        }
        if round == WARM_UP {
            mounted.sync()?;
        }
        let mut go = |now: Operation, work: fn(&str) -> std::io::Result<()>| -> Result<()> {
            let start = Instant::now();
            paths.iter().try_for_each(|path| work(path).with_context(|| path.clone()))?;
            if counted(now) {
                time += start.elapsed();
            }
            Ok(())
        };
        match operation {
            Operation::LookUp => go(Operation::LookUp, |path| std::fs::symlink_metadata(path).map(drop))?,
            Operation::Create | Operation::Unlink | Operation::UnlinkAsListed => {
                go(Operation::Unlink, |path| std::fs::remove_file(path))?;
                go(Operation::Create, |path| File::create_new(path).map(drop))?;
            }
        }
    }
    let start = Instant::now();
    mounted.sync()?;
    // What came before changed nothing, or as many names the other way: its share is in both rows.
    if operation != Operation::LookUp {
        time += start.elapsed();
    }
    let count = std::fs::read_dir(&directory)?.count() as u64;
    if count != files {
        bail!("{count} names instead of {files}");
    }
    Ok(Outcome { time, peak_bytes: mounted.end()? })
}

fn walk(host: &Host, options: &str, most_mebibytes: u64) -> Result<Outcome> {
    let mounted = Mounted::open(host, Server::Vlinder, "growth-walk", options)?;
    let start = Instant::now();
    let count = shell(&format!("find {} -ls | wc -l", mounted.path("")))?;
    let time = start.elapsed();
    let expected = MANY + MANY / IN_DIRECTORY + 1;
    if count.trim() != expected.to_string() {
        bail!("{} names instead of {expected}", count.trim());
    }
    let peak_bytes = mounted.end()?;
    if peak_bytes > most_mebibytes << 20 {
        eprintln!("  the server took {} MiB, more than {most_mebibytes}", peak_bytes >> 20);
    }
    Ok(Outcome { time, peak_bytes })
}
