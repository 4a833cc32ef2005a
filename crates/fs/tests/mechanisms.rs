//! The mechanisms of the seeds, on and off, by what they count: block group items written by commits (S3), batches of
//! delayed items (S2), state records visited by seeks (S1). Each file system is judged by both checks afterwards.

mod support;

use std::collections::BTreeMap;
use std::path::Path;

use support::image;
use vlinder_base::random::{Random, SeededRandom};
use vlinder_format::block_group::BlockGroupItem;
use vlinder_format::{ItemType, Key, RootId};
use vlinder_fs::OpenOptions;
use vlinder_fs::path::Files;
use vlinder_testkit::{Scratch, kernel, require};

fn open(image: &Path, options: &str) -> Files {
    // Commits by age or by pressure would come in between.
    let options = OpenOptions::parse(&format!("commit=300,dirty=512M,{options}")).unwrap();
    Files::open_with(image, options).unwrap()
}

/// A counter, or how many values a histogram took.
fn counted(files: &Files, name: &str) -> u64 {
    use vlinder_base::metrics::Value;
    let samples = files.filesystem().engine().registry().snapshot();
    match &samples.iter().find(|sample| sample.name == name).unwrap().value {
        Value::Counter(value) => *value,
        Value::Histogram(histogram) => histogram.count,
        Value::Gauge(value) => u64::try_from(*value).unwrap(),
    }
}

/// `used` of each block group as its item says.
fn group_items(files: &Files, tree: RootId) -> BTreeMap<u64, u64> {
    let engine = files.filesystem().engine();
    let tree = engine.tree(tree).unwrap();
    let items = engine.items(&tree, Key::MIN, Key::MAX, usize::MAX).unwrap();
    let groups = items.into_iter().filter(|(key, _)| key.item_type == ItemType::BLOCK_GROUP_ITEM);
    groups.map(|(key, data)| (key.objectid.0, BlockGroupItem::decode(&data).unwrap().used)).collect()
}

/// Sectors of data, each behind a hole.
const SECTORS: u64 = 4000;

/// Overwrites at random, with a commit after each round; gives the items written and those that differed, by commits.
fn overwrite(options: &str) -> Vec<(u64, u64)> {
    let scratch = Scratch::new("group-items");
    let image = image(&scratch, 1024, &[]);
    let files = open(&image, options);
    let random = SeededRandom::new(3);
    let file = files.create("/file").unwrap();
    // Extents of one sector, so that overwriting one frees as much as it takes: a data group can end where it began.
    for sector in 0..SECTORS {
        file.write_at(&[1; 4096], sector * 8192).unwrap();
    }
    files.sync().unwrap();
    let tree = [RootId::BLOCK_GROUP_TREE, RootId::EXTENT_TREE];
    let tree = tree.into_iter().find(|tree| files.filesystem().engine().tree(*tree).is_ok()).unwrap();
    let mut commits = Vec::new();
    for round in 0..12_u8 {
        let (before, written) = (group_items(&files, tree), counted(&files, "block_groups.items_updated"));
        let phases = counted(&files, "block_groups.phase_time_ns");
        for _ in 0..500 {
            let sector = random.next_u64() % SECTORS;
            file.write_at(&[round; 4096], sector * 8192).unwrap();
        }
        files.sync().unwrap();
        let after = group_items(&files, tree);
        let changed = after.iter().filter(|(start, used)| before.get(start) != Some(used)).count();
        commits.push((counted(&files, "block_groups.items_updated") - written, changed as u64));
        assert_eq!(counted(&files, "block_groups.phase_time_ns") - phases, 1, "one value for each commit");
    }
    drop(file);
    files.close().unwrap();
    kernel::btrfs_check(&image).unwrap();
    commits
}

#[test]
fn a_commit_writes_exactly_the_items_of_groups_whose_use_changed() {
    require!(Tool("btrfs"), Tool("mkfs.btrfs"));
    let on = overwrite("");
    assert!(on.iter().all(|(written, changed)| written == changed), "{on:?}");
    assert!(on.iter().any(|(_, changed)| *changed > 0), "{on:?}");
}

#[test]
fn with_the_mechanism_off_a_commit_writes_the_items_of_all_groups_that_were_touched() {
    require!(Tool("btrfs"), Tool("mkfs.btrfs"));
    let off = overwrite("disable=block_group_skip");
    assert!(off.iter().all(|(written, changed)| written >= changed), "{off:?}");
    assert!(off.iter().any(|(written, changed)| written > changed), "{off:?}");
}

/// The second seed's script with so many files: batches with insertions, and entries removed before they got there.
fn batches(options: &str, count: u64) -> (u64, u64) {
    let scratch = Scratch::new("batches");
    let image = image(&scratch, 1024, &[]);
    let files = open(&image, options);
    files.create_dir("/testdir").unwrap();
    for number in 1..=count {
        files.create(format!("/testdir/file_{number}")).unwrap();
    }
    for number in (1..=count).step_by(2) {
        files.remove_file(format!("/testdir/file_{number}")).unwrap();
    }
    files.sync().unwrap();
    let counts =
        (counted(&files, "delayed_items.insert_batches"), counted(&files, "delayed_items.cancelled"));
    files.close().unwrap();
    kernel::btrfs_check(&image).unwrap();
    counts
}

#[test]
fn a_hundred_files_every_other_one_removed_take_two_batches_and_fifty_with_the_mechanism_off() {
    require!(Tool("btrfs"), Tool("mkfs.btrfs"));
    let (on, cancelled) = batches("", 100);
    assert!(on <= 2, "{on} batches");
    assert!(cancelled >= 50, "{cancelled} insertions cancelled");
    let (off, _) = batches("disable=delayed_batch", 100);
    assert!((50..=53).contains(&off), "{off} batches");
}
