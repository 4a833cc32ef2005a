//! A state that is read as a whole: two trees compared, the extents of a file system.

use std::collections::BTreeMap;
use std::path::Path;

use vlinder_base::metrics::Value;
use vlinder_base::random::{Random, SeededRandom};
use vlinder_forest::{Difference, ForestError, compare};
use vlinder_format::{Key, Logical};
use vlinder_fs::{Caller, Filesystem, OpenOptions, RootId};
use vlinder_testkit::{Scratch, golden};
use vlinder_tree::Readahead;

type Items = BTreeMap<Key, Vec<u8>>;
/// A key with its data in the old tree and in the new one.
type Shown = (Key, Option<Vec<u8>>, Option<Vec<u8>>);

fn open(image: &Path, read_only: bool) -> Filesystem {
    Filesystem::open(&[image], OpenOptions { read_only, ..OpenOptions::default() }).unwrap()
}

/// All items of a tree, read one by one.
fn items(filesystem: &Filesystem, id: RootId) -> Items {
    let forest = filesystem.engine().forest();
    let tree = forest.tree(id).unwrap();
    let mut cursor = forest.trees().cursor(tree.root(), &Key::MIN, Readahead::None).unwrap();
    let mut all = Items::new();
    while let Some((key, data)) = cursor.item() {
        all.insert(key, data.to_vec());
        cursor.advance().unwrap();
    }
    all
}

/// What the comparison of two trees shows.
fn compared(filesystem: &Filesystem, old: RootId, new: RootId) -> Vec<Shown> {
    let shown = compared_ahead(filesystem, (old, new), Readahead::Forward(5));
    assert_eq!(shown, compared_ahead(filesystem, (old, new), Readahead::None));
    shown
}

fn compared_ahead(filesystem: &Filesystem, (old, new): (RootId, RootId), readahead: Readahead) -> Vec<Shown> {
    let forest = filesystem.engine().forest();
    let (old, new) = (forest.tree(old).unwrap(), forest.tree(new).unwrap());
    let trees = forest.trees();
    let mut shown = Vec::new();
    compare::<ForestError>((trees, old.root()), (trees, new.root()), readahead, |key, difference| {
        let owned = |data: &[u8]| Some(data.to_vec());
        shown.push(match difference {
            Difference::Removed(data) => (key, owned(data), None),
            Difference::Added(data) => (key, None, owned(data)),
            Difference::Changed { old, new } => (key, owned(old), owned(new)),
        });
        Ok(())
    })
    .unwrap();
    shown
}

/// The same, from all items of both.
fn expected(old: &Items, new: &Items) -> Vec<Shown> {
    let keys: std::collections::BTreeSet<Key> = old.keys().chain(new.keys()).copied().collect();
    let both = keys.into_iter().map(|key| (key, old.get(&key).cloned(), new.get(&key).cloned()));
    both.filter(|(_, old, new)| old != new).collect()
}

fn blocks_read(filesystem: &Filesystem) -> u64 {
    let samples = filesystem.options().registry.snapshot();
    match samples.iter().find(|sample| sample.name == "tree.blocks_read").unwrap().value {
        Value::Counter(count) => count,
        ref other => panic!("{other:?}"),
    }
}

#[test]
fn comparing_snapshots_reads_nothing_that_they_share() {
    let scratch = Scratch::new("forest-compare");
    let image = scratch.join("image");
    golden::unpack("empty", &image).unwrap();
    let caller = Caller::superuser();
    let mut snapshots = Vec::new();
    {
        let filesystem = open(&image, false);
        let root = filesystem.root().unwrap();
        let random = SeededRandom::new(1);
        let name = |number: u64| format!("a file with a long name, number {number:05}").into_bytes();
        for number in 0..3000 {
            filesystem.names().create_file(&caller, &root, &name(number), 0o644).unwrap();
        }
        for round in 0..6_u64 {
            // No change, few, then so many that little is shared any more.
            for _ in 0..[0, 1, 5, 40, 400, 2000][round as usize] {
                let number = random.next_u64() % 4000;
                if filesystem.names().unlink(&caller, &root, &name(number)).is_err() {
                    filesystem.names().create_file(&caller, &root, &name(number), 0o600).unwrap();
                }
            }
            let name = format!("snapshot {round}").into_bytes();
            snapshots.push(
                filesystem.subvolumes().snapshot(&caller, RootId::FS_TREE, &root, &name, true).unwrap().root,
            );
        }
        filesystem.close().unwrap();
    }
    let all: Vec<Items> = {
        let filesystem = open(&image, true);
        snapshots.iter().map(|id| items(&filesystem, *id)).collect()
    };
    for (old, old_id) in all.iter().zip(&snapshots) {
        for (new, new_id) in all.iter().zip(&snapshots) {
            let filesystem = open(&image, true);
            let shown = compared(&filesystem, *old_id, *new_id);
            assert_eq!(shown, expected(old, new), "{old_id} and {new_id}");
        }
    }
    // The roots differ already, since a snapshot's name goes to its source; what lies below is shared.
    let read = [Readahead::None, Readahead::Forward(3), Readahead::Forward(64)].map(|readahead| {
        let filesystem = open(&image, true);
        let ids = (snapshots[1], snapshots[2]);
        let before = blocks_read(&filesystem);
        let shown = compared_ahead(&filesystem, ids, readahead);
        let read = blocks_read(&filesystem) - before;
        assert!(!shown.is_empty() && read < 60, "{read} blocks for {} differences", shown.len());
        read
    });
    assert!(read.iter().all(|count| *count == read[0]), "blocks are read ahead in vain: {read:?}");
    let filesystem = open(&image, true);
    let trees = [snapshots[1], snapshots[2]].map(|id| filesystem.engine().forest().tree(id).unwrap());
    let before = blocks_read(&filesystem);
    let _ = items(&filesystem, trees[0].id());
    assert!(blocks_read(&filesystem) - before > 60, "the trees are small: nothing was shown");
}

#[test]
fn the_extents_of_a_state_come_in_order_and_add_up() {
    for name in golden::names().unwrap() {
        let scratch = Scratch::new("forest-extents");
        let image = scratch.join("image");
        golden::unpack(&name, &image).unwrap();
        let filesystem = open(&image, true);
        let forest = filesystem.engine().forest();
        let walk = |from: u64, to: u64| {
            let mut walk = forest.extents(Logical(from)..Logical(to)).unwrap();
            let mut extents = Vec::new();
            while let Some(extent) = walk.next_extent().unwrap() {
                extents.push(extent);
            }
            extents
        };
        let all = walk(0, u64::MAX);
        let bytes: u64 = all.iter().map(|extent| extent.length_bytes).sum();
        assert_eq!(bytes, filesystem.engine().superblock().bytes_used, "{name}");
        assert!(all.is_sorted_by_key(|extent| extent.start), "{name}");
        assert!(all.iter().any(|extent| !extent.is_data), "{name}");
        let middle = all[all.len() / 2].start;
        let halves = [walk(0, middle.0), walk(middle.0, u64::MAX)].concat();
        assert_eq!(halves, all, "{name}");
    }
}
