//! Every way of asking for durability through the mount: O_SYNC, O_DSYNC, O_DIRECT, mmap with msync,
//! io_uring, and many at once. After each the image is copied as a power cut leaves it (all that was asked of
//! the device has arrived); what was synced must be in the log, for our replay and for the kernel's.

use std::path::{Path, PathBuf};

use crate::rig::{self, Rig, shell};
use vlinder_control::protocol::MetricValue;
use vlinder_control::{Answer, Request};
use vlinder_fs::{Filesystem, OpenOptions};
use vlinder_testkit::kernel::{KernelMount, btrfs_check_data};
use vlinder_testkit::require;
use vlinder_testkit::subject::{library_walk, own_check_all};
use vlinder_testkit::walk::{compare, render};

/// Each leaves nothing that was not synced, but for the directory's own attributes.
const WAYS: &[(&str, &str)] = &[
    ("O_SYNC", "xfs_io -f -s -c 'pwrite -S 0x11 0 5000' -c 'pwrite -S 0x12 70000 9000' sync > /dev/null"),
    ("O_DSYNC", "dd if=/dev/urandom of=dsync bs=3000 count=7 oflag=dsync status=none"),
    ("O_DSYNC, appending", "for i in 1 2 3; do seq 900 | dd of=dsync bs=64k oflag=append,dsync conv=notrunc status=none; done"),
    ("O_DIRECT and O_DSYNC", "dd if=/dev/urandom of=direct bs=8192 count=9 oflag=direct,dsync status=none"),
    (
        "O_SYNC by chattr +S",
        "touch flag; chattr +S flag; seq 3000 | dd of=flag bs=1000 conv=notrunc status=none; seq 20 >> flag",
    ),
    ("O_DIRECT over old data, then fsync", "xfs_io -d -c 'pwrite -S 0x21 8192 4096' -c fsync old > /dev/null"),
    (
        "mmap and msync",
        "xfs_io -c 'mmap -rw 0 64k' -c 'mwrite -S 0x31 4000 9000' -c 'mwrite -S 0x32 60000 100' -c 'msync -s' old > /dev/null",
    ),
    (
        "mmap and fdatasync",
        "xfs_io -f -c 'truncate 32k' -c 'mmap -rw 0 32k' -c 'mwrite -S 0x33 0 20000' -c fdatasync mapped > /dev/null",
    ),
    (
        "io_uring, direct and dsync",
        "fio --name=ring --filename=ring --ioengine=io_uring --iodepth=8 --rw=randwrite --bs=4k --size=512k --direct=1 --sync=dsync \
         --fallocate=none --end_fsync=1 > /dev/null",
    ),
    (
        "many at once",
        "for job in $(seq 6); do (
            mkdir load$job
            for i in $(seq 25); do
                seq $((i * job * 7)) > load$job/$i; sync load$job/$i
                [ $((i % 3)) != 0 ] || { mv load$job/$i load$job/moved$i; sync load$job/moved$i; }
                [ $((i % 5)) != 0 ] || { ln load$job/$((i - 1)) load$job/link$i 2> /dev/null || touch load$job/link$i; sync load$job/link$i; }
            done; sync load$job) &
        done; wait; for job in $(seq 6); do sync load$job; done",
    ),
];

/// Generation and address of the log's root in the primary superblock.
fn committed(image: &Path) -> (u64, u64) {
    let file = std::fs::File::open(image).unwrap();
    let field = |at: u64| {
        let mut bytes = [0; 8];
        std::os::unix::fs::FileExt::read_exact_at(&file, &mut bytes, 65_536 + at).unwrap();
        u64::from_le_bytes(bytes)
    };
    (field(72), field(96))
}

/// Why fsyncs committed, and how often.
fn reasons(mounted: &rig::Mounted) -> Vec<(String, u64)> {
    let Answer::Statistics { metrics, .. } = mounted.client().request(&Request::Statistics).unwrap() else {
        panic!("no statistics");
    };
    let counted = metrics.into_iter().filter_map(|metric| match metric.value {
        MetricValue::Counter { value } if value > 0 && metric.name.starts_with("fsync_log.") => {
            Some((metric.name, value))
        }
        _ => None,
    });
    counted.collect()
}

