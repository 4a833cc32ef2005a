//! The judges judge: sound images pass, and each sort of damage or noise is noticed.

use std::path::Path;
use std::process::Command;

use vlinder_base::units::Physical;
use vlinder_codec::checksum::{ChecksumKind, checksum};
use vlinder_device::{Device, DeviceErrorKind, DeviceExt, FileDevice, LockMode, OpenOptions, kernel_mount};
use vlinder_format::Generation;
use vlinder_format::superblock::{SUPERBLOCK_SIZE, Superblock, SuperblockMirror};
use vlinder_testkit::kernel::{JudgeError, KernelMount, btrfs_check, btrfs_check_data, unmount};
use vlinder_testkit::walk::{InodeIdentity, Options, compare, render, walk};
use vlinder_testkit::{Scratch, require};

fn make_image(path: &Path) {
    std::fs::File::create(path).unwrap().set_len(256 << 20).unwrap();
    let made = Command::new("mkfs.btrfs").args(["-q", "-f"]).arg(path).output().unwrap();
    assert!(made.status.success(), "{made:?}");
}

#[test]
fn a_sound_image_passes_all_judges() {
    require!(KernelBtrfs, Tool("btrfs"), Tool("mkfs.btrfs"));
    let scratch = Scratch::new("sound");
    let image = scratch.join("image");
    make_image(&image);
    let mount = KernelMount::new(&image, "").unwrap();
    std::fs::write(mount.path().join("file"), vec![7; 1 << 20]).unwrap();
    mount.scrub().unwrap();
    mount.unmount().unwrap();
    btrfs_check_data(&image).unwrap();
    let mount = KernelMount::new(&image, "ro").unwrap();
    assert_eq!(std::fs::read(mount.path().join("file")).unwrap(), vec![7; 1 << 20]);
    mount.unmount().unwrap();
}

#[test]
fn damage_is_noticed_by_check_scrub_and_log() {
    require!(KernelBtrfs, Tool("btrfs"), Tool("mkfs.btrfs"));
    let scratch = Scratch::new("damage");
    let image = scratch.join("image");
    make_image(&image);
    let mount = KernelMount::new(&image, "").unwrap();
    let content: Vec<u8> = (0..1_u32 << 18).flat_map(u32::to_le_bytes).collect();
    std::fs::write(mount.path().join("file"), &content).unwrap();
    mount.unmount().unwrap();
    // Data has one copy: find it by its content and flip a bit of it.
    let device = FileDevice::open(&image, &OpenOptions::writer()).unwrap();
    let whole = device.read_at(Physical(0), device.length() as usize).unwrap();
    let place =
        (0..whole.len()).step_by(4096).find(|place| whole[*place..].starts_with(&content[..4096])).unwrap();
    device.write_at(Physical(place as u64), vec![whole[place] ^ 1]).unwrap();
    drop(device);
    btrfs_check(&image).expect("the trees are whole");
    assert!(matches!(btrfs_check_data(&image), Err(JudgeError::Complained { .. })));
    let mount = KernelMount::new(&image, "").unwrap();
    assert!(std::fs::read(mount.path().join("file")).is_err());
    assert!(mount.scrub().is_err());
    let Err(JudgeError::Log { lines, .. }) = mount.unmount() else { panic!("the log was not judged") };
    assert!(lines.iter().any(|line| line.contains("csum failed")), "{lines:?}");
}

#[test]
fn what_is_no_btrfs_is_refused_by_check_and_mount() {
    require!(KernelBtrfs, Tool("btrfs"));
    let scratch = Scratch::new("nothing");
    let image = scratch.join("image");
    std::fs::File::create(&image).unwrap().set_len(64 << 20).unwrap();
    assert!(matches!(btrfs_check(&image), Err(JudgeError::Complained { .. })));
    let refused = KernelMount::unchecked(&image, "").unwrap_err().to_string();
    assert!(refused.contains("mount"), "{refused}");
}

