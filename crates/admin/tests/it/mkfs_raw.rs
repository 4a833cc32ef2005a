//! New file systems before the judges: `btrfs check` and the kernel's mount, for every combination of
//! checksum kind, node size, profile and feature set; and against what `mkfs.btrfs` makes.

use std::path::{Path, PathBuf};

use vlinder_admin::mkfs::raw::{MkfsFeatures, MkfsParameters, MkfsUuids, make, smallest_device};
use vlinder_base::random::{OsRandom, Random};
use vlinder_codec::checksum::ChecksumKind;
use vlinder_device::{FileDevice, OpenOptions};
use vlinder_format::Uuid;
use vlinder_format::inode::Timestamp;
use vlinder_format::superblock::Label;
use vlinder_testkit::kernel::{KernelMount, btrfs_check};
use vlinder_testkit::{Scratch, require};
use vlinder_volume::Profile;

const GIBIBYTE: u64 = 1 << 30;

const ALL_ON: MkfsFeatures = MkfsFeatures {
    extref: true,
    skinny_metadata: true,
    no_holes: true,
    free_space_tree: true,
    block_group_tree: true,
    mixed_groups: false,
};

/// The feature sets: all, each one off (with what needs it), and none.
fn feature_sets() -> Vec<(&'static str, MkfsFeatures)> {
    let no_groups = MkfsFeatures { block_group_tree: false, ..ALL_ON };
    vec![
        ("all", ALL_ON),
        ("^block-group-tree", no_groups),
        ("^block-group-tree,^no-holes", MkfsFeatures { no_holes: false, ..no_groups }),
        ("^block-group-tree,^free-space-tree", MkfsFeatures { free_space_tree: false, ..no_groups }),
        ("^block-group-tree,^skinny-metadata", MkfsFeatures { skinny_metadata: false, ..no_groups }),
        ("^block-group-tree,^extref", MkfsFeatures { extref: false, ..no_groups }),
        (
            "none",
            MkfsFeatures {
                extref: false,
                skinny_metadata: false,
                no_holes: false,
                free_space_tree: false,
                block_group_tree: false,
                mixed_groups: false,
            },
        ),
    ]
}

fn parameters(device_bytes: u64) -> MkfsParameters {
    // Every image has its own UUIDs: the kernel refuses a second file system with the same.
    let uuid = || Uuid(OsRandom.uuid());
    MkfsParameters {
        label: Label::new("böttom".as_bytes()).unwrap(),
        uuids: MkfsUuids { fsid: uuid(), chunk_tree: uuid(), device: uuid(), top_level: uuid() },
        device_bytes,
        sector_size: 4096,
        node_size: 16384,
        checksum_kind: ChecksumKind::Crc32c,
        data_profile: Profile::Single,
        metadata_profile: Profile::Dup,
        features: MkfsFeatures { block_group_tree: false, ..ALL_ON },
        time: Timestamp { seconds: 1_700_000_000, nanoseconds: 123_456_789 },
    }
}

/// Makes the file system in a sparse file.
fn image(scratch: &Scratch, parameters: &MkfsParameters) -> PathBuf {
    let path = scratch.join("image");
    let file = std::fs::File::create(&path).unwrap();
    file.set_len(parameters.device_bytes).unwrap();
    drop(file);
    let device = FileDevice::open(&path, &OpenOptions::default()).unwrap();
    make(parameters).unwrap().write_to(&device).unwrap();
    path
}

/// The kernel mounts it, writes to it, scrubs it and finds nothing to say; then `btrfs check` once more.
fn judge(path: &Path, parameters: &MkfsParameters) {
    let progs_know = !parameters.features.block_group_tree;
    let mount =
        if progs_know { KernelMount::new(path, "") } else { KernelMount::unchecked(path, "") }.unwrap();
    let root = std::fs::metadata(mount.path()).unwrap();
    let modified = std::os::unix::fs::MetadataExt::mtime(&root);
    assert_eq!(modified, parameters.time.seconds);
    std::fs::write(mount.path().join("file"), vec![b'x'; 300_000]).unwrap();
    std::fs::create_dir(mount.path().join("directory")).unwrap();
    std::process::Command::new("sync").arg("-f").arg(mount.path()).status().unwrap();
    mount.scrub().unwrap();
    mount.unmount().unwrap();
    if progs_know {
        btrfs_check(path).unwrap();
    }
    let again = if progs_know { KernelMount::new(path, "ro") } else { KernelMount::unchecked(path, "ro") };
    let again = again.unwrap();
    assert_eq!(std::fs::read(again.path().join("file")).unwrap(), vec![b'x'; 300_000]);
    again.unmount().unwrap();
}

