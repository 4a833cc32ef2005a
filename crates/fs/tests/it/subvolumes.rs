//! Subvolumes: what is listed and when, who may remove them, and deletions that the power cuts.

use std::path::Path;
use std::process::Command;
use std::time::Duration;

use crate::support::{image, open, root_user};
use vlinder_base::sync::Arc;
use vlinder_base::thread;
use vlinder_device::MemoryDevice;
use vlinder_fs::{
    Caller, Filesystem, GroupId, OpenOptions, Refusal, RootId, SetAttributes, SubvolumeInformation, UserId,
};
use vlinder_testkit::kernel::{KernelMount, btrfs_check};
use vlinder_testkit::subject::{own_check, write_image};
use vlinder_testkit::{Scratch, SimulatedDevice, require};

fn paths(filesystem: &Filesystem) -> Vec<String> {
    let shown = |one: &SubvolumeInformation| {
        let path = String::from_utf8_lossy(&one.path).into_owned();
        if one.is_deleted { format!("deleted {}", one.id) } else { path }
    };
    filesystem.subvolumes().all().unwrap().iter().map(shown).collect()
}

fn refused<T: std::fmt::Debug>(result: vlinder_fs::Result<T>) -> Refusal {
    let error = result.expect_err("was to be refused");
    error.refusal().unwrap_or_else(|| panic!("{error}"))
}

#[test]
fn what_the_running_transaction_changed_is_listed_at_once() {
    require!(Tool("mkfs.btrfs"), Tool("btrfs"));
    let scratch = Scratch::new("subvolumes-listed");
    let image = image(&scratch, 256, &[]);
    let filesystem = open(&image);
    let (root, caller) = (filesystem.root().unwrap(), root_user());
    let before = filesystem.engine().generation();
    let first = filesystem.subvolumes().create(&caller, &root, b"first").unwrap();
    let inside = filesystem.inode(first).unwrap();
    filesystem.subvolumes().create(&caller, &inside, b"nested").unwrap();
    assert_eq!(paths(&filesystem), ["", "first", "first/nested"]);
    assert_eq!(filesystem.engine().generation(), before, "the test is about one transaction");
    // Kept in memory by this one, so that its blocks stay.
    let held = filesystem.names().lookup(&caller, &inside, b"nested").unwrap();
    filesystem.subvolumes().delete(&caller, &inside, b"nested").unwrap();
    assert_eq!(paths(&filesystem), ["", "first", "deleted 257"]);
    filesystem.sync().unwrap();
    assert_eq!(paths(&filesystem), ["", "first", "deleted 257"]);
    drop(held);
    filesystem.maintenance().finish_deletions().unwrap();
    assert_eq!(paths(&filesystem), ["", "first"]);
    drop((inside, root));
    filesystem.close().unwrap();
    btrfs_check(&image).unwrap();
}

/// A caller without any capability, as the processes of [`as_user`].
const USER: u32 = 1234;

fn as_user(program: &str, path: &Path) -> bool {
    let ids = [format!("--reuid={USER}"), format!("--regid={USER}"), "--clear-groups".to_owned()];
    let output = Command::new("setpriv").args(ids).arg(program).arg(path).output().unwrap();
    output.status.success()
}

