//! Members that were away for some commits, in every profile that bears it: which bytes without checksums are
//! right is decided by who has the newest superblock, whatever the order in which the devices are given.

use std::path::{Path, PathBuf};
use std::process::Command;

use vlinder_base::sync::Arc;
use vlinder_check::{FindingKind, Options as CheckOptions};
use vlinder_device::{Device, FileDevice};
use vlinder_fs::path::Files;
use vlinder_fs::{Caller, Filesystem, OpenOptions};
use vlinder_testkit::kernel::{LoopDevice, unmount};
use vlinder_testkit::{Scratch, require};

const DEVICE_BYTES: u64 = 300 << 20;
/// Of the file that is written over in place: enough to lie on all devices.
const FILE_BYTES: usize = 768 << 10;

fn tool(command: &mut Command) {
    let output = command.output().unwrap();
    assert!(output.status.success(), "{command:?}: {}", String::from_utf8_lossy(&output.stderr));
}

/// What the kernel does with these devices of a file system.
fn mounted(images: &[&Path], script: &str) {
    let loops: Vec<LoopDevice> = images.iter().map(|image| LoopDevice::attach(image).unwrap()).collect();
    for device in &loops {
        tool(Command::new("btrfs").args(["device", "scan"]).arg(device.node()));
    }
    let directory = Scratch::new("stale-mount");
    let mount = ["-t", "btrfs", "-o", "degraded"];
    tool(Command::new("mount").args(mount).arg(loops[0].node()).arg(directory.path()));
    tool(Command::new("sh").args(["-ec", script]).current_dir(directory.path()));
    unmount(directory.path()).unwrap();
    for device in &loops {
        tool(Command::new("btrfs").args(["device", "scan", "--forget"]).arg(device.node()));
    }
}

/// Fills the file with a byte, where it lies.
fn fill(byte: char) -> String {
    format!(
        "head -c {FILE_BYTES} /dev/zero | tr '\\0' {byte} | dd of=plain conv=notrunc bs=64k iflag=fullblock status=none"
    )
}

/// A file system with a file whose bytes have no checksums; of these devices all but one go on for some
/// commits.
fn left_behind(scratch: &Scratch, profile: &str, count: usize, away: usize, commits: u64) -> Vec<PathBuf> {
    let images: Vec<PathBuf> = (0..count).map(|number| scratch.join(format!("device-{number}"))).collect();
    for image in &images {
        std::fs::File::create(image).unwrap().set_len(DEVICE_BYTES).unwrap();
    }
    // So that trees can be read with any two devices.
    let metadata = if profile == "raid1c4" { profile } else { "raid1c3" };
    tool(Command::new("mkfs.btrfs").args(["-q", "-d", profile, "-m", metadata]).args(&images));
    let all: Vec<&Path> = images.iter().map(PathBuf::as_path).collect();
    mounted(&all, &format!("touch plain; chattr +C plain; {}; sync; echo common > file", fill('o')));
    let others: Vec<&Path> =
        (0..count).filter(|number| *number != away).map(|number| images[number].as_path()).collect();
    let more: String = (1..commits).map(|number| format!("echo {number} > file; sync;")).collect();
    mounted(&others, &format!("{more}{}", fill('n')));
    images
}

/// Whether one of the file's newer blocks lies on a device.
fn holds_newer(image: &Path) -> bool {
    let newer = [b'n'; 4096];
    std::fs::read(image).unwrap().chunks_exact(newer.len()).any(|block| block == newer)
}

fn plain_of(images: &[&Path], options: &str) -> Vec<u8> {
    let filesystem = Filesystem::open(images, OpenOptions::parse(options).unwrap()).unwrap();
    Files::new(filesystem, Caller::superuser()).read("/plain").unwrap()
}