fn judge_all(checksum_kind: ChecksumKind) {
    for node_size in [4096, 8192, 16384, 32768, 65536] {
        for metadata_profile in [Profile::Single, Profile::Dup] {
            for (name, features) in feature_sets() {
                let scratch = Scratch::new("mkfs");
                let parameters = MkfsParameters {
                    checksum_kind,
                    node_size,
                    metadata_profile,
                    features,
                    ..parameters(256 << 20)
                };
                eprintln!("{checksum_kind} {node_size} {metadata_profile} {name}");
                judge(&image(&scratch, &parameters), &parameters);
            }
        }
    }
}

#[test]
fn linux_accepts_every_combination_with_crc32c() {
    require!(KernelBtrfs, Tool("btrfs"));
    judge_all(ChecksumKind::Crc32c);
}

#[test]
fn linux_accepts_every_combination_with_xxhash64() {
    require!(KernelBtrfs, Tool("btrfs"));
    judge_all(ChecksumKind::Xxhash64);
}

#[test]
fn linux_accepts_every_combination_with_sha256() {
    require!(KernelBtrfs, Tool("btrfs"));
    judge_all(ChecksumKind::Sha256);
}

#[test]
fn linux_accepts_every_combination_with_blake2b() {
    require!(KernelBtrfs, Tool("btrfs"));
    judge_all(ChecksumKind::Blake2b);
}

#[test]
fn linux_accepts_mixed_groups_dup_data_and_the_smallest_devices() {
    require!(KernelBtrfs, Tool("btrfs"));
    let mixed = |profile| MkfsParameters {
        features: MkfsFeatures { mixed_groups: true, block_group_tree: false, ..ALL_ON },
        node_size: 4096,
        data_profile: profile,
        metadata_profile: profile,
        ..parameters(0)
    };
    let profiles =
        |data_profile, metadata_profile| MkfsParameters { data_profile, metadata_profile, ..parameters(0) };
    for parameters in [
        mixed(Profile::Single),
        mixed(Profile::Dup),
        profiles(Profile::Dup, Profile::Dup),
        profiles(Profile::Dup, Profile::Single),
        profiles(Profile::Single, Profile::Dup),
        profiles(Profile::Single, Profile::Single),
    ] {
        let smallest = smallest_device(&parameters).unwrap();
        for device_bytes in [smallest, GIBIBYTE, 300 * GIBIBYTE] {
            let scratch = Scratch::new("mkfs");
            let parameters = MkfsParameters { device_bytes, ..parameters.clone() };
            eprintln!("{} {} {device_bytes}", parameters.data_profile, parameters.metadata_profile);
            judge(&image(&scratch, &parameters), &parameters);
        }
    }
}

/// Lines of `btrfs inspect-internal dump-tree -t chunk`, without what differs by chance.
fn chunk_tree(path: &Path) -> Vec<String> {
    let output = std::process::Command::new("btrfs")
        .args(["inspect-internal", "dump-tree", "-t", "chunk"])
        .arg(path)
        .output()
        .unwrap();
    assert!(output.status.success());
    let text = String::from_utf8(output.stdout).unwrap();
    let by_chance = ["uuid", "fsid", "leaf", "chunk tree", "io_align", "btrfs-progs"];
    let told = text.lines().map(str::trim).filter(|line| !by_chance.iter().any(|word| line.contains(word)));
    // The first system chunk of mkfs.btrfs has 0 sub stripes, every other 1; without RAID10 they mean
    // nothing.
    told.map(|line| line.split(" sub_stripes").next().unwrap_or(line).to_owned()).collect()
}

#[test]
fn chunks_are_those_of_mkfs_btrfs() {
    require!(Tool("btrfs"), Tool("mkfs.btrfs"));
    for device_bytes in [114294784, 200 << 20, GIBIBYTE, 3 * GIBIBYTE, 20 * GIBIBYTE, 80 * GIBIBYTE] {
        for (data, metadata) in [("single", "dup"), ("single", "single"), ("dup", "dup"), ("dup", "single")] {
            let profile = |name| Profile::from_name(name).unwrap();
            let parameters = MkfsParameters {
                data_profile: profile(data),
                metadata_profile: profile(metadata),
                ..parameters(device_bytes)
            };
            if smallest_device(&parameters).unwrap() > device_bytes {
                continue;
            }
            let scratch = Scratch::new("mkfs");
            let ours = image(&scratch, &parameters);
            let theirs = scratch.join("theirs");
            std::fs::File::create(&theirs).unwrap().set_len(device_bytes).unwrap();
            let made = std::process::Command::new("mkfs.btrfs")
                .args(["-q", "-d", data, "-m", metadata])
                .arg(&theirs)
                .output()
                .unwrap();
            assert!(made.status.success());
            let found = chunk_tree(&ours);
            assert!(found.len() > 10, "{found:?}");
            assert_eq!(found, chunk_tree(&theirs), "{device_bytes} {data} {metadata}");
        }
    }
}
