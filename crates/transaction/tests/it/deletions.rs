//! Deleted trees whose blocks are freed in steps, with crashes and errors between them.

use std::os::unix::fs::FileExt;
use std::path::Path;

use crate::support::{mkfs, open};
use vlinder_base::sync::Arc;
use vlinder_forest::OpenTree;
use vlinder_format::inode::{InodeItem, Mode, Timestamp};
use vlinder_format::{Generation, Key, RootId, Uuid};
use vlinder_testkit::{Scratch, kernel, require};
use vlinder_transaction::{Engine, Reservation};
use vlinder_tree::{Change, Edit};

/// Inodes of a tree that is three levels high with nodes of 4 KiB.
const INODES: u64 = 4000;
/// What the trees that describe space may have grown by meanwhile.
const MAX_LEFT_BYTES: u64 = 8 * 4096;
/// Changes of one handle.
const BATCH: u64 = 500;

/// A subvolume without names, full of inodes.
fn plant(engine: &Engine) -> Arc<OpenTree> {
    let mut handle = engine.begin(Reservation::items(1000)).unwrap();
    let tree = handle.create_subvolume_tree(Uuid([7; 16]), Timestamp::default()).unwrap();
    drop(handle);
    let item =
        InodeItem { generation: Generation(1), link_count: 1, mode: Mode(0o100_644), ..InodeItem::default() };
    let data = item.encode();
    let first = 256;
    for batch in 0..INODES / BATCH {
        let mut handle = engine.begin(Reservation::items(1000)).unwrap();
        let edits: Vec<Edit<'_>> = (0..BATCH)
            .map(|number| InodeItem::key((first + batch * BATCH + number).into()))
            .map(|key: Key| Edit::new(key, Change::Insert(&data)))
            .collect();
        handle.edit(&tree, &edits).unwrap();
    }
    engine.commit().unwrap();
    assert_eq!(tree.root().pointer().level.0, 2);
    tree
}

fn delete(engine: &Engine, tree: Arc<OpenTree>) {
    let mut handle = engine.begin(Reservation::deletion(100)).unwrap();
    handle.delete_tree(&tree).unwrap();
    drop(handle);
    engine.dead_trees().add(tree);
    engine.commit().unwrap();
}

fn used_bytes(engine: &Engine) -> u64 {
    engine.superblock().bytes_used
}

/// A crash after any commit finds in the root item where the walk stood: nothing is let go of twice, nothing
/// left.
#[test]
fn a_walk_goes_on_after_a_crash_wherever_it_stood() {
    require!(Tool("btrfs"), Tool("mkfs.btrfs"));
    for budget in [3, 4, 17, 64, 121, 122, 256] {
        let scratch = Scratch::new("deletions");
        let image = scratch.path().join("image");
        mkfs(&image, &["-n", "4096"], "128M");
        let engine = open(&image);
        let before = used_bytes(&engine);
        let tree = plant(&engine);
        delete(&engine, tree);
        drop(engine);
        loop {
            let engine = open(&image);
            let more = engine.clean(budget).unwrap();
            engine.commit().unwrap();
            if !more {
                let left = used_bytes(&engine) - before;
                assert!(left <= MAX_LEFT_BYTES, "{left} bytes are left with {budget} blocks at a time");
                assert_eq!(engine.dead_trees().ids(), [] as [RootId; 0]);
                break;
            }
            drop(engine);
            if budget >= 121 {
                kernel::btrfs_check(&image).unwrap();
            }
        }
        kernel::btrfs_check(&image).unwrap();
    }
}

/// The last byte of a leaf, of which one bit is turned.
struct Spoiled {
    /// Leaves of the tree.
    leaves: usize,
    /// Where the byte lies.
    place: u64,
}

impl Spoiled {
    /// Turns the bit, also while an engine has the image open.
    fn turn(&self, image: &Path) {
        let file = std::fs::OpenOptions::new().read(true).write(true).open(image).unwrap();
        let mut byte = [0];
        file.read_exact_at(&mut byte, self.place).unwrap();
        file.write_all_at(&[byte[0] ^ 1], self.place).unwrap();
    }
}

/// Spoils the middle one of a tree's leaves, which lie in single copies.
fn spoil_a_leaf(image: &Path, owner: RootId) -> Spoiled {
    let bytes = std::fs::read(image).unwrap();
    let (fsid, node) = (bytes[(64 << 10) + 32..][..16].to_vec(), 4096);
    let is_leaf = |block: &[u8]| {
        block[32..48] == fsid && block[88..96] == owner.0.to_le_bytes() && block[100] == 0 && block[96] > 0
    };
    let leaves: Vec<usize> =
        bytes.chunks(node).enumerate().filter(|(_, block)| is_leaf(block)).map(|(at, _)| at * node).collect();
    let place = leaves[leaves.len() / 2] + node - 1;
    let spoiled = Spoiled { leaves: leaves.len(), place: place as u64 };
    spoiled.turn(image);
    spoiled
}

/// A block that cannot be read ends the walk, and what was let go of before it is not let go of again at the
/// next opening.
#[test]
fn an_error_on_the_way_leaves_the_file_system_sound() {
    require!(Tool("btrfs"), Tool("mkfs.btrfs"));
    let scratch = Scratch::new("deletions");
    let image = scratch.path().join("image");
    mkfs(&image, &["-n", "4096", "-m", "single"], "128M");
    let engine = open(&image);
    let tree = plant(&engine);
    let id = tree.id();
    delete(&engine, tree);
    drop(engine);
    assert!(spoil_a_leaf(&image, id).leaves > 150);
    let mut errors: Vec<String> = Vec::new();
    for _ in 0..3 {
        let engine = open(&image);
        errors.push(engine.clean(1 << 20).unwrap_err().to_string());
        engine.commit().unwrap();
        assert_eq!(engine.read_only_reason(), None);
    }
    assert!(errors[0].contains("checksum"), "{}", errors[0]);
    assert!(errors.iter().all(|error| *error == errors[0]), "{errors:#?}");
}

/// What ended a walk may pass: the tree waits behind the others, and needs no new opening.
#[test]
fn a_tree_whose_walk_met_an_error_is_freed_when_that_has_passed() {
    require!(Tool("btrfs"), Tool("mkfs.btrfs"));
    let scratch = Scratch::new("deletions");
    let image = scratch.path().join("image");
    mkfs(&image, &["-n", "4096", "-m", "single"], "128M");
    let engine = open(&image);
    let before = used_bytes(&engine);
    let trees = [plant(&engine), plant(&engine)];
    let [first, second] = [trees[0].id(), trees[1].id()];
    trees.into_iter().for_each(|tree| delete(&engine, tree));
    drop(engine);
    let spoiled = spoil_a_leaf(&image, first);
    let engine = open(&image);
    assert_eq!(engine.dead_trees().ids(), [first, second]);
    for behind in [[second, first].as_slice(), &[first], &[first]] {
        let error = engine.clean(1 << 20).unwrap_err().to_string();
        assert!(error.contains("checksum"), "{error}");
        assert_eq!(engine.dead_trees().ids(), behind);
        engine.commit().unwrap();
    }
    spoiled.turn(&image);
    assert!(!engine.clean(1 << 20).unwrap());
    assert_eq!(engine.dead_trees().ids(), [] as [RootId; 0]);
    engine.commit().unwrap();
    let left = used_bytes(&engine) - before;
    assert!(left <= MAX_LEFT_BYTES, "{left} bytes are left");
    drop(engine);
    kernel::btrfs_check(&image).unwrap();
}
