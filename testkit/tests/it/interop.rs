//! An image filled, aged and snapshotted by vlinder, continued by the kernel, continued by vlinder, twice
//! over: all judges content at every change of hands, and nobody's files changed by the other.

use std::collections::BTreeMap;
use std::path::Path;
use std::process::Command;

use vlinder_fs::path::Files;
use vlinder_testkit::kernel::{self, KernelMount};
use vlinder_testkit::walk::{self, Options, walk};
use vlinder_testkit::{Scratch, require};

/// Repeatable content.
fn content(seed: u64, bytes: usize) -> Vec<u8> {
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let mut content = Vec::with_capacity(bytes + 8);
    while content.len() < bytes {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        // Half of it repeats, so that some of it compresses.
        let word = if state >> 63 == 0 { state } else { 0x2020_2020_2020_2020 };
        content.extend_from_slice(&word.to_le_bytes());
    }
    content.truncate(bytes);
    content
}

/// What the test knows of the live tree: content by path.
type Model = BTreeMap<String, Vec<u8>>;

/// vlinder fills, ages and snapshots.
fn vlinder_part(image: &Path, round: u64, model: &mut Model) {
    let files = Files::open(image).unwrap();
    for (path, expected) in model.iter() {
        assert!(files.read(path).unwrap() == *expected, "{path} reads differently before round {round}");
    }
    let directory = format!("/vlinder-{round}");
    files.create_dir_all(&directory).unwrap();
    for number in 0..300u64 {
        let path = format!("{directory}/file-{number}");
        let bytes = content(round * 1000 + number, usize::try_from(number * number % 70_000).unwrap());
        files.write(&path, &bytes).unwrap();
        model.insert(path, bytes);
        if number % 100 == 99 {
            files.sync().unwrap();
        }
    }
    files.snapshot("/", format!("/snapshot-{round}-vlinder"), round.is_multiple_of(2)).unwrap();
    for (path, bytes) in model.iter_mut().filter(|(path, _)| path.ends_with('3')) {
        let file = files.options().write(true).open(path).unwrap();
        let patch = content(round, 5000);
        file.write_at(&patch, 1000).unwrap();
        bytes.resize(bytes.len().max(6000), 0);
        bytes[1000..6000].copy_from_slice(&patch);
    }
    let doomed: Vec<String> = model.keys().filter(|path| path.ends_with('7')).cloned().collect();
    for path in doomed {
        files.remove_file(&path).unwrap();
        model.remove(&path);
    }
    files.close().unwrap();
}

/// The kernel does the same kind of things, through ordinary programs.
fn kernel_part(image: &Path, round: u64, model: &mut Model) {
    let mount = KernelMount::new(image, "compress-force=zstd").unwrap();
    let root = mount.path();
    for (path, expected) in model.iter() {
        let found = std::fs::read(root.join(path.trim_start_matches('/'))).unwrap();
        assert!(found == *expected, "{path} reads differently under the kernel in round {round}");
    }
    let directory = root.join(format!("kernel-{round}"));
    std::fs::create_dir(&directory).unwrap();
    for number in 0..200u64 {
        let name = format!("file-{number}");
        let bytes = content(round * 7777 + number, usize::try_from(number * number % 50_000).unwrap());
        std::fs::write(directory.join(&name), &bytes).unwrap();
        model.insert(format!("/kernel-{round}/{name}"), bytes);
    }
    let snapshot = root.join(format!("snapshot-{round}-kernel"));
    let made = Command::new("btrfs")
        .args(["-q", "subvolume", "snapshot"])
        .arg(root)
        .arg(&snapshot)
        .status()
        .unwrap();
    assert!(made.success());
    let doomed: Vec<String> = model.keys().filter(|path| path.ends_with('5')).cloned().collect();
    for path in doomed {
        std::fs::remove_file(root.join(path.trim_start_matches('/'))).unwrap();
        model.remove(&path);
    }
    if round > 0 {
        let old = root.join(format!("snapshot-{}-vlinder", round - 1));
        let deleted =
            Command::new("btrfs").args(["-q", "subvolume", "delete", "-c"]).arg(old).status().unwrap();
        assert!(deleted.success());
    }
    mount.scrub().unwrap();
    mount.unmount().unwrap();
}

fn change_hands(arguments: &[&str]) {
    let scratch = Scratch::new("interop");
    let image = scratch.join("image");
    std::fs::File::create(&image).unwrap().set_len(1 << 30).unwrap();
    let made = Command::new("mkfs.btrfs").arg("-q").args(arguments).arg(&image).output().unwrap();
    assert!(made.status.success(), "{made:?}");
    let mut model = Model::new();
    for round in 0..2 {
        vlinder_part(&image, round, &mut model);
        kernel::btrfs_check_data(&image).unwrap();
        kernel_part(&image, round, &mut model);
        kernel::btrfs_check_data(&image).unwrap();
    }
    vlinder_part(&image, 2, &mut model);
    kernel::btrfs_check_data(&image).unwrap();
    let mount = KernelMount::new(&image, "ro").unwrap();
    let entries = walk(mount.path(), &Options::default()).unwrap();
    assert!(entries.len() > 1500, "only {} entries", entries.len());
    assert!(!walk::render(&entries).is_empty());
    mount.unmount().unwrap();
}

#[test]
fn vlinder_and_the_kernel_take_turns() {
    require!(Root, LoopDevices, KernelBtrfs, Tool("btrfs"), Tool("mkfs.btrfs"));
    change_hands(&[]);
}

#[test]
fn they_do_so_with_small_nodes_and_no_free_space_tree() {
    require!(Root, LoopDevices, KernelBtrfs, Tool("btrfs"), Tool("mkfs.btrfs"));
    change_hands(&["-n", "4096", "-R", "^free-space-tree", "-O", "^no-holes", "--csum", "sha256"]);
}
