//! The mechanisms that `disable=` names, on and off, by what they count: block group items written by commits
//! (`block_group_skip`), batches of delayed items (`delayed_batch`), state records visited by seeks
//! (`seek_cache`). Each file system is judged by both checks afterwards.

use std::collections::BTreeMap;
use std::path::Path;

use crate::support::image;
use vlinder_base::random::{Random, SeededRandom};
use vlinder_extent_state::ByteRange;
use vlinder_format::block_group::BlockGroupItem;
use vlinder_format::{ItemType, Key, RootId};
use vlinder_fs::OpenOptions;
use vlinder_fs::data::Seek;
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
    let items = engine.reader().items(&tree, Key::MIN, Key::MAX, usize::MAX).unwrap();
    let groups = items.into_iter().filter(|(key, _)| key.item_type == ItemType::BLOCK_GROUP_ITEM);
    groups.map(|(key, data)| (key.objectid.0, BlockGroupItem::decode(&data).unwrap().used)).collect()
}

/// Sectors of data, each behind a hole.
const SECTORS: u64 = 4000;

/// What a commit did to block group items.
#[derive(Debug)]
struct GroupItems {
    /// How often one was written.
    writes: u64,
    /// How many the engine says it changed.
    updated: u64,
    /// How many differ before and after.
    changed: u64,
}

/// Overwrites at random, with a commit after each round.
fn overwrite(options: &str) -> Vec<GroupItems> {
    let scratch = Scratch::new("group-items");
    let image = image(&scratch, 1024, &[]);
    let files = open(&image, options);
    let random = SeededRandom::new(3);
    let file = files.create("/file").unwrap();
    // Extents of one sector, so that overwriting one frees as much as it takes: a data group can end where it
    // began.
    for sector in 0..SECTORS {
        file.write_at(&[1; 4096], sector * 8192).unwrap();
    }
    files.sync().unwrap();
    let tree = [RootId::BLOCK_GROUP_TREE, RootId::EXTENT_TREE];
    let tree = tree.into_iter().find(|tree| files.filesystem().engine().tree(*tree).is_ok()).unwrap();
    let mut commits = Vec::new();
    for round in 0..12_u8 {
        let before = group_items(&files, tree);
        let counts = |files: &Files| {
            ["block_groups.item_writes", "block_groups.items_updated"].map(|name| counted(files, name))
        };
        let [writes, updated] = counts(&files);
        let phases = counted(&files, "block_groups.phase_time_ns");
        for _ in 0..500 {
            let sector = random.next_u64() % SECTORS;
            file.write_at(&[round; 4096], sector * 8192).unwrap();
        }
        files.sync().unwrap();
        let after = group_items(&files, tree);
        let changed = after.iter().filter(|(start, used)| before.get(start) != Some(used)).count();
        let [writes_after, updated_after] = counts(&files);
        commits.push(GroupItems {
            writes: writes_after - writes,
            updated: updated_after - updated,
            changed: changed as u64,
        });
        assert_eq!(counted(&files, "block_groups.phase_time_ns") - phases, 1, "one value for each commit");
    }
    drop(file);
    files.close().unwrap();
    kernel::btrfs_check(&image).unwrap();
    commits
}

#[test]
fn a_commit_writes_exactly_the_items_of_changed_groups() {
    require!(Tool("btrfs"), Tool("mkfs.btrfs"));
    let on = overwrite("");
    assert!(on.iter().all(|commit| commit.updated == commit.changed), "{on:?}");
    assert!(on.iter().any(|commit| commit.changed > 0), "{on:?}");
    // One is written twice only where the commit itself takes more blocks than it gives back, or fewer.
    let (writes, changed) =
        on.iter().fold((0, 0), |sum, commit| (sum.0 + commit.writes, sum.1 + commit.changed));
    assert!(writes <= changed + changed / 8, "{on:?}");
}

