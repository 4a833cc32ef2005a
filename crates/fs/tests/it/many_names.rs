//! A hundred thousand names made and removed again: leaves of the extent tree that a commit makes and drops
//! in one go are never written.

use crate::support::{image, list, open, root_user};
use vlinder_testkit::kernel::btrfs_check;
use vlinder_testkit::{Scratch, require};

#[test]
fn a_hundred_thousand_names_come_and_go() {
    require!(Tool("mkfs.btrfs"), Tool("btrfs"));
    let scratch = Scratch::new("many-names");
    let image = image(&scratch, 1000, &[]);
    let filesystem = open(&image);
    let root = filesystem.root().unwrap();
    let caller = root_user();
    let name = |number: u32| format!("file{number}").into_bytes();
    for number in 0..100_000 {
        filesystem.names().create_file(&caller, &root, &name(number), 0o644).unwrap();
    }
    filesystem.sync().unwrap();
    assert_eq!(list(&filesystem, &root).len(), 100_000);
    for number in 0..100_000 {
        filesystem.names().unlink(&caller, &root, &name(number)).unwrap();
    }
    filesystem.sync().unwrap();
    assert_eq!(filesystem.attributes().of(&root).size_bytes, 0);
    drop(root);
    filesystem.close().unwrap();
    btrfs_check(&image).unwrap();
}
