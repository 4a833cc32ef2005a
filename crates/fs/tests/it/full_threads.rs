//! Several threads on a file system that is full nearly all of the time, with snapshots that share
//! everything: no commit fails for lack of space, whatever was accepted finds room, and everything can be
//! deleted: snapshots always, and then files.

use crate::support::{image, root_user};
use vlinder_base::random::{Random, SeededRandom};
use vlinder_base::thread;
use vlinder_fs::data::Allocate;
use vlinder_fs::path::Files;
use vlinder_fs::{AttributeMode, Filesystem, FsError, OpenOptions, Refusal, WriteOrigin};
use vlinder_testkit::kernel::btrfs_check;
use vlinder_testkit::{Scratch, require};

const THREADS: u64 = 6;
const DIRECTORIES: u64 = 16;
/// In each directory, at most.
const FILES: u64 = 12;
const SNAPSHOTS: u64 = 6;

/// What is tried: how the image is made, how it is opened, and its size in MiB.
const CASES: &[(&[&str], &str, u64)] = &[
    (&["--mixed"], "compress=zstd,commit=1", 64),
    (&["--mixed"], "commit=1", 64),
    (&["-n", "4096"], "cache=1M,dirty=1M,commit=1", 160),
    (&["-m", "dup"], "compress=zstd,commit=1,dirty=4M", 200),
    (&[], "cache=1M,dirty=1M,commit=3", 160),
];

fn path(random: &SeededRandom) -> String {
    format!("/d{}/f{}", random.next_u64() % DIRECTORIES, random.next_u64() % FILES)
}

fn bytes(random: &SeededRandom, most: u64) -> Vec<u8> {
    let mut bytes = vec![0; (random.next_u64() % most) as usize];
    random.fill(&mut bytes);
    bytes
}

/// Deleting a snapshot is never refused for lack of space, nor deleting a file that no snapshot shares. (Each
/// name that goes from what snapshots share takes space for good, so that the reserve ends at last, as on
/// Linux.)
fn always_works(result: Result<(), FsError>) -> Result<(), FsError> {
    if let Err(error) = &result {
        assert_ne!(error.refusal(), Some(Refusal::NoSpace), "deleting: {error}");
    }
    result
}

fn step(files: &Files, random: &SeededRandom, number: u64) -> Result<(), FsError> {
    let (one, other) = (path(random), path(random));
    let open = |path: &str| files.options().read(true).write(true).open(path);
    match random.next_u64() % 24 {
        0..=4 => {
            let file = files.options().write(true).create(true).open(&one)?;
            file.write_at(&bytes(random, 70_000), random.next_u64() % 400_000)
        }
        5 => files.write(&one, bytes(random, 70_000)),
        6 | 7 => open(&one)?.write_at(&bytes(random, 5_000), random.next_u64() % 400_000),
        8 => files.rename(&one, &other),
        9 => files.remove_file(&one),
        10 => files.hard_link(&one, &other),
        11 => open(&one)?.set_len(random.next_u64() % 500_000),
        12 => open(&one)?.sync_all(),
        13 | 14 => {
            let source = open(&one)?;
            let target = files.options().write(true).create(true).open(&other)?;
            let (from, to) = (random.next_u64() % 20 * 4096, random.next_u64() % 20 * 4096);
            let filesystem = files.filesystem();
            filesystem
                .files()
                .copy_file_range(
                    &root_user(),
                    (source.inode(), from),
                    (target.inode(), to),
                    65_536,
                    WriteOrigin::Caller,
                )
                .map(drop)
        }
        15 if number == 0 => {
            files.snapshot("/", format!("/shot{}", random.next_u64() % SNAPSHOTS), false).map(drop)
        }
        16 if number == 0 => {
            always_works(files.delete_subvolume(format!("/shot{}", random.next_u64() % SNAPSHOTS)))
        }
        17 => open(&one)?.write_direct(&[(random.next_u64() % 20 * 4096, &bytes(random, 65_536))]),
        18 | 19 => {
            let what = [
                Allocate::Reserve { keep_size: false },
                Allocate::Reserve { keep_size: true },
                Allocate::PunchHole,
                Allocate::ZeroRange { keep_size: false },
            ];
            let what = what[(random.next_u64() % 4) as usize];
            let (offset, length) = (random.next_u64() % 300_000, 1 + random.next_u64() % 300_000);
            let file = open(&one)?;
            let origin = WriteOrigin::Caller;
            files
                .filesystem()
                .files()
                .allocate_file(&root_user(), file.inode(), what, offset, length, origin)
                .map(drop)
        }
        20 => {
            let name = format!("user.a{}", random.next_u64() % 5);
            let file = open(&one)?;
            let value = bytes(random, 2_000);
            let mode = AttributeMode::Either;
            files.filesystem().attributes().set_extended_attribute(
                &root_user(),
                file.inode(),
                name.as_bytes(),
                &value,
                mode,
            )
        }
        21 => {
            // As a cache hands over, in one go, what was written in many places.
            let file = open(&one)?;
            for _ in 0..20 {
                let (offset, data) = (random.next_u64() % 100 * 4096, bytes(random, 4096));
                let origin = WriteOrigin::WriteBack;
                files.filesystem().files().write_file(
                    &root_user(),
                    file.inode(),
                    offset,
                    data.into(),
                    origin,
                )?;
            }
            Ok(())
        }
        22 if random.next_u64().is_multiple_of(20) => files.sync(),
        _ => files.read(&one).map(drop),
    }
}