#[test]
fn without_the_mechanism_touched_groups_items_are_written() {
    require!(Tool("btrfs"), Tool("mkfs.btrfs"));
    let off = overwrite("disable=block_group_skip");
    assert!(off.iter().all(|commit| commit.updated == commit.changed), "{off:?}");
    assert!(off.iter().all(|commit| commit.writes >= commit.changed), "{off:?}");
    assert!(off.iter().any(|commit| commit.writes > commit.changed), "{off:?}");
}

/// So many files made and every other one removed: batches with insertions, and entries removed before they
/// got there.
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
fn a_hundred_files_every_other_removed_take_two_batches() {
    require!(Tool("btrfs"), Tool("mkfs.btrfs"));
    let (on, cancelled) = batches("", 100);
    assert!(on <= 2, "{on} batches");
    assert!(cancelled >= 50, "{cancelled} insertions cancelled");
    let (off, _) = batches("disable=delayed_batch", 100);
    assert!((50..=53).contains(&off), "{off} batches");
}

/// Descents of trees for each extent of a sparse file that is read from data to data, and extents of it.
fn descents(options: &str, sectors: u64) -> f64 {
    let scratch = Scratch::new("descents");
    let image = image(&scratch, 1024, &[]);
    let files = open(&image, options);
    let file = files.create("/file").unwrap();
    for sector in 0..sectors {
        file.write_at(&[sector as u8; 4096], sector * 8192).unwrap();
    }
    drop(file);
    files.close().unwrap();
    let files = open(&image, options);
    let file = files.open_file("/file").unwrap();
    let before = counted(&files, "tree.descents");
    let (mut at, mut extents, mut bytes) = (0, 0, [0; 4096]);
    while let Ok(start) = file.seek_from(at, Seek::Data) {
        at = file.seek_from(start, Seek::Hole).unwrap();
        assert_eq!((start, at), (extents * 8192, extents * 8192 + 4096));
        assert_eq!(file.read_at(&mut bytes, start).unwrap(), 4096);
        assert_eq!(bytes, [extents as u8; 4096]);
        extents += 1;
    }
    assert_eq!(extents, sectors);
    (counted(&files, "tree.descents") - before) as f64 / extents as f64
}

#[test]
fn a_sparse_file_is_read_with_a_descent_for_each_leaf() {
    let (few, many, off) = (descents("", 2000), descents("", 16_000), descents("disable=seek_cache", 2000));
    println!(
        "descents for each extent: {few:.3} of 2,000, {many:.3} of 16,000, {off:.3} with the mechanism off"
    );
    assert!(few < 0.1 && many < 0.1 && many < few * 1.1, "{few} {many}");
    assert!(off >= 4.0, "{off}");
}

#[test]
fn a_listing_looks_for_the_last_index_once() {
    let scratch = Scratch::new("listed");
    let image = image(&scratch, 1024, &[]);
    let files = open(&image, "");
    for number in 0..50 {
        drop(files.create(format!("/f{number}")).unwrap());
    }
    files.close().unwrap();
    let files = open(&image, "");
    let caller = vlinder_fs::Caller::superuser();
    let names = files.filesystem().names();
    let root = files.filesystem().root().unwrap();
    let counts: Vec<u64> = (0..3)
        .map(|_| {
            let before = counted(&files, "tree.descents");
            let mut open = names.open_directory(&caller, &root).unwrap();
            open.rewind().unwrap();
            assert_eq!(open.read(0, 1024).unwrap().len(), 52);
            assert!(!open.is_outdated().unwrap());
            counted(&files, "tree.descents") - before
        })
        .collect();
    // First the last index in the tree, and what waits behind it; then the names alone.
    assert_eq!(counts, [3, 1, 1]);
}

