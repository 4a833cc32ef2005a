//! The option `discard`: what a commit frees is no longer kept by the host.

use std::borrow::Cow;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use crate::support::{image, root_user};
use vlinder_fs::{Filesystem, OpenOptions};
use vlinder_testkit::kernel::{KernelMount, btrfs_check_data};
use vlinder_testkit::{Scratch, require};

/// Bytes of the host's disk that an image takes.
fn host_bytes(image: &Path) -> u64 {
    std::fs::metadata(image).unwrap().blocks() * 512
}

const SIZE: u64 = 48 << 20;

/// Bytes that the image takes before a file of [`SIZE`] bytes, with it, after its deletion but before the
/// commit, and after.
fn life_of_a_file(image: &Path, options: &str) -> [u64; 4] {
    let filesystem = Filesystem::open(&[image], OpenOptions::parse(options).unwrap()).unwrap();
    let (root, caller) = (filesystem.root().unwrap(), root_user());
    let kept = filesystem.names().create_file(&caller, &root, b"kept", 0o644).unwrap();
    filesystem.files().write_at(&caller, &kept, 0, Cow::Owned(vec![7; 5 << 20])).unwrap();
    filesystem.sync().unwrap();
    let before = host_bytes(image);
    let file = filesystem.names().create_file(&caller, &root, b"file", 0o644).unwrap();
    for offset in (0..SIZE).step_by(1 << 20) {
        filesystem.files().write_at(&caller, &file, offset, Cow::Owned(vec![5; 1 << 20])).unwrap();
    }
    drop(file);
    filesystem.sync().unwrap();
    let full = host_bytes(image);
    filesystem.names().unlink(&caller, &root, b"file").unwrap();
    let unlinked = host_bytes(image);
    filesystem.sync().unwrap();
    let freed = host_bytes(image);
    drop((kept, root));
    filesystem.close().unwrap();
    [before, full, unlinked, freed]
}

#[test]
fn holes_are_punched_where_files_were_and_only_after_the_commit() {
    require!(KernelBtrfs, Tool("mkfs.btrfs"), Tool("btrfs"));
    let scratch = Scratch::new("discard");
    let image = image(&scratch, 256, &[]);
    let [before, full, unlinked, freed] = life_of_a_file(&image, "discard,commit=100000");
    assert!(full - before >= SIZE, "{full} - {before}");
    assert!(unlinked >= full, "the durable superblock still refers to it: {unlinked} < {full}");
    assert!(full - freed >= SIZE, "{full} - {freed}");
    btrfs_check_data(&image).unwrap();
    let mount = KernelMount::new(&image, "").unwrap();
    assert!(std::fs::read(mount.path().join("kept")).unwrap() == vec![7; 5 << 20]);
    mount.scrub().unwrap();
    mount.unmount().unwrap();
}

#[test]
fn without_the_option_the_host_keeps_everything() {
    require!(Tool("mkfs.btrfs"), Tool("btrfs"));
    let scratch = Scratch::new("no-discard");
    let [_, full, _, freed] = life_of_a_file(&image(&scratch, 256, &[]), "commit=100000");
    assert!(freed >= full, "{freed} < {full}");
}
