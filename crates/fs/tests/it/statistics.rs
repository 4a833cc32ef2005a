//! How full a file system is, compared with what Linux's statfs(2) says of the same image.

use std::path::PathBuf;
use std::process::Command;

use vlinder_fs::{Filesystem, OpenOptions};
use vlinder_testkit::kernel::{KernelMount, LoopDevice, unmount};
use vlinder_testkit::{Scratch, golden, require};

#[test]
fn statfs_says_what_linux_says_of_the_golden_images() {
    require!(KernelBtrfs);
    let scratch = Scratch::new("statistics");
    for name in ["empty", "default", "sha256-dup", "blake2-mixed", "nodes-4k-holes"] {
        let image = scratch.join(name);
        golden::unpack(name, &image).unwrap();
        let filesystem = Filesystem::open(std::slice::from_ref(&image), OpenOptions::default()).unwrap();
        let ours = filesystem.statistics().unwrap();
        filesystem.close().unwrap();
        let mount = KernelMount::new(&image, "").unwrap();
        let theirs = rustix::fs::statvfs(mount.path()).unwrap();
        mount.unmount().unwrap();
        assert_eq!(
            (ours.blocks, ours.free_blocks, ours.available_blocks),
            (theirs.f_blocks, theirs.f_bfree, theirs.f_bavail),
            "{name}: all, free, available"
        );
    }
}

/// Profiles of data and metadata, and MiB of the devices.
const DEVICES: [(&str, &str, &[u64]); 9] = [
    ("raid5", "raid1", &[500, 700, 1024, 2048]),
    ("raid6", "raid1c3", &[500, 700, 1024, 2048]),
    ("raid1", "raid1", &[1024, 1024, 1024]),
    ("raid1c3", "raid1c3", &[500, 700, 1024, 2048]),
    ("raid10", "raid10", &[500, 700, 900, 1024, 2048]),
    ("raid0", "raid1", &[300, 2048]),
    ("raid1c4", "raid1c4", &[500, 600, 700, 1024, 2048]),
    ("raid6", "raid6", &[600, 600, 600, 600]),
    ("raid10", "raid1", &[700, 700, 700, 700, 400]),
];

/// Case A10.
#[test]
fn statfs_of_several_devices_says_what_linux_says() {
    require!(KernelBtrfs, Tool("mkfs.btrfs"), Tool("btrfs"));
    for (data, metadata, sizes) in DEVICES {
        let scratch = Scratch::new("statistics-devices");
        let images: Vec<PathBuf> =
            (1..=sizes.len()).map(|number| scratch.join(format!("{number}.img"))).collect();
        for (image, megabytes) in images.iter().zip(sizes) {
            std::fs::File::create(image).unwrap().set_len(megabytes << 20).unwrap();
        }
        let made = Command::new("mkfs.btrfs").args(["-q", "-d", data, "-m", metadata]).args(&images).output();
        assert!(made.unwrap().status.success());
        let mount = KernelMount::of(&images, "", &["*"]).unwrap();
        std::fs::write(mount.path().join("file"), vec![7; 30 << 20]).unwrap();
        mount.unmount().unwrap();
        compare_with_linux(&images, &format!("{data}, {metadata}, {sizes:?}"));
    }
}

/// Profiles of data and metadata of a seed with so many devices, and what is balanced on the sprout.
const SEEDS: [(&str, &str, usize, &str); 5] = [
    ("single", "dup", 1, ""),
    ("single", "dup", 1, "btrfs -q balance start -mconvert=single -f ."),
    ("single", "single", 1, "sync"),
    ("dup", "dup", 1, ""),
    ("raid1", "raid1", 2, ""),
];