#[test]
fn a_user_removes_an_empty_subvolume_but_does_not_delete_it() {
    require!(KernelBtrfs, Tool("mkfs.btrfs"), Tool("btrfs"), Tool("setpriv"));
    let scratch = Scratch::new("subvolumes-rmdir");
    let image = image(&scratch, 256, &[]);
    let filesystem = open(&image);
    let (root, caller) = (filesystem.root().unwrap(), root_user());
    let user = Caller::user(UserId(USER), GroupId(USER));
    for theirs in ["ours", "linux"] {
        let directory =
            filesystem.names().create_directory(&caller, &root, theirs.as_bytes(), 0o755).unwrap();
        let owner =
            SetAttributes { user: Some(UserId(USER)), group: Some(GroupId(USER)), ..Default::default() };
        filesystem.attributes().set(&caller, &directory, &owner).unwrap();
        for name in ["empty", "others", "full", "default"] {
            let by = if name == "others" { &caller } else { &user };
            let made = filesystem.subvolumes().create(by, &directory, name.as_bytes()).unwrap();
            if name == "full" {
                let inside = filesystem.inode(made).unwrap();
                filesystem.names().create_file(&user, &inside, b"file", 0o644).unwrap();
            }
        }
        filesystem.names().create_directory(&caller, &directory, b"foreign", 0o755).unwrap();
        let foreign = filesystem.names().lookup(&caller, &directory, b"foreign").unwrap();
        filesystem.subvolumes().create(&caller, &foreign, b"empty").unwrap();
    }
    let ours = filesystem.names().lookup(&caller, &root, b"ours").unwrap();
    let default = filesystem.names().lookup(&caller, &ours, b"default").unwrap().id().root;
    filesystem.subvolumes().set_default(&caller, default).unwrap();
    let foreign = filesystem.names().lookup(&caller, &ours, b"foreign").unwrap();
    for name in [&b"empty"[..], b"full"] {
        assert_eq!(refused(filesystem.subvolumes().delete(&user, &ours, name)), Refusal::NotPermitted);
    }
    filesystem.names().remove_directory(&user, &ours, b"empty").unwrap();
    filesystem.names().remove_directory(&user, &ours, b"others").unwrap();
    assert_eq!(refused(filesystem.names().remove_directory(&user, &ours, b"full")), Refusal::NotEmpty);
    assert_eq!(refused(filesystem.names().remove_directory(&user, &ours, b"default")), Refusal::NotPermitted);
    assert_eq!(
        refused(filesystem.names().remove_directory(&user, &foreign, b"empty")),
        Refusal::AccessDenied
    );
    drop((ours, foreign, root));
    filesystem.maintenance().finish_deletions().unwrap();
    filesystem.close().unwrap();
    let mount = KernelMount::new(&image, "subvolid=5").unwrap();
    let at = |path: &str| mount.path().join("linux").join(path);
    let set = ["subvolume", "set-default", at("default").to_str().unwrap()].map(str::to_owned);
    assert!(Command::new("btrfs").args(set).status().unwrap().success());
    let removed =
        ["empty", "others", "full", "default", "foreign/empty"].map(|path| as_user("rmdir", &at(path)));
    assert_eq!(removed, [true, true, false, false, false], "Linux lets others remove what we do");
    let left = |side: &str| {
        let listed = std::fs::read_dir(mount.path().join(side)).unwrap();
        let mut names: Vec<_> = listed.map(|entry| entry.unwrap().file_name()).collect();
        names.sort();
        names
    };
    assert_eq!(left("ours"), left("linux"));
    // Not judged by its log, in which Linux has complained about the default subvolume.
    drop(mount);
}

/// Bytes of metadata and data that hold something.
fn used(filesystem: &Filesystem) -> u64 {
    filesystem.engine().space().unwrap().kinds.iter().map(|kind| kind.used_bytes - kind.pinned_bytes).sum()
}

/// Nothing but what the test asks for happens in the background.
fn quiet() -> OpenOptions {
    OpenOptions::parse("commit=100000").unwrap()
}

/// Deletes the subvolume `big`; the background work that this wakes has come and gone. Somebody holds an
/// inode of it, so that its blocks stay.
fn delete_quietly(filesystem: &Filesystem) {
    let (root, caller) = (filesystem.root().unwrap(), root_user());
    let deleted_in = filesystem.engine().generation();
    filesystem.subvolumes().delete(&caller, &root, b"big").unwrap();
    for _ in 0..1_000 {
        if filesystem.engine().generation() > deleted_in {
            break;
        }
        thread::sleep(Duration::from_millis(20));
    }
    assert!(filesystem.engine().generation() > deleted_in, "the background work never came");
    filesystem.sync().unwrap();
}

/// A subvolume of some hundred blocks, deleted, whose blocks are still there.
fn delete_big(filesystem: &Filesystem) -> (RootId, u64) {
    let (root, caller) = (filesystem.root().unwrap(), root_user());
    filesystem.sync().unwrap();
    let empty = used(filesystem);
    let big = filesystem.subvolumes().create(&caller, &root, b"big").unwrap();
    let inside = filesystem.inode(big).unwrap();
    for number in 0..6_000 {
        let name = format!("a file with a long name that takes room {number}");
        filesystem.names().create_file(&caller, &inside, name.as_bytes(), 0o644).unwrap();
    }
    filesystem.sync().unwrap();
    delete_quietly(filesystem);
    drop(inside);
    assert_eq!(filesystem.engine().dead_trees().ids(), [big.root]);
    (big.root, empty)
}

