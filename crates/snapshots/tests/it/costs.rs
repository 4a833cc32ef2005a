//! What a comparison reads: it follows what changed.

use std::borrow::Cow;

use vlinder_base::metrics::Value;
use vlinder_base::sync::Arc;
use vlinder_device::{Device, MemoryDevice};
use vlinder_fs::{Caller, Filesystem, Inode, OpenOptions, RootId};
use vlinder_snapshots::diff::ChangeKind;
use vlinder_testkit::subject::Recipe;
use vlinder_testkit::{DiskModel, ModelledDevice};

use crate::random_pairs::told;

fn open(device: Arc<dyn Device>, read_only: bool) -> Filesystem {
    let options = OpenOptions { background: false, read_only, ..OpenOptions::default() };
    Filesystem::open_devices(vec![device], options).unwrap()
}

fn blocks_read(filesystem: &Filesystem) -> u64 {
    let samples = filesystem.options().registry.snapshot();
    match samples.iter().find(|sample| sample.name == "tree.blocks_read").unwrap().value {
        Value::Counter(count) => count,
        ref other => panic!("{other:?}"),
    }
}

fn write(filesystem: &Filesystem, inode: &Arc<Inode>, bytes: Vec<u8>) {
    filesystem.files().write_at(&Caller::superuser(), inode, 0, Cow::Owned(bytes)).unwrap();
}

fn create(filesystem: &Filesystem, name: &str, bytes: Vec<u8>) -> Arc<Inode> {
    let (caller, root) = (Caller::superuser(), filesystem.root().unwrap());
    let inode = filesystem.names().create_file(&caller, &root, name.as_bytes(), 0o600).unwrap();
    write(filesystem, &inode, bytes);
    inode
}

fn snapshot(filesystem: &Filesystem, name: &str) -> RootId {
    let (caller, root) = (Caller::superuser(), filesystem.root().unwrap());
    filesystem.subvolumes().snapshot(&caller, RootId::FS_TREE, &root, name.as_bytes(), true).unwrap();
    filesystem.subvolumes().at(name.as_bytes()).unwrap()
}

/// Ten of so many files changed; gives the blocks that telling them reads.
fn blocks_for_ten(files: usize) -> u64 {
    let device = Arc::new(Recipe { device_bytes: 1 << 30, ..Recipe::default() }.in_memory());
    let filesystem = open(Arc::<MemoryDevice>::clone(&device), false);
    let inodes: Vec<Arc<Inode>> =
        (0..files).map(|number| create(&filesystem, &format!("file-{number}"), vec![7; 2000])).collect();
    let old = snapshot(&filesystem, "old");
    for inode in inodes.iter().step_by(files / 10) {
        write(&filesystem, inode, vec![8; 20]);
    }
    let new = snapshot(&filesystem, "new");
    drop(inodes);
    filesystem.close().unwrap();
    let filesystem = open(device, true);
    let before = blocks_read(&filesystem);
    let changes = told(&filesystem, old, new);
    let of_files = changes.iter().filter(|change| change.differences.changed_bytes == 2000);
    assert_eq!(of_files.count(), 10, "{changes:#?}");
    blocks_read(&filesystem) - before
}

#[test]
fn reads_follow_the_change() {
    let [few, many] = [2000, 20_000].map(blocks_for_ten);
    println!("ten changed files: {few} blocks of 2000 files, {many} of 20000");
    // Ten leaves on both sides, and their nodes.
    assert!(many < few + 40 && many < 120, "{few} and {many}");
}

#[test]
fn bytes_that_checksums_tell_apart_are_not_read() {
    const BYTES: usize = 16 << 20;
    let device = Recipe { device_bytes: 1 << 30, ..Recipe::default() }.in_memory();
    let filesystem = open(Arc::new(device.snapshot()), false);
    drop(filesystem);
    let shared = Arc::new(device);
    let filesystem = open(Arc::<MemoryDevice>::clone(&shared), false);
    let random = |seed: u64| {
        let mut state = seed;
        let bytes = (0..BYTES).map(move |_| {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            (state >> 56) as u8
        });
        bytes.collect::<Vec<u8>>()
    };
    let changed = create(&filesystem, "changed", random(1));
    let written_again = create(&filesystem, "written-again", random(2));
    let old = snapshot(&filesystem, "old");
    write(&filesystem, &changed, random(3));
    let only_changed = snapshot(&filesystem, "only-changed");
    write(&filesystem, &written_again, random(2));
    let both = snapshot(&filesystem, "both");
    drop((changed, written_again));
    filesystem.close().unwrap();
    let cost = |old, new| {
        let device = Arc::new(ModelledDevice::new(shared.snapshot(), DiskModel::PARALLEL));
        let filesystem = open(Arc::<ModelledDevice>::clone(&device), true);
        let before = device.bytes();
        let changes = told(&filesystem, old, new);
        let changed: u64 = changes.iter().map(|change| change.differences.changed_bytes).sum();
        (device.bytes() - before, changed)
    };
    let (read, found) = cost(old, only_changed);
    println!("{read} bytes read to tell {found} changed ones");
    assert_eq!(found, BYTES as u64);
    assert!(read < 2 << 20, "{read}");
    // Equal checksums prove nothing.
    let (read, found) = cost(only_changed, both);
    println!("{read} bytes read to tell {found} changed ones");
    assert_eq!(found, 0);
    assert!(read >= 2 * BYTES as u64, "{read}");
}

#[test]
fn a_directory_that_was_renamed_is_one_change() {
    let device = Arc::new(Recipe { device_bytes: 1 << 30, ..Recipe::default() }.in_memory());
    let filesystem = open(Arc::<MemoryDevice>::clone(&device), false);
    let (caller, root) = (Caller::superuser(), filesystem.root().unwrap());
    let directory = filesystem.names().create_directory(&caller, &root, b"before", 0o755).unwrap();
    for number in 0..5000 {
        let name = format!("file-{number}");
        filesystem.names().create_file(&caller, &directory, name.as_bytes(), 0o600).unwrap();
    }
    let old = snapshot(&filesystem, "old");
    let how = vlinder_fs::RenameMode::NoReplace;
    filesystem.names().rename(&caller, &root, b"before", &root, b"after", how).unwrap();
    let new = snapshot(&filesystem, "new");
    drop((directory, root));
    filesystem.close().unwrap();
    let filesystem = open(device, true);
    let before = blocks_read(&filesystem);
    let changes = told(&filesystem, old, new);
    let renamed: Vec<_> = changes.iter().filter(|change| change.kind == ChangeKind::Renamed).collect();
    assert_eq!(renamed.len(), 1, "{changes:#?}");
    assert_eq!((renamed[0].old_path.as_deref(), &renamed[0].path[..]), (Some(&b"before"[..]), &b"after"[..]));
    // The root directory's times, and the name of the first snapshot.
    assert_eq!(changes.len(), 3, "{changes:#?}");
    let blocks = blocks_read(&filesystem) - before;
    assert!(blocks < 30, "{blocks} blocks");
}