/// Linux writes to no device of a seed, so what is free there is not free.
#[test]
fn statfs_counts_nothing_free_on_the_devices_of_a_seed() {
    require!(KernelBtrfs, Tool("mkfs.btrfs"), Tool("btrfs"), Tool("btrfstune"));
    for (data, metadata, devices, change) in SEEDS {
        let scratch = Scratch::new("statistics-seed");
        let mut images: Vec<PathBuf> =
            (0..=devices).map(|number| scratch.join(format!("{number}.img"))).collect();
        for image in &images {
            std::fs::File::create(image).unwrap().set_len(512 << 20).unwrap();
        }
        let seeds = &images[..devices];
        let made = Command::new("mkfs.btrfs").args(["-q", "-d", data, "-m", metadata]).args(seeds).output();
        assert!(made.unwrap().status.success());
        let mount = KernelMount::of(seeds, "", &["*"]).unwrap();
        std::fs::write(mount.path().join("file"), vec![7; 5 << 20]).unwrap();
        mount.unmount().unwrap();
        sprout(&images, change);
        images.rotate_right(1);
        compare_with_linux(&images, &format!("{data}, {metadata}, {devices} devices, {change:?}"));
    }
}

/// Makes the last of the images a sprout of the others, which become a seed.
fn sprout(images: &[PathBuf], change: &str) {
    let loops: Vec<LoopDevice> = images.iter().map(|image| LoopDevice::attach(image).unwrap()).collect();
    let (last, seeds) = loops.split_last().unwrap();
    let seeds: Vec<String> = seeds.iter().map(|seed| format!("device={}", seed.node().display())).collect();
    let directory = Scratch::new("statistics-seed-mount");
    let script = format!(
        "btrfstune -f -S 1 ${{2##*=}}; mount -t btrfs -o $2 ${{2##*=}} $1; btrfs -q device add -f $3 $1; mount -o remount,rw $1; cd $1; \
         echo more > more; sync -f .; {change}"
    );
    let mut command = Command::new("bash");
    command.args(["-euc", &script, "-"]).arg(directory.path()).arg(seeds.join(",")).arg(last.node());
    let done = command.output().unwrap();
    unmount(directory.path()).unwrap();
    assert!(done.status.success(), "{done:?}");
    for device in &loops {
        let _ = Command::new("btrfs").args(["device", "scan", "--forget"]).arg(device.node()).output();
    }
}

fn compare_with_linux(images: &[PathBuf], what: &str) {
    let filesystem = Filesystem::open(images, OpenOptions::default()).unwrap();
    let ours = filesystem.statistics().unwrap();
    filesystem.close().unwrap();
    let mount = KernelMount::of(images, "ro", &["*"]).unwrap();
    let theirs = rustix::fs::statvfs(mount.path()).unwrap();
    mount.unmount().unwrap();
    assert_eq!(
        (ours.blocks, ours.free_blocks, ours.available_blocks),
        (theirs.f_blocks, theirs.f_bfree, theirs.f_bavail),
        "{what}: all, free, available"
    );
}

/// Linux makes groups of one copy read-only beside mirrored ones: a balance to another profile was ended
/// before its end.
#[test]
fn statfs_counts_nothing_free_in_groups_made_read_only() {
    require!(KernelBtrfs, Tool("mkfs.btrfs"), Tool("btrfs"));
    let scratch = Scratch::new("statistics-converted");
    let images: Vec<PathBuf> = (1..=3).map(|number| scratch.join(format!("{number}.img"))).collect();
    for image in &images {
        std::fs::File::create(image).unwrap().set_len(1 << 30).unwrap();
    }
    let made = Command::new("mkfs.btrfs").args(["-q", "-d", "raid1", "-m", "raid1"]).args(&images).output();
    assert!(made.unwrap().status.success());
    let mount = KernelMount::of(&images, "", &["*"]).unwrap();
    std::fs::write(mount.path().join("file"), vec![7; 400 << 20]).unwrap();
    let mut balance = Command::new("btrfs");
    balance.args(["balance", "start", "-f", "-dconvert=single,limit=1"]).arg(mount.path());
    let balanced = balance.output().unwrap();
    assert!(balanced.status.success(), "{balanced:?}");
    std::fs::File::options().write(true).open(mount.path().join("file")).unwrap().set_len(100 << 20).unwrap();
    mount.unmount().unwrap();
    compare_with_linux(&images, "a single chunk beside mirrored ones");
}