#[test]
fn a_member_that_was_away_is_not_believed_in_any_profile() {
    require!(KernelBtrfs, Tool("btrfs"), Tool("mkfs.btrfs"), Tool("chattr"));
    let profiles = [("raid1", 3), ("raid1c3", 3), ("raid1c4", 4), ("raid10", 4), ("raid5", 3), ("raid6", 4)];
    for (number, (profile, count)) in profiles.into_iter().enumerate() {
        for (away, commits) in [(number % count, 1), ((number + 1) % count, 2), ((number + 2) % count, 10)] {
            let scratch = Scratch::in_memory("stale");
            let images = left_behind(&scratch, profile, count, away, commits);
            for first in 0..count {
                let order: Vec<&Path> =
                    (0..count).map(|number| images[(first + number) % count].as_path()).collect();
                let bytes = plain_of(&order, "ro");
                let old = bytes.iter().filter(|byte| **byte == b'o').count();
                assert_eq!(
                    (bytes.len(), old),
                    (FILE_BYTES, 0),
                    "{profile}, device {away} missed {commits}, device {first} given first"
                );
            }
        }
    }
}

/// The data lie on the second and the third device, the second was away, and now the third is not there.
#[test]
fn a_sole_copy_on_a_member_that_was_away_is_told() {
    require!(KernelBtrfs, Tool("btrfs"), Tool("mkfs.btrfs"), Tool("chattr"));
    let scratch = Scratch::in_memory("stale");
    // In some runs the kernel moves a part of the file to a second chunk, on the first and the second device.
    let images =
        (0..20).map(|_| left_behind(&scratch, "raid1", 3, 1, 3)).find(|images| !holds_newer(&images[0]));
    let images = images.expect("the kernel leaves the file where it lies in one of 20 runs");
    let stale_chunks = |images: &[&Path]| {
        let how = vlinder_device::OpenOptions { read_only: true, ..vlinder_device::OpenOptions::default() };
        let open = |path: &&Path| Arc::new(FileDevice::open(path, &how).unwrap()) as Arc<dyn Device>;
        let options = CheckOptions { degraded: true, ..CheckOptions::default() };
        let report = vlinder_check::check(images.iter().map(open).collect(), &options).unwrap();
        report
            .findings
            .iter()
            .filter(|finding| matches!(finding.kind, FindingKind::ChunkStale { .. }))
            .count()
    };
    let left = [images[0].as_path(), images[1].as_path()];
    assert!(plain_of(&left, "ro,degraded").iter().all(|byte| *byte == b'o'), "what there is is given");
    assert_eq!(stale_chunks(&left), 1, "the chunk of data");
    let left = [images[0].as_path(), images[2].as_path()];
    assert!(plain_of(&left, "ro,degraded").iter().all(|byte| *byte == b'n'));
    assert_eq!(stale_chunks(&left), 0);
}

/// The kernel wipes the superblock of a device that it removes: only a copy of it from before comes back.
#[test]
fn a_device_that_was_removed_is_named() {
    require!(KernelBtrfs, Tool("btrfs"), Tool("mkfs.btrfs"));
    let scratch = Scratch::in_memory("removed");
    let images: Vec<PathBuf> = (0..3).map(|number| scratch.join(format!("device-{number}"))).collect();
    for image in &images {
        std::fs::File::create(image).unwrap().set_len(DEVICE_BYTES).unwrap();
    }
    tool(Command::new("mkfs.btrfs").args(["-q", "-d", "raid1", "-m", "raid1"]).args(&images));
    let all: Vec<&Path> = images.iter().map(PathBuf::as_path).collect();
    mounted(&all, "echo before > file");
    let copy = scratch.join("copy");
    std::fs::copy(&images[1], &copy).unwrap();
    mounted(&all, "btrfs device remove 2 .; echo after > file");
    let options = || OpenOptions::parse("ro").unwrap();
    for order in [[0, 1, 2], [1, 2, 0], [2, 0, 1]] {
        let given: Vec<&Path> =
            order.iter().map(|number| if *number == 1 { copy.as_path() } else { all[*number] }).collect();
        let refused = Filesystem::open(&given, options()).err().map(|error| error.to_string()).unwrap();
        let named = format!("device 2 ({}) is older", copy.display());
        assert!(refused.contains(&named) && refused.contains("has 2 devices"), "{refused}");
    }
    let left = Filesystem::open(&[all[0], all[2]], options()).unwrap();
    assert_eq!(Files::new(left, Caller::superuser()).read("/file").unwrap(), b"after\n");
}
