//! Several threads at once over the same few names: nothing waits for ever, and the judges are content
//! afterwards.

use std::path::Path;

use crate::support::{self, image, root_user};
use vlinder_base::random::{Random, SeededRandom};
use vlinder_base::thread;
use vlinder_fs::path::Files;
use vlinder_fs::{Filesystem, OpenOptions, RenameMode};
use vlinder_testkit::kernel::{KernelMount, btrfs_check};
use vlinder_testkit::{Scratch, require, walk};

const THREADS: u64 = 6;
const OPERATIONS: u64 = 1500;

fn path(random: &SeededRandom) -> String {
    let mut path = String::new();
    for _ in 0..random.next_u64() % 3 {
        path.push_str(&format!("/d{}", random.next_u64() % 3));
    }
    format!("{path}/n{}", random.next_u64() % 8)
}

fn directory(random: &SeededRandom) -> String {
    let mut path = String::new();
    for _ in 0..1 + random.next_u64() % 2 {
        path.push_str(&format!("/d{}", random.next_u64() % 3));
    }
    path
}

/// One operation; what it meets (names that are not there, directories below themselves) is no matter here,
/// but that the file system itself is sound.
fn step(files: &Files, random: &SeededRandom) -> vlinder_fs::Result<()> {
    let (one, other) = (path(random), path(random));
    match random.next_u64() % 14 {
        0..=2 => files.write(&one, vec![1; (random.next_u64() % 40_000) as usize]),
        3 => files.create_dir(directory(random)),
        4 => files.hard_link(&one, &other),
        5 | 6 => files.remove_file(&one),
        7 => files.remove_dir_all(directory(random)),
        8 => files.rename(&one, &other),
        9 => files.rename(directory(random), directory(random)),
        10 => {
            let (from, to) = (directory(random), directory(random));
            let (from_directory, from_name) = files.resolve_parent(Path::new(&from))?;
            let (to_directory, to_name) = files.resolve_parent(Path::new(&to))?;
            let mode = RenameMode::Exchange;
            files.filesystem().names().rename(
                &root_user(),
                &from_directory,
                &from_name,
                &to_directory,
                &to_name,
                mode,
            )
        }
        11 => files.read(&one).map(drop),
        12 => {
            for entry in files.read_dir(directory(random))? {
                let _ = entry?.metadata();
            }
            Ok(())
        }
        _ if random.next_u64().is_multiple_of(40) => {
            files.snapshot("/", format!("/snapshot{}", random.next_u64() % 4), false).map(drop)
        }
        _ if random.next_u64().is_multiple_of(40) => {
            files.delete_subvolume(format!("/snapshot{}", random.next_u64() % 4))
        }
        _ if random.next_u64().is_multiple_of(10) => files.sync(),
        _ => files.symlink(&one, &other),
    }
}

fn run(seed: u64) {
    let scratch = Scratch::new("threads");
    let image = image(&scratch, 512, &["-n", "4096"]);
    // A small cache, so that inodes leave memory and come back while others look for them.
    let options = OpenOptions { cache_bytes: 1 << 20, dirty_bytes: 2 << 20, ..OpenOptions::default() };
    let filesystem = Filesystem::open(&[&image], options).unwrap();
    let files = Files::new(filesystem, root_user());
    let workers: Vec<_> = (0..THREADS)
        .map(|number| {
            let files = files.clone();
            thread::spawn(format!("worker{number}"), move || {
                let random = SeededRandom::new(seed * 1000 + number);
                let mut done = 0;
                for _ in 0..OPERATIONS {
                    match step(&files, &random) {
                        Ok(()) => done += 1,
                        Err(error) => assert!(error.refusal().is_some(), "seed {seed}: {error}"),
                    }
                }
                done
            })
        })
        .collect();
    let done: Vec<u64> = workers.into_iter().map(|worker| worker.join().unwrap()).collect();
    assert!(done.iter().all(|done| *done > OPERATIONS / 10), "{done:?}");
    assert_eq!(files.filesystem().engine().read_only_reason(), None, "seed {seed}");
    let ours = support::walk(files.filesystem());
    files.filesystem().maintenance().finish_deletions().unwrap();
    files.close().unwrap();
    btrfs_check(&image).unwrap_or_else(|error| panic!("seed {seed}: {error}"));
    let mount = KernelMount::new(&image, "").unwrap();
    let options = walk::Options { identity: walk::InodeIdentity::NumberAlone, ..Default::default() };
    let theirs = walk::walk(mount.path(), &options).unwrap();
    let theirs = walk::render(&support::without_placeholder_times(mount.path(), theirs));
    walk::compare(&theirs, &ours).unwrap_or_else(|difference| panic!("seed {seed}: {difference}"));
    mount.scrub().unwrap();
    mount.unmount().unwrap();
}

#[test]
fn threads_over_the_same_names() {
    require!(KernelBtrfs, Tool("mkfs.btrfs"), Tool("btrfs"));
    if let Ok(seed) = std::env::var("VLINDER_SEED") {
        return run(seed.parse().unwrap());
    }
    for seed in 1..4 {
        run(seed);
    }
}
