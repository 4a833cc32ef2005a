//! Commits on images that Linux's tools made, judged by `btrfs check` after each.

use crate::support::{mkfs, open};
use vlinder_base::random::{Random, SeededRandom};
use vlinder_format::superblock::Label;
use vlinder_format::uuid_item::UuidKind;
use vlinder_format::{RootId, Uuid};
use vlinder_testkit::Scratch;
use vlinder_testkit::{kernel, require};
use vlinder_transaction::Reservation;

/// Adds and removes thousands of UUID entries: a tree that grows and shrinks, and all that this means for the
/// extent tree, the free-space tree and the groups.
fn churn(arguments: &[&str]) {
    let scratch = Scratch::new("commits");
    let image = scratch.path().join("image");
    mkfs(&image, arguments, "512M");
    let random = SeededRandom::new(7);
    let mut present: Vec<Uuid> = Vec::new();
    for round in 0..6 {
        let engine = open(&image);
        for commit in 0..4 {
            let grow = (round + commit) % 3 != 2;
            let mut handle = engine.begin(Reservation::items(1000)).unwrap();
            for _ in 0..1500 {
                if grow || present.is_empty() {
                    let uuid = Uuid(random.uuid());
                    handle.add_uuid(UuidKind::Own, uuid, RootId::FS_TREE).unwrap();
                    present.push(uuid);
                } else {
                    let which = random.next_u64() as usize % present.len();
                    let uuid = present.swap_remove(which);
                    handle.remove_uuid(UuidKind::Own, uuid, RootId::FS_TREE).unwrap();
                }
            }
            drop(handle);
            engine.commit().unwrap();
            kernel::btrfs_check(&image).unwrap();
        }
    }
}

#[test]
fn a_growing_and_shrinking_tree_stays_clean() {
    require!(Tool("btrfs"), Tool("mkfs.btrfs"));
    churn(&[]);
}

#[test]
fn without_a_free_space_tree() {
    require!(Tool("btrfs"), Tool("mkfs.btrfs"));
    churn(&["-R", "^free-space-tree"]);
}

#[test]
fn with_small_nodes_and_another_checksum() {
    require!(Tool("btrfs"), Tool("mkfs.btrfs"));
    churn(&["-n", "4096", "--csum", "xxhash", "-m", "single"]);
}

#[test]
fn without_skinny_metadata() {
    require!(Tool("btrfs"), Tool("mkfs.btrfs"));
    churn(&["-O", "^skinny-metadata"]);
}

#[test]
fn a_change_of_the_superblock_alone_is_a_whole_commit() {
    require!(Tool("btrfs"), Tool("mkfs.btrfs"));
    let scratch = Scratch::new("commits");
    let image = scratch.path().join("image");
    mkfs(&image, &[], "512M");
    let engine = open(&image);
    let before = engine.generation();
    engine.change_superblock(|superblock| superblock.label = Label::new(b"another").unwrap());
    engine.commit().unwrap();
    assert!(engine.generation() > before);
    drop(engine);
    kernel::btrfs_check(&image).unwrap();
    assert_eq!(open(&image).superblock().label.as_bytes(), b"another");
}
