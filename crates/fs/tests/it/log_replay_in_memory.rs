//! Logs of what vlinder only reads: several devices, profiles that it does not write, missing devices, simple
//! quotas, a sprout, a balance that was cut while it moved a chunk. They are replayed in memory, for readers
//! and for those who would write. What is seen is what the kernel shows after its own replay of a copy.

use std::path::{Path, PathBuf};
use std::process::Command;

use crate::support::log_maker::{copy, has_log, run};
use vlinder_fs::{Filesystem, OpenOptions};
use vlinder_testkit::kernel::{KernelMount, LoopDevice, unmount};
use vlinder_testkit::matrix::make::walk_of_mount;
use vlinder_testkit::require::corpus;
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
fn kernels_walk(images: &[PathBuf], options: &str, allowed: &[&str]) -> String {
    let mount = KernelMount::of(images, &format!("noatime{options}"), allowed).unwrap();
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
        let expected = kernels_walk(&copies(&scratch, &cut, "kernel"), "", &[]);
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
        assert!(has_news(&cut, &expected), "{what}: the log has nothing new");
        assert_eq!(before, written(&cut), "{what}: a device was written to");
    }
}

/// The last commit is there for who asks for it: whether the log has something that it has not.
fn has_news(images: &[PathBuf], expected: &str) -> bool {
    let last = OpenOptions { read_only: true, ..OpenOptions::parse("rescue=nologreplay").unwrap() };
    let filesystem = Filesystem::open(images, last).unwrap();
    compare(expected, &walk(&filesystem)).is_err()
}

/// A reader and a would-be writer see what the kernel shows after its replay of these copies, and nothing is
/// written. Gives whether the log has anything new.
fn judge_state(
    scratch: &Scratch,
    cut: &[PathBuf],
    kernel: (&str, &[&str]),
    is_reason: Judge,
    what: &str,
) -> bool {
    let expected = kernels_walk(&copies(scratch, cut, "kernel"), kernel.0, kernel.1);
    let before = written(cut);
    judge(cut, OpenOptions::read_only(), &expected, is_requested, what);
    judge(cut, OpenOptions::default(), &expected, is_reason, what);
    let has_news = has_news(cut, &expected);
    assert_eq!(before, written(cut), "{what}: a device was written to");
    has_news
}

fn shell(directory: &Path, script: &str) {
    let output = Command::new("bash").args(["-ec", script]).current_dir(directory).output().unwrap();
    assert!(output.status.success(), "{script}: {output:?}");
}

/// What is fsynced while blocks are being moved shares blocks with the trees that move them.
#[test]
fn a_log_beside_a_cut_balance_is_replayed_in_memory() {
    require!(KernelBtrfs, Tool("btrfs"), Tool("mkfs.btrfs"), Tool("xfs_io"));
    let scratch = Scratch::in_memory("log-balance");
    // A reflinked copy of the loop device's file is what a power cut at that moment would leave.
    let script = r#"
        truncate -s 3G host; mkfs.btrfs -q host; mkdir h m; H=$(losetup -f --show host); mount "$H" h
        # The inner loop device lets go of its file when whoever looks at new devices has closed it.
        end() { umount m; [ -z "$L" ] || losetup -d "$L"; for try in $(seq 100); do umount -q h && break; sleep 0.1; done; losetup -d "$H"; }
        L=; trap end EXIT
        truncate -s 512M h/b; mkfs.btrfs -q h/b; L=$(losetup -f --show h/b); mount -o commit=600 "$L" m
        for d in $(seq 10); do mkdir m/$d; for i in $(seq 300); do seq $((i * 9)) > m/$d/$i; done; done
        sync -f m
        btrfs balance start --full-balance m > /dev/null 2>&1 & balance=$!
        i=0
        while kill -0 $balance 2> /dev/null; do
            i=$((i + 1)); old=m/1/$((i % 300 + 1)); seq $i > m/2/new$i; ln m/2/new$i m/3/link$i; mv m/4/$((i % 300 + 1)) m/5/moved$i
            for file in m/2/new$i m/5/moved$i; do xfs_io -c fsync $file; done
            xfs_io -c "pwrite -S $((i % 250)) 0 9000" -c fsync $old > /dev/null
            cp --reflink=always h/b h/cut-$i
        done
        for cut in h/cut-*; do
            roots=$(btrfs inspect-internal dump-tree -t root $cut 2> /dev/null) || continue
            case $roots in *"TREE_RELOC ROOT_ITEM"*) ;; *) continue ;; esac
            if btrfs inspect-internal dump-super $cut | grep -qE '^log_root[[:space:]]+[1-9]'; then
                cp --sparse=always $cut moving-$((n += 1)); [ $n -lt 4 ] || break
            fi
        done"#;
    // On a busy machine the copies may all come at other moments.
    let attempts = (1..=5).map(|attempt| {
        let place = scratch.join(format!("attempt-{attempt}"));
        std::fs::create_dir(&place).unwrap();
        shell(&place, script);
        let cuts: Vec<PathBuf> = (1..=4).map(|number| place.join(format!("moving-{number}"))).collect();
        std::fs::remove_file(place.join("host")).unwrap();
        cuts
    });
    let cuts = attempts.into_iter().find(|cuts| cuts[0].exists());
    let cuts = cuts.expect("no copy hit a log beside relocation trees");
    let lines = &["BTRFS info (device DEVICE): balance: *"][..];
    let mut news = 0;
    for cut in cuts.into_iter().filter(|cut| cut.exists()) {
        let is_reason = |reason: &ReadOnlyReason| *reason == ReadOnlyReason::UnfinishedRelocation;
        let has_news = judge_state(&scratch, &[cut], (",skip_balance", lines), is_reason, "a cut balance");
        news += usize::from(has_news);
    }
    // The balance commits when it likes: a commit right before a cut leaves its log nothing to add.
    assert!(news > 0, "no log beside relocation trees has anything new");
}