/// An image under the kernel's mount is refused by its file and by its loop device.
#[test]
fn an_image_that_the_kernel_has_mounted_is_not_opened() {
    require!(KernelBtrfs, Tool("btrfs"), Tool("mkfs.btrfs"));
    let scratch = Scratch::new("mounted");
    let image = scratch.join("image with blank");
    make_image(&image);
    assert_eq!(kernel_mount(&image), None);
    let mount = KernelMount::new(&image, "").unwrap();
    for path in [&image, mount.device()] {
        let found = kernel_mount(path).unwrap();
        assert_eq!((&*found.device, found.mountpoint.as_deref()), (mount.device(), Some(mount.path())));
        for options in [OpenOptions::reader(), OpenOptions::writer()] {
            let refused = FileDevice::open(path, &options).unwrap_err();
            assert!(matches!(refused.kind, DeviceErrorKind::Mounted { .. }), "{refused}");
            assert!(refused.to_string().contains(&*mount.path().to_string_lossy()), "{refused}");
        }
    }
    let watching = OpenOptions { allow_mounted: true, lock: LockMode::None, ..OpenOptions::reader() };
    assert!(FileDevice::open(&image, &watching).is_ok());
    // A loop device without a mount may be opened, exclusively, and discards.
    let node = mount.device().to_owned();
    mount.unmount().unwrap();
    assert_eq!(kernel_mount(&image), None);
    let attached = vlinder_testkit::kernel::LoopDevice::attach(&image).unwrap();
    let device = FileDevice::open(attached.node(), &OpenOptions::writer()).unwrap();
    assert_eq!(device.length(), 256 << 20, "{}", node.display());
    let again = FileDevice::open(attached.node(), &OpenOptions::writer()).unwrap_err();
    assert!(matches!(again.kind, DeviceErrorKind::Busy { .. }), "{again}");
    device.write_durable_at(Physical(1 << 20), vec![1; 4096]).unwrap();
    device.flush().unwrap();
    device.discard(Physical(1 << 20), 4096).unwrap();
    assert_eq!(device.read_at(Physical(1 << 20), 4096).unwrap(), vec![0; 4096]);
}

#[test]
fn the_golden_images_walk_as_they_should() {
    require!(KernelBtrfs, Tool("xz"), Corpus);
    let golden = vlinder_testkit::require::corpus().unwrap().join("golden");
    let mut count = 0;
    for entry in std::fs::read_dir(&golden).unwrap() {
        let path = entry.unwrap().path();
        let Some(name) = path.file_name().unwrap().to_str().unwrap().strip_suffix(".raw.xz") else {
            continue;
        };
        let scratch = Scratch::new("golden");
        let image = scratch.join("image");
        let unpacked = std::fs::File::create(&image).unwrap();
        let xz = Command::new("xz").args(["-dc"]).arg(&path).stdout(unpacked).status().unwrap();
        assert!(xz.success());
        let mount = KernelMount::unchecked(&image, "ro").unwrap();
        let options = Options { identity: InodeIdentity::NumberAlone, ..Options::default() };
        let found = render(&walk(mount.path(), &options).unwrap());
        let expected = std::fs::read_to_string(golden.join(format!("{name}.walk"))).unwrap();
        if let Err(difference) = compare(&expected, &found) {
            panic!("{name}: {difference}");
        }
        mount.unmount().unwrap_or_else(|error| panic!("{name}: {error}"));
        count += 1;
    }
    assert!(count >= 7, "only {count} golden images");
}

/// A small tmpfs is a real host that fills up.
#[test]
fn a_full_host_is_told_apart_from_a_broken_disk() {
    require!(Root);
    let scratch = Scratch::new("full");
    let mount = |command: &str, arguments: &[&str]| {
        let done = Command::new(command).args(arguments).arg(scratch.path()).output().unwrap();
        assert!(done.status.success(), "{done:?}");
    };
    mount("mount", &["-t", "tmpfs", "-o", "size=64k", "tmpfs"]);
    let error = FileDevice::create(scratch.join("image"), 1 << 20, &OpenOptions::writer())
        .and_then(|device| device.write_at(Physical(0), vec![1_u8; 200_000]));
    unmount(scratch.path()).unwrap();
    assert_eq!(error.unwrap_err().kind, DeviceErrorKind::HostFull);
}

