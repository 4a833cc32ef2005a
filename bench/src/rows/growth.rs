//! What grows with a file system: the cost of names in one directory, the memory of a mount.
//!
//! These rows compare vlinder with itself: the first side is the small directory (or the default settings),
//! and the ratio of the other is the growth.

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
/// Files, and how many of them are in one directory.
#[derive(Clone, Copy)]
struct Layout {
    image: &'static str,
    files: u64,
    in_directory: u64,
}

const FEW_IN_ALL: Layout = Layout { image: "growth-few", files: FEW, in_directory: FEW };
const MANY_IN_ONE: Layout = Layout { image: "growth-many", files: MANY, in_directory: MANY };
const MANY_IN_SMALL: Layout = Layout { image: "growth-walk", files: MANY, in_directory: IN_DIRECTORY };

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
                        run: |host, _| names(host, Server::Vlinder, FEW_IN_ALL, $operation),
                    },
                    Side {
                        name: "in 1,000,000 files",
                        needs: "vlinder",
                        run: |host, _| names(host, Server::Vlinder, MANY_IN_ONE, $operation),
                    },
                    Side {
                        name: "kernel, in 1,000 files",
                        needs: "losetup",
                        run: |host, _| names(host, Server::Kernel, FEW_IN_ALL, $operation),
                    },
                    Side {
                        name: "kernel, in 1,000,000 files",
                        needs: "losetup",
                        run: |host, _| names(host, Server::Kernel, MANY_IN_ONE, $operation),
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
        same_files(),
        memory(),
    ]
}

/// Whether it is the directory's size that makes removing dearer, or that of the file system.
fn same_files() -> Row {
    Row {
        id: "G3S",
        workload: "10,000 random files of 1,000,000 removed, and that made durable: from 1,000 directories of 1,000, and from one",
        goal: "≤ 2 × (the ratio is the growth)",
        files: Some(MANY),
        prepare: |host, _| {
            make_image(host, MANY_IN_SMALL)?;
            make_image(host, MANY_IN_ONE)
        },
        sides: vec![
            Side {
                name: "from directories of 1,000",
                needs: "vlinder",
                run: |host, _| names(host, Server::Vlinder, MANY_IN_SMALL, Operation::Unlink),
            },
            Side {
                name: "from one of 1,000,000",
                needs: "vlinder",
                run: |host, _| names(host, Server::Vlinder, MANY_IN_ONE, Operation::Unlink),
            },
            Side {
                name: "kernel, from directories of 1,000",
                needs: "losetup",
                run: |host, _| names(host, Server::Kernel, MANY_IN_SMALL, Operation::Unlink),
            },
            Side {
                name: "kernel, from one of 1,000,000",
                needs: "losetup",
                run: |host, _| names(host, Server::Kernel, MANY_IN_ONE, Operation::Unlink),
            },
        ],
    }
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

/// Empty files, and an image of them.
fn make_image(host: &Host, layout: Layout) -> Result<()> {
    let Layout { image, files, in_directory } = layout;
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
    make_image(host, FEW_IN_ALL)?;
    make_image(host, MANY_IN_ONE)
}

fn prepare_walk(host: &Host) -> Result<()> {
    make_image(host, MANY_IN_SMALL)
}

/// So many different files of a directory.
fn pick(dice: &mut Dice, files: u64) -> Vec<u64> {
    // A step that ends in 3 has no factor in common with a power of ten, so no file comes up twice.
    let (start, step) = (dice.roll(files), 10 * dice.roll(files / 10) + 3);
    (0..BATCH).map(|number| (start + number * step) % files).collect()
}

fn names(host: &Host, server: Server, layout: Layout, operation: Operation) -> Result<Outcome> {
    let Layout { image, files, in_directory } = layout;
    // A fresh copy for each run: files that were made again lie closer together than those that are there
    // from the start.
    let copy = "growth-run";
    shell(&format!("cp --sparse=always {} {}", host.path(image), host.path(copy)))?;
    let mut mounted = Mounted::open(host, server, copy, "")?;
    let (root, directory) = (mounted.path(""), mounted.path("d0"));
    let paths = |dice: &mut Dice| -> Result<Vec<String>> {
        if operation == Operation::UnlinkAsListed {
            let first = std::fs::read_dir(&directory)?.take(BATCH as usize);
            return first.map(|entry| Ok(entry?.path().display().to_string())).collect();
        }
        let path = |file| format!("{root}/d{}/{}", file / in_directory, name(file));
        Ok(pick(dice, files).into_iter().map(path).collect())
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
    if count != in_directory {
        bail!("{count} names instead of {in_directory}");
    }
    Ok(Outcome { time, peak_bytes: mounted.end()? })
}

fn walk(host: &Host, options: &str, most_mebibytes: u64) -> Result<Outcome> {
    let mounted = Mounted::open(host, Server::Vlinder, MANY_IN_SMALL.image, options)?;
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