fn run(case: &(&[&str], &str, u64), seed: u64, operations: u64) {
    let (mkfs, options, megabytes) = case;
    let what = format!("{mkfs:?}, {options}, seed {seed}");
    let scratch = Scratch::in_memory("full-threads");
    let image = image(&scratch, *megabytes, mkfs);
    let filesystem = Filesystem::open(&[&image], OpenOptions::parse(options).unwrap()).unwrap();
    let files = Files::new(filesystem, root_user());
    (0..DIRECTORIES).for_each(|number| files.create_dir(format!("/d{number}")).unwrap());
    let workers: Vec<_> = (0..THREADS)
        .map(|number| {
            let (files, what) = (files.clone(), what.clone());
            thread::spawn(format!("worker{number}"), move || {
                let random = SeededRandom::new(seed * 1000 + number);
                for _ in 0..operations {
                    if let Err(error) = step(&files, &random, number) {
                        assert!(error.refusal().is_some(), "{what}: {error}");
                    }
                }
            })
        })
        .collect();
    workers.into_iter().for_each(|worker| worker.join().unwrap());
    assert_eq!(files.filesystem().engine().read_only_reason(), None, "{what}");
    files.filesystem().maintenance().finish_deletions().unwrap_or_else(|error| panic!("{what}: {error}"));
    files.close().unwrap_or_else(|error| panic!("{what}: what was accepted found no room: {error}"));
    btrfs_check(&image).unwrap_or_else(|error| panic!("{what}: {error}"));
    let filesystem = Filesystem::open(&[&image], OpenOptions::parse(options).unwrap()).unwrap();
    let files = Files::new(filesystem, root_user());
    empty(&files, &what);
    files.close().unwrap_or_else(|error| panic!("{what}: {error}"));
    btrfs_check(&image).unwrap_or_else(|error| panic!("{what}, emptied: {error}"));
}

/// Deletes everything, as who is out of space would: the snapshots, and what they held with them, then the
/// files.
fn empty(files: &Files, what: &str) {
    for number in 0..SNAPSHOTS {
        match always_works(files.delete_subvolume(format!("/shot{number}"))) {
            Err(error) if error.refusal() != Some(Refusal::NotFound) => panic!("{what}: {error}"),
            _ => {}
        }
    }
    files.filesystem().maintenance().finish_deletions().unwrap_or_else(|error| panic!("{what}: {error}"));
    for directory in 0..DIRECTORIES {
        for file in 0..FILES {
            match always_works(files.remove_file(format!("/d{directory}/f{file}"))) {
                Err(error) if error.refusal() != Some(Refusal::NotFound) => panic!("{what}: {error}"),
                _ => {}
            }
        }
        files.remove_dir(format!("/d{directory}")).unwrap_or_else(|error| panic!("{what}: {error}"));
    }
    assert_eq!(files.filesystem().engine().read_only_reason(), None, "{what}");
}

#[test]
fn threads_on_a_full_file_system() {
    require!(LongRun, Tool("mkfs.btrfs"), Tool("btrfs"));
    let number = |name: &str, otherwise: u64| {
        std::env::var(name)
            .map_or(otherwise, |text| text.parse().unwrap_or_else(|_| panic!("{name}: {text}")))
    };
    let (first, seeds) = (number("VLINDER_SEED", 1), number("VLINDER_SEEDS", 1));
    let operations = number("VLINDER_OPERATIONS", 1_500);
    for seed in first..first + seeds {
        for case in CASES {
            run(case, seed, operations);
        }
    }
}