#[test]
fn a_cut_deletion_goes_on_at_the_next_opening_and_in_linux() {
    require!(KernelBtrfs, Tool("mkfs.btrfs"), Tool("btrfs"));
    let scratch = Scratch::new("subvolumes-cut");
    let path = image(&scratch, 256, &["-n", "4096"]);
    let device =
        Arc::new(SimulatedDevice::from_image(MemoryDevice::from_bytes(&std::fs::read(&path).unwrap())));
    let filesystem = Filesystem::open_devices(vec![Arc::clone(&device) as _], quiet()).unwrap();
    let (big, empty) = delete_big(&filesystem);
    let full = used(&filesystem);
    let mut cuts = vec![device.durable_image()];
    while filesystem.engine().clean(300).unwrap() {
        filesystem.engine().commit().unwrap();
        // What is freed beyond the commit is lost with the power.
        filesystem.engine().clean(50).unwrap();
        cuts.push(device.durable_image());
    }
    assert!(cuts.len() > 4, "only {} steps", cuts.len());
    drop(filesystem);
    let mut resumed = 0;
    for cut in &cuts {
        let filesystem = Filesystem::open_devices(
            vec![Arc::new(SimulatedDevice::from_image(cut.snapshot())) as _],
            quiet(),
        )
        .unwrap();
        let found = filesystem.subvolumes().information(big).unwrap();
        assert!(found.is_deleted, "{found:?}");
        assert_eq!(filesystem.engine().dead_trees().ids(), [big]);
        let progress = filesystem.engine().tree(big).unwrap().item().drop_progress;
        resumed += usize::from(progress.objectid.0 != 0);
        let left = used(&filesystem);
        assert!(left <= full);
        filesystem.maintenance().finish_deletions().unwrap();
        assert_eq!(refused(filesystem.subvolumes().information(big)), Refusal::NotFound);
        // The root tree may have one block more or less than an empty file system's; all else is free again.
        assert!(
            used(&filesystem).abs_diff(empty) <= 4 * 4096,
            "{} of {empty}, {left} before",
            used(&filesystem)
        );
        drop(filesystem);
    }
    assert!(resumed >= 3, "only {resumed} of {} cuts fell into the middle", cuts.len());
    let half = &cuts[cuts.len() / 2];
    write_image(half, &path);
    // `btrfs check` and Linux understand how far it came, and Linux goes on.
    let mount = KernelMount::new(&path, "").unwrap();
    let synced = Command::new("btrfs").args(["subvolume", "sync"]).arg(mount.path()).status().unwrap();
    assert!(synced.success());
    mount.unmount().unwrap();
    let filesystem = open(&path);
    assert_eq!(refused(filesystem.subvolumes().information(big)), Refusal::NotFound);
    drop(filesystem);
    btrfs_check(&path).unwrap();
    write_image(half, &path);
    let filesystem = open(&path);
    filesystem.maintenance().finish_deletions().unwrap();
    filesystem.close().unwrap();
    let mount = KernelMount::new(&path, "").unwrap();
    mount.scrub().unwrap();
    mount.unmount().unwrap();
}

/// What is left of a file whose inode item is deleted already says nothing about checksums that it should
/// have.
#[test]
fn remains_of_a_deleted_file_without_checksums_are_no_damage() {
    let scratch = Scratch::new("subvolumes-no-sums");
    let path = image(&scratch, 256, &["-n", "4096"]);
    let device =
        Arc::new(SimulatedDevice::from_image(MemoryDevice::from_bytes(&std::fs::read(&path).unwrap())));
    let options = OpenOptions::parse("commit=100000,nodatacow").unwrap();
    let filesystem = Filesystem::open_devices(vec![Arc::clone(&device) as _], options).unwrap();
    let (root, caller) = (filesystem.root().unwrap(), root_user());
    let big = filesystem.subvolumes().create(&caller, &root, b"big").unwrap();
    let file = filesystem
        .names()
        .create_file(&caller, &filesystem.inode(big).unwrap(), b"fragments", 0o644)
        .unwrap();
    // Some forty items of extents lie in a leaf of this size.
    for fragment in 0..2_000 {
        filesystem.files().write_at(&caller, &file, fragment * 8192, vec![1; 4096].into()).unwrap();
    }
    filesystem.sync().unwrap();
    delete_quietly(&filesystem);
    drop(file);
    let mut middles = 0;
    while filesystem.engine().clean(5).unwrap() {
        filesystem.engine().commit().unwrap();
        if let Ok(tree) = filesystem.engine().tree(big.root) {
            middles += u32::from(tree.item().drop_progress.objectid.0 != 0);
        }
        own_check(Arc::new(SimulatedDevice::from_image(device.durable_image().snapshot()))).unwrap();
    }
    assert!(middles >= 3, "only {middles} cuts fell into the middle");
}
