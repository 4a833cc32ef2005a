//! Every profile that Linux makes on several devices, read as Linux shows it; and still read with as many
//! devices damaged as the profile bears.

use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::support;
use vlinder_fs::path::Files;
use vlinder_fs::{Caller, Filesystem, OpenOptions};
use vlinder_testkit::kernel::{LoopDevice, unmount};
use vlinder_testkit::walk::{self, Options};
use vlinder_testkit::{Scratch, require};

const DEVICE_BYTES: u64 = 300 << 20;

/// Data profile, metadata profile, devices, and how many of them may be damaged.
const CASES: &[(&str, &str, usize, usize)] = &[
    ("single", "raid1", 2, 0),
    ("raid0", "raid1", 3, 0),
    ("raid1", "raid1", 2, 1),
    ("raid1c3", "raid1c3", 3, 2),
    ("raid1c4", "raid1c4", 4, 3),
    ("raid10", "raid10", 4, 1),
    ("raid5", "raid5", 3, 1),
    ("raid5", "raid1", 4, 1),
    ("raid6", "raid6", 4, 2),
    ("raid6", "raid1c3", 5, 2),
];

/// Files over many stripes, some compressed, some in the tree.
const FILL: &str = r"
    i=0; while [ $i -lt 12 ]; do dd if=/dev/urandom of=big-$i bs=64k count=$((i * 3 + 1)) status=none; i=$((i+1)); done
    mkdir d packed; chattr +c packed; seq 300000 > packed/text
    i=0; while [ $i -lt 300 ]; do echo $i > d/small-$i; i=$((i+1)); done; ln big-3 d/link; truncate -s 9M hole
";

fn tool(command: &mut Command) {
    let output = command.output().unwrap();
    assert!(output.status.success(), "{command:?}: {output:?}");
}

/// Makes the images, fills them through the kernel, and gives its walk.
fn fill(images: &[PathBuf], data: &str, metadata: &str) -> String {
    for image in images {
        std::fs::File::create(image).unwrap().set_len(DEVICE_BYTES).unwrap();
    }
    tool(Command::new("mkfs.btrfs").args(["-q", "-d", data, "-m", metadata]).args(images));
    let loops: Vec<LoopDevice> = images.iter().map(|image| LoopDevice::attach(image).unwrap()).collect();
    for device in &loops {
        tool(Command::new("btrfs").args(["device", "scan"]).arg(device.node()));
    }
    let directory = Scratch::new("profiles-mount");
    tool(Command::new("mount").args(["-t", "btrfs"]).arg(loops[0].node()).arg(directory.path()));
    tool(Command::new("sh").args(["-ec", FILL]).current_dir(directory.path()));
    tool(Command::new("btrfs").args(["filesystem", "sync"]).arg(directory.path()));
    let walked = walk::walk(directory.path(), &Options::default()).unwrap();
    unmount(directory.path()).unwrap();
    for device in &loops {
        tool(Command::new("btrfs").args(["device", "scan", "--forget"]).arg(device.node()));
    }
    walk::render(&walked)
}

/// Mounts a file system with what is left of its devices, works on it, and gives its walk.
fn change_without(images: &[PathBuf], script: &str) -> String {
    let loops: Vec<LoopDevice> = images.iter().map(|image| LoopDevice::attach(image).unwrap()).collect();
    let directory = Scratch::new("profiles-mount");
    let mount = ["-t", "btrfs", "-o", "degraded"];
    tool(Command::new("mount").args(mount).arg(loops[0].node()).arg(directory.path()));
    tool(Command::new("sh").args(["-ec", script]).current_dir(directory.path()));
    tool(Command::new("btrfs").args(["filesystem", "sync"]).arg(directory.path()));
    let walked = walk::walk(directory.path(), &Options::default()).unwrap();
    unmount(directory.path()).unwrap();
    for device in &loops {
        tool(Command::new("btrfs").args(["device", "scan", "--forget"]).arg(device.node()));
    }
    walk::render(&walked)
}

/// Overwrites what chunks have on a device; its superblocks stay.
fn damage(image: &Path) {
    let file = std::fs::File::options().write(true).open(image).unwrap();
    let noise = vec![0x5A; 1 << 20];
    for mebibyte in 1..DEVICE_BYTES >> 20 {
        if mebibyte != 64 {
            file.write_all_at(&noise, mebibyte << 20).unwrap();
        }
    }
}