/// Puts the superblocks back to those of the commit before: what a power cut before the last one would have
/// left.
fn take_back_a_commit(image: &Path) {
    let device = FileDevice::open(image, &OpenOptions::writer()).unwrap();
    for mirror in [SuperblockMirror::Primary, SuperblockMirror::Second] {
        let place = mirror.offset();
        let bytes = device.read_at(place, SUPERBLOCK_SIZE).unwrap();
        let mut superblock = Superblock::decode(&bytes).unwrap();
        let before = Generation(superblock.generation.0 - 1);
        let root = *superblock.backup_roots.iter().find(|root| root.tree_root_generation == before).unwrap();
        superblock.generation = before;
        superblock.root = root.tree_root;
        superblock.root_level = root.tree_root_level;
        superblock.chunk_root = root.chunk_root;
        superblock.chunk_root_generation = root.chunk_root_generation;
        superblock.bytes_used = root.bytes_used;
        let sum = |covered: &[u8]| *checksum(ChecksumKind::Crc32c, covered).as_field();
        let encoded = superblock.encode_with_checksum(mirror, sum);
        device.write_at(place, encoded.to_vec()).unwrap();
    }
}

/// Linux makes a snapshot with the orphans of its source and deletes them in the next commit. Its own state
/// in between is refused by the usual mode of `btrfs check`, which can't say why.
#[test]
fn a_snapshot_with_orphans_is_sound_though_check_finds_fault() {
    require!(KernelBtrfs, Tool("btrfs"), Tool("mkfs.btrfs"));
    let scratch = Scratch::new("orphans");
    let (image, cut) = (scratch.join("image"), scratch.join("cut"));
    std::fs::File::create(&image).unwrap().set_len(256 << 20).unwrap();
    tool("mkfs.btrfs", &["-q", "-n", "4096", image.to_str().unwrap()]);
    let mount = KernelMount::new(&image, "").unwrap();
    let root = mount.path();
    // Enough that the leaf with the two deleted files is none that the snapshot's name changes.
    (0..30).for_each(|number| std::fs::write(root.join(format!("file {number}")), "x").unwrap());
    let deleted = ["one", "two"].map(|name| root.join(name));
    let open = deleted.each_ref().map(|path| std::fs::File::create(path).unwrap());
    std::fs::write(root.join("last"), "x").unwrap();
    deleted.iter().for_each(|path| std::fs::remove_file(path).unwrap());
    let path = root.to_str().unwrap();
    tool("btrfs", &["filesystem", "sync", path]);
    tool("btrfs", &["subvolume", "snapshot", path, &format!("{path}/snapshot")]);
    tool("btrfs", &["filesystem", "sync", path]);
    std::fs::copy(&image, &cut).unwrap();
    drop(open);
    mount.unmount().unwrap();

    take_back_a_commit(&cut);
    let trees = tool("btrfs", &["inspect-internal", "dump-tree", "-t", "256", cut.to_str().unwrap()]);
    assert_eq!(trees.matches("ORPHAN_ITEM").count(), 2, "{trees}");
    let usual = Command::new("btrfs").args(["check", "--readonly"]).arg(&cut).output().unwrap();
    println!("the usual mode by itself: {}", usual.status);
    btrfs_check_data(&cut).unwrap();
}

fn tool(name: &str, arguments: &[&str]) -> String {
    let done = Command::new(name).args(arguments).output().unwrap();
    assert!(done.status.success(), "{name} {arguments:?}: {done:?}");
    String::from_utf8_lossy(&done.stdout).into_owned()
}