fn copy(rig: &Rig, name: &str) -> PathBuf {
    let target = rig.outside(name);
    rig::run(std::process::Command::new("cp").arg("--sparse=always").arg(&rig.image).arg(&target));
    target
}

/// Names, types, sizes, links and contents. Not times: those of direct writes are the server's, while the
/// kernel that has them in its cache goes on showing its own.
fn shown(root: &Path) -> String {
    shell(
        root,
        "LC_ALL=C; find . -mindepth 1 -printf '%P %y %m %s %n %l\\n' | sort; find . -type f -print0 | sort -z | xargs -0 sha256sum",
    )
}

/// The kernel's replay of a copy shows what the mount did, to the last attribute as our reader, and leaves a
/// sound image.
fn judge(rig: &Rig, cut: &Path, way: &str, expected: &str) {
    let filesystem = Filesystem::open(&[cut], OpenOptions::read_only()).unwrap();
    let ours = render(&library_walk(&filesystem, false).unwrap());
    drop(filesystem);
    let replayed = copy_of(rig, cut);
    let mount = KernelMount::unchecked(&replayed, "noatime").unwrap();
    assert_eq!(shown(mount.path()), expected, "{way}: what was synced is not what the mount showed");
    let kernels = rig::walk_of(mount.path());
    // That it replays a log is said in the kernel's log, which is not asked here.
    drop(mount);
    if let Err(difference) = compare(&ours, &kernels) {
        panic!("{way}: the kernel's replay shows something else than ours: {difference}");
    }
    btrfs_check_data(&replayed).unwrap();
    own_check_all(&[&replayed]).unwrap();
}

fn copy_of(rig: &Rig, cut: &Path) -> PathBuf {
    let target = rig.outside("replayed");
    std::fs::copy(cut, &target).unwrap();
    target
}

#[test]
fn what_was_synced_through_the_mount_is_in_the_log() {
    require!(KernelBtrfs, Fuse, Tool("mkfs.btrfs"), Tool("btrfs"), Tool("xfs_io"), Tool("fio"));
    sync_in_all_ways("commit=3000,noatime", WAYS);
}

#[test]
fn synchronous_writes_around_the_kernels_cache_are_logged() {
    require!(KernelBtrfs, Fuse, Tool("mkfs.btrfs"), Tool("btrfs"), Tool("xfs_io"));
    let ways: Vec<(&str, &str)> = WAYS.iter().filter(|(way, _)| way.starts_with("O_")).copied().collect();
    assert_eq!(ways.len(), 6);
    // Where so little is free, files are opened past the cache, and the kernel sends no fsync after a write.
    sync_in_all_ways("commit=3000,noatime,dirty=512M", &ways);
    sync_in_all_ways("commit=3000,noatime,writeback=off", &ways);
}

fn sync_in_all_ways(options: &str, ways: &[(&str, &str)]) {
    // Large enough that the logs of all ways together leave half of the metadata free: a commit ends those
    // that don't.
    let rig = Rig::new(1024);
    let mounted = rig.mount(options);
    // A chunk that is made meanwhile would make an fsync commit.
    shell(
        &rig.mountpoint,
        "for size in 64 1024 9216; do head -c ${size}k /dev/zero > .filler$size; sync -f .; done; seq 50000 > old",
    );
    mounted.client().request(&Request::FilesystemSync).unwrap();
    let (generation, _) = committed(&rig.image);
    for (way, script) in ways {
        shell(&rig.mountpoint, script);
        let cut = copy(&rig, "cut");
        let (now, log) = committed(&cut);
        assert_eq!(now, generation, "{way}: it was committed instead: {:?}", reasons(&mounted));
        assert_ne!(log, 0, "{way}: nothing was logged");
        judge(&rig, &cut, way, &shown(&rig.mountpoint));
    }
    mounted.unmount();
    btrfs_check_data(&rig.image).unwrap();
}