#[test]
fn every_profile_reads_as_the_kernel_and_bears_its_losses() {
    require!(KernelBtrfs, Tool("btrfs"), Tool("mkfs.btrfs"), Tool("chattr"));
    for (data, metadata, devices, damaged) in CASES {
        let scratch = Scratch::new("profiles");
        let images: Vec<PathBuf> =
            (0..*devices).map(|number| scratch.join(format!("device-{number}"))).collect();
        let expected = fill(&images, data, metadata);
        for bad in 0..=*damaged {
            if bad > 0 {
                damage(&images[bad - 1]);
            }
            let paths: Vec<&Path> = images.iter().rev().map(PathBuf::as_path).collect();
            let filesystem = Filesystem::open(&paths, OpenOptions::default()).unwrap();
            assert!(filesystem.is_read_only(), "several devices are only read");
            if let Err(difference) = walk::compare(&expected, &support::walk(&filesystem)) {
                panic!("{data}, {metadata}, {devices} devices, {bad} damaged: {difference}");
            }
        }
    }
}

fn images_in(scratch: &Scratch, count: usize) -> Vec<PathBuf> {
    (0..count).map(|number| scratch.join(format!("device-{number}"))).collect()
}

fn degraded() -> OpenOptions {
    OpenOptions::parse("degraded").unwrap()
}

#[test]
fn degraded_bears_as_many_missing_devices_as_the_profiles() {
    require!(KernelBtrfs, Tool("btrfs"), Tool("mkfs.btrfs"), Tool("chattr"));
    for (data, metadata, devices, missing) in CASES.iter().filter(|(.., missing)| *missing > 0) {
        let scratch = Scratch::new("profiles");
        let images = images_in(&scratch, *devices);
        let expected = fill(&images, data, metadata);
        let what = format!("{data}, {metadata}, {missing} of {devices} devices missing");
        let left: Vec<&Path> = images[*missing..].iter().map(PathBuf::as_path).collect();
        let refused = Filesystem::open(&left, OpenOptions::default()).map(drop).unwrap_err().to_string();
        assert!(refused.contains("-o degraded"), "{what}: {refused}");
        let filesystem = Filesystem::open(&left, degraded()).unwrap();
        assert_eq!(filesystem.engine().missing_devices().len(), *missing, "{what}");
        assert_eq!(filesystem.engine().volume().unreadable_chunks(), [], "{what}");
        if let Err(difference) = walk::compare(&expected, &support::walk(&filesystem)) {
            panic!("{what}: {difference}");
        }
        drop(filesystem);
        // Nobody missing is nothing unusual.
        let all: Vec<&Path> = images.iter().map(PathBuf::as_path).collect();
        let filesystem = Filesystem::open(&all, degraded()).unwrap();
        assert_eq!(filesystem.engine().missing_devices(), []);
    }
}

#[test]
fn what_only_missing_devices_hold_is_named_and_the_rest_read() {
    require!(KernelBtrfs, Tool("btrfs"), Tool("mkfs.btrfs"), Tool("chattr"));
    let scratch = Scratch::new("profiles");
    let images = images_in(&scratch, 3);
    fill(&images, "raid0", "raid1c3");
    let filesystem = Filesystem::open(&[&images[0], &images[2]], degraded()).unwrap();
    let unreadable = filesystem.engine().volume().unreadable_chunks();
    assert!(!unreadable.is_empty());
    for chunk in unreadable {
        assert_eq!(chunk.profile, vlinder_volume::Profile::Raid0);
    }
    // Small files lie in the tree.
    let files = Files::new(filesystem, Caller::superuser());
    assert_eq!(files.read("/d/small-7").unwrap(), b"7\n");
    let error = files.read("/big-11").unwrap_err().to_string();
    assert!(error.contains("device 2 is missing"), "{error}");
}

#[test]
fn a_device_that_was_away_is_used_as_the_last_resort() {
    require!(KernelBtrfs, Tool("btrfs"), Tool("mkfs.btrfs"), Tool("chattr"));
    let scratch = Scratch::new("profiles");
    let images = images_in(&scratch, 2);
    let script = "touch plain; chattr +C plain; dd if=/dev/zero of=plain bs=64k count=8 conv=notrunc status=none; echo before > old";
    fill(&images, "raid1", "raid1");
    change_without(&images[..1], "true");
    change_without(&images[..1], script);
    // The bytes that no checksum vouches for: the device that was away has other ones there.
    let overwrite = "sync; tr '\\0' x < plain > new; dd if=new of=plain bs=64k conv=notrunc status=none; echo after > old";
    let expected = change_without(&images[..1], overwrite);
    for order in [[0, 1], [1, 0]] {
        let paths = order.map(|number: usize| images[number].as_path());
        let filesystem = Filesystem::open(&paths, OpenOptions::default()).unwrap();
        let stale: Vec<bool> =
            filesystem.engine().volume().members().iter().map(|member| member.is_stale).collect();
        assert_eq!(stale, [false, true]);
        if let Err(difference) = walk::compare(&expected, &support::walk(&filesystem)) {
            panic!("{order:?}: {difference}");
        }
    }
}
