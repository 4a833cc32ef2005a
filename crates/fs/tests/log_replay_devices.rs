//! Logs on several devices, on profiles that vlinder does not write, and where devices are missing: they are replayed in
//! memory, for readers and for those who would write. What is seen is what the kernel shows after its own replay of a copy.

mod support;

use std::path::PathBuf;
use std::process::Command;

use support::log_maker::{copy, has_log, run};
use vlinder_fs::{Filesystem, OpenOptions};
use vlinder_testkit::kernel::KernelMount;
use vlinder_testkit::matrix::make::walk_of_mount;
use vlinder_testkit::subject::library_walk;
use vlinder_testkit::walk::{compare, render};
use vlinder_testkit::{Scratch, require};
use vlinder_transaction::ReadOnlyReason;

const DEVICE_BYTES: u64 = 160 << 20;
/// How often a log is tried for: work that the kernel does in the background can make any fsync commit.
const TRIES: usize = 3;

/// Data profile, metadata profile, devices, and how many of them may be missing.
const CASES: &[(&str, &str, usize, usize)] = &[
    ("raid0", "raid0", 2, 0),
    ("raid1", "raid1", 2, 1),
    ("raid1c3", "raid1c3", 3, 2),
    ("raid5", "raid5", 3, 1),
    ("raid6", "raid6", 4, 2),
];

const BEFORE: &str = r"
    for size in 64k 1m 9m; do write .filler$size 0 $size; sync -f .; done
    mkdir d e; for i in $(seq 300); do echo $i > d/$i; done; write large 0 700k 7; seq 30000 > text; write cut 0 300k
    btrfs -q subvolume create sub; write sub/file 0 100k 5; sync -f .
";
const AFTER: &str = r"
    write new 0 300k 9; fsync new; echo appended >> text; fsync text; ln text e/link; mv d/2 e/renamed; fsync e/renamed
    unlink d/3; mkdir e/made; echo in > e/made/file; fsync e/made/file e/made d; setfattr -n user.a -v logged large
    write large 100k 200k 8; fsync large; truncate -s 5000 cut; fsync cut; write sub/file 50k 200k 6; fsync sub/file
";

/// The devices as a cut after the second script leaves them.
fn make_log(scratch: &Scratch, data: &str, metadata: &str, devices: usize) -> Vec<PathBuf> {
    let made: Vec<PathBuf> = (0..devices).map(|number| scratch.join(format!("made-{number}"))).collect();
    for _ in 0..TRIES {
        for image in &made {
            std::fs::File::create(image).unwrap().set_len(DEVICE_BYTES).unwrap();
        }
        let mut mkfs = Command::new("mkfs.btrfs");
        mkfs.args(["-q", "-f", "-d", data, "-m", metadata]).args(&made);
        assert!(mkfs.status().unwrap().success());
        let mount = KernelMount::of(&made, "commit=600", &[]).unwrap();
        run(mount.path(), BEFORE);
        run(mount.path(), AFTER);
        let cut = copies(scratch, &made, "cut");
        drop(mount);
        if has_log(&cut[0]) {
            return cut;
        }
    }
    panic!("{data}, {metadata}: every fsync committed");
}

fn copies(scratch: &Scratch, images: &[PathBuf], name: &str) -> Vec<PathBuf> {
    let copied = |(number, image): (usize, &PathBuf)| {
        let target = scratch.join(format!("{name}-{number}"));
        copy(image, &target);
        target
    };
    images.iter().enumerate().map(copied).collect()
}

/// The walk that the kernel shows after its replay.
fn kernels_walk(images: &[PathBuf]) -> String {
    let mount = KernelMount::of(images, "noatime", &[]).unwrap();
    walk_of_mount(mount.path()).unwrap()
}

fn walk(filesystem: &Filesystem) -> String {
    render(&library_walk(filesystem, true).unwrap())
}

type Judge = fn(&ReadOnlyReason) -> bool;

fn is_requested(reason: &ReadOnlyReason) -> bool {
    *reason == ReadOnlyReason::Requested
}

fn is_degraded(reason: &ReadOnlyReason) -> bool {
    *reason == ReadOnlyReason::Degraded
}

/// The profiles have features of their own, which tell more.
fn is_several_devices(reason: &ReadOnlyReason) -> bool {
    matches!(reason, ReadOnlyReason::SeveralDevices | ReadOnlyReason::Features(_))
}

/// When each was last written to.
fn written(images: &[PathBuf]) -> Vec<std::time::SystemTime> {
    images.iter().map(|image| image.metadata().unwrap().modified().unwrap()).collect()
}

fn judge(images: &[PathBuf], options: OpenOptions, expected: &str, is_reason: Judge, what: &str) {
    let filesystem = Filesystem::open(images, options).unwrap();
    let reason = filesystem.engine().read_only_reason();
    assert!(reason.as_ref().is_some_and(is_reason), "{what}: {reason:?}");
    if let Err(difference) = compare(expected, &walk(&filesystem)) {
        panic!("{what}: {difference}");
    }
}

#[test]
fn a_log_on_devices_that_are_only_read_is_replayed_in_memory() {
    require!(KernelBtrfs, Tool("btrfs"), Tool("mkfs.btrfs"), Tool("xfs_io"), Tool("setfattr"));
    for (data, metadata, devices, missing) in CASES {
        let scratch = Scratch::in_memory("log-devices");
        let cut = make_log(&scratch, data, metadata, *devices);
        let expected = kernels_walk(&copies(&scratch, &cut, "kernel"));
        let before = written(&cut);
        let what = format!("{data}, {metadata}, {devices} devices");
        judge(&cut, OpenOptions::read_only(), &expected, is_requested, &what);
        judge(&cut, OpenOptions::default(), &expected, is_several_devices, &what);
        if *missing > 0 {
            let left = &cut[*missing..];
            let what = format!("{what}, {missing} missing");
            let options = || OpenOptions::parse("degraded").unwrap();
            let read_only = OpenOptions { read_only: true, ..options() };
            judge(left, read_only, &expected, is_requested, &what);
            judge(left, options(), &expected, is_degraded, &what);
        }
        // The last commit is there for who asks for it.
        let last = OpenOptions { read_only: true, ..OpenOptions::parse("rescue=nologreplay").unwrap() };
        let filesystem = Filesystem::open(&cut, last).unwrap();
        assert!(compare(&expected, &walk(&filesystem)).is_err(), "{what}: the log has nothing new");
        drop(filesystem);
        assert_eq!(before, written(&cut), "{what}: a device was written to");
    }
}