#[test]
fn a_flush_of_scattered_writes_looks_a_leaf_up_once() {
    const SECTORS: u64 = 4_000;
    require!(Tool("mkfs.btrfs"), Tool("btrfs"));
    let scratch = Scratch::new("scattered");
    let image = image(&scratch, 1024, &[]);
    let files = open(&image, "");
    let file = files.create("/file").unwrap();
    let write = |step: u64, byte: u8| {
        for sector in (0..SECTORS).step_by(step as usize) {
            file.write_at(&[byte; 4096], sector * 8192).unwrap();
        }
    };
    write(1, 1);
    vlinder_fs::data::flush_all(files.filesystem()).unwrap();
    let before = counted(&files, "tree.descents");
    write(8, 2);
    vlinder_fs::data::flush_all(files.filesystem()).unwrap();
    let each = (counted(&files, "tree.descents") - before) as f64 / (SECTORS / 8) as f64;
    // Their items lie in some twenty-five leaves.
    println!("{each:.3} descents for each extent");
    assert!(each < 0.5, "{each}");
    drop(file);
    files.close().unwrap();
    kernel::btrfs_check(&image).unwrap();
}

#[test]
fn what_was_read_ahead_is_forgotten_when_the_file_changes() {
    const STEP: u64 = 4096;
    const BYTES: u64 = 8 << 20;
    let scratch = Scratch::new("ahead");
    let image = image(&scratch, 1024, &[]);
    let files = open(&image, "");
    let file = files.options().read(true).write(true).create(true).open("/file").unwrap();
    file.write_at(&vec![1; BYTES as usize], 0).unwrap();
    file.sync_all().unwrap();
    let read = |offset: u64| {
        let mut bytes = [0; STEP as usize];
        assert_eq!(file.read_at(&mut bytes, offset).unwrap(), bytes.len());
        assert_eq!(bytes, [bytes[0]; STEP as usize], "at {offset}");
        bytes[0]
    };
    let mut before = counted(&files, "data.read_ahead");
    // Each time what follows is held up to some place, and on its way from there.
    for (generation, border) in (2..).zip((STEP * 100..BYTES).step_by((STEP * 150) as usize)) {
        let from = border - STEP * 75;
        (from..border).step_by(STEP as usize).for_each(|offset| assert_eq!(read(offset), generation - 1));
        assert!(counted(&files, "data.read_ahead") > before, "nothing was read ahead of {border}");
        file.write_at(&vec![generation; (BYTES - from) as usize], from).unwrap();
        assert_eq!(read(border), generation, "not flushed yet");
        file.sync_all().unwrap();
        before = counted(&files, "data.read_ahead");
        assert_eq!(read(border + STEP), generation);
    }
}

#[test]
fn a_file_without_holes_becomes_one_extent() {
    require!(Tool("btrfs"));
    const BYTES: u64 = 32 << 20;
    let scratch = Scratch::new("extents");
    let image = image(&scratch, 1024, &[]);
    let files = open(&image, "");
    // The data group that mkfs makes has 8 MiB, which would take a part of the first file.
    files.write("/filler", vec![1; 16 << 20]).unwrap();
    files.sync().unwrap();
    let random = SeededRandom::new(5);
    let orders: [(&str, u64, bool); 4] =
        [("small", 4096, false), ("odd", 5000, false), ("large", 1 << 20, false), ("random", 4096, true)];
    for (name, piece, is_shuffled) in orders {
        let file = files.create(name).unwrap();
        let mut offsets: Vec<u64> = (0..BYTES).step_by(piece as usize).collect();
        if is_shuffled {
            for at in 1..offsets.len() {
                offsets.swap(at, (random.next_u64() % (at as u64 + 1)) as usize);
            }
        }
        for offset in offsets {
            let length = piece.min(BYTES - offset);
            file.write_at(&vec![7; length as usize], offset).unwrap();
        }
        file.sync_all().unwrap();
        let map = file.extent_map(ByteRange::ALL, 100).unwrap();
        assert_eq!((map.len(), map[0].length), (1, BYTES), "{name}: {map:?}");
    }
    files.close().unwrap();
    kernel::btrfs_check_data(&image).unwrap();
}