#[test]
fn a_log_beside_simple_quotas_is_replayed_in_memory() {
    require!(KernelBtrfs, Corpus, Tool("xz"), Tool("xfs_io"), Tool("setfattr"));
    let packed = corpus().unwrap().join("golden/squota.raw.xz");
    let unpacked = Command::new("xz").arg("-dc").arg(packed).output().unwrap();
    assert!(unpacked.status.success());
    for _ in 0..TRIES {
        let scratch = Scratch::in_memory("log-squota");
        let image = scratch.join("image");
        std::fs::write(&image, &unpacked.stdout).unwrap();
        let mount = KernelMount::of(&[&image], "commit=600", &[]).unwrap();
        run(mount.path(), "write .filler 0 64k; echo old > old; write kept 0 300k; sync -f .");
        run(
            mount.path(),
            "write new 0 90k; fsync new; echo more >> old; ln old link; fsync old; write kept 8k 4k 3; fsync kept",
        );
        let cut = copies(&scratch, &[image], "cut");
        drop(mount);
        if has_log(&cut[0]) {
            let is_reason = |reason: &ReadOnlyReason| *reason == ReadOnlyReason::Quotas;
            let has_news = judge_state(&scratch, &cut, ("", &[]), is_reason, "simple quotas");
            assert!(has_news, "simple quotas: the log has nothing new");
            return;
        }
    }
    panic!("every fsync committed");
}

#[test]
fn a_log_of_a_sprout_is_replayed_in_memory() {
    require!(
        KernelBtrfs,
        Tool("btrfs"),
        Tool("mkfs.btrfs"),
        Tool("btrfstune"),
        Tool("xfs_io"),
        Tool("setfattr")
    );
    for _ in 0..TRIES {
        let scratch = Scratch::in_memory("log-sprout");
        // What is mounted is the first.
        let images = ["sprout", "seed"].map(|name| scratch.join(name));
        for image in &images {
            std::fs::File::create(image).unwrap().set_len(DEVICE_BYTES).unwrap();
        }
        let script = "mkfs.btrfs -q seed; mkdir m; mount -o loop seed m; cd m; mkdir d; seq 9000 > text; seq 90 > d/other; cd ..
            umount m; btrfstune -S 1 seed";
        shell(scratch.path(), script);
        let devices = [&images[0], &images[1]].map(|image| LoopDevice::attach(image).unwrap());
        let directory = Scratch::new("log-sprout-mount");
        let nodes = devices.each_ref().map(|device| device.node().display().to_string());
        let m = directory.path().display();
        let script = format!(
            "mount -o commit=600 {0} {m}; btrfs device add -f {1} {m}; mount -o remount,rw {m}",
            nodes[1], nodes[0]
        );
        shell(scratch.path(), &script);
        run(directory.path(), "write .filler 0 64k; sync -f .; echo more >> text; sync -f .");
        run(
            directory.path(),
            "write new 0 90k; fsync new; echo more >> text; ln text d/link; fsync text; mv d/other d/o; fsync d/o",
        );
        let cut = copies(&scratch, &images, "cut");
        unmount(directory.path()).unwrap();
        shell(scratch.path(), &format!("btrfs device scan --forget {} {}", nodes[0], nodes[1]));
        drop(devices);
        if has_log(&cut[0]) {
            let is_reason = |reason: &ReadOnlyReason| reason.to_string().contains("built on a seed");
            let has_news = judge_state(&scratch, &cut, ("", &[]), is_reason, "a sprout");
            assert!(has_news, "a sprout: the log has nothing new");
            return;
        }
    }
    panic!("every fsync committed");
}
