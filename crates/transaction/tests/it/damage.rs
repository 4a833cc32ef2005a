//! Images whose trees contradict each other: a change that would make it worse is refused with the kind of
//! damage, before anything of it is published.

use std::path::{Path, PathBuf};

use crate::support::{mkfs, open};
use vlinder_base::sync::Arc;
use vlinder_format::block_group::BlockGroupItem;
use vlinder_format::chunk::BlockGroupFlags;
use vlinder_format::free_space::{FreeSpaceInfo, extent_key};
use vlinder_format::inode::Timestamp;
use vlinder_format::uuid_item::UuidKind;
use vlinder_format::{Generation, ItemType, Key, Logical, ObjectId, RootId, Uuid};
use vlinder_testkit::{Scratch, require};
use vlinder_transaction::{DataExtent, Engine, EngineError, ReadOnlyReason, Reservation, SnapshotRequest};
use vlinder_tree::{Change, Edit, Readahead};

struct Image {
    _scratch: Scratch,
    path: PathBuf,
}

fn image() -> Image {
    let scratch = Scratch::new("damage");
    let path = scratch.path().join("image");
    mkfs(&path, &["-m", "single"], "128M");
    Image { _scratch: scratch, path }
}

/// Changes items of one of the engine's own trees, as a mistake or malice would.
fn forge(path: &Path, tree: RootId, edits: &[Edit<'_>]) {
    let engine = open(path);
    let tree = engine.tree(tree).unwrap();
    let mut handle = engine.begin(Reservation::items(10)).unwrap();
    handle.edit(&tree, edits).unwrap();
    drop(handle);
    engine.commit().unwrap();
}

/// Some changes that take and free blocks, and a commit.
fn work(engine: &Engine) -> Result<Generation, EngineError> {
    for number in 0..200_u8 {
        let mut handle = engine.begin(Reservation::items(10))?;
        handle.add_uuid(UuidKind::Own, Uuid([number; 16]), RootId::FS_TREE)?;
    }
    engine.commit()
}

fn assert_refused(engine: &Engine, outcome: Result<Generation, EngineError>, expected: &str) {
    let error = outcome.unwrap_err().to_string();
    assert!(error.contains(expected), "{error}");
    assert!(matches!(engine.read_only_reason(), Some(ReadOnlyReason::Error(_))), "{error}");
}

/// The last group of metadata.
fn metadata_group(engine: &Arc<Engine>) -> (Logical, u64) {
    let chunks = engine.volume().chunks().snapshot();
    let chunk = chunks.iter().rev().find(|chunk| chunk.chunk.flags.has(BlockGroupFlags::METADATA)).unwrap();
    (chunk.logical, chunk.chunk.length)
}

/// The free runs of a group.
fn free_runs(engine: &Arc<Engine>, group: (Logical, u64)) -> Vec<(u64, u64)> {
    let tree = engine.tree(RootId::FREE_SPACE_TREE).unwrap();
    let first = Key::new(ObjectId(group.0.0), ItemType::FREE_SPACE_EXTENT, 0);
    let mut cursor = engine.forest().trees().cursor(tree.root(), &first, Readahead::None).unwrap();
    let mut runs = Vec::new();
    while let Some(key) = cursor.key()
        && key.objectid.0 < group.0.0 + group.1
    {
        runs.push((key.objectid.0, key.offset));
        cursor.advance().unwrap();
    }
    runs
}

#[test]
fn a_group_with_less_in_use_than_is_freed() {
    require!(Tool("btrfs"), Tool("mkfs.btrfs"));
    let image = image();
    let engine = open(&image.path);
    let (start, length) = metadata_group(&engine);
    drop(engine);
    let item = BlockGroupItem::new(4096, BlockGroupFlags::METADATA).encode();
    let key = BlockGroupItem::key(start, length);
    forge(&image.path, RootId::EXTENT_TREE, &[Edit::new(key, Change::Replace(&item))]);
    let engine = open(&image.path);
    let outcome = work(&engine);
    assert_refused(&engine, outcome, "in use");
}

#[test]
fn free_space_beyond_its_group() {
    require!(Tool("btrfs"), Tool("mkfs.btrfs"));
    let image = image();
    let engine = open(&image.path);
    let chunk = engine.volume().chunks().snapshot().pop().unwrap();
    assert!(chunk.chunk.flags.has(BlockGroupFlags::DATA), "the last group is one of data");
    let (start, length) = *free_runs(&engine, (chunk.logical, chunk.chunk.length)).last().unwrap();
    drop(engine);
    forge(
        &image.path,
        RootId::FREE_SPACE_TREE,
        &[
            Edit::new(extent_key(Logical(start), length), Change::RemoveIfPresent),
            Edit::new(extent_key(Logical(start), length + (1 << 20)), Change::Put(&[])),
        ],
    );
    let engine = open(&image.path);
    let mut handle = engine.begin(Reservation::items(10)).unwrap();
    let error = handle.allocate_data(4096, 4096).unwrap_err().to_string();
    assert!(error.contains("beyond its group"), "{error}");
}

/// Data of 8 KiB that one file refers to.
fn add_data(engine: &Engine) -> DataExtent {
    let mut handle = engine.begin(Reservation::items(10)).unwrap();
    let extent = handle.allocate_data(8192, 8192).unwrap();
    handle.add_data_reference(extent, true, RootId::FS_TREE, ObjectId(257), 0);
    extent
}

/// Space that is in use and called free is not given to another extent.
#[test]
fn free_space_that_is_in_use() {
    require!(Tool("btrfs"), Tool("mkfs.btrfs"));
    let image = image();
    let engine = open(&image.path);
    let extent = add_data(&engine);
    engine.commit().unwrap();
    drop(engine);
    let edit = Edit::new(extent_key(extent.logical, extent.length), Change::Put(&[]));
    forge(&image.path, RootId::FREE_SPACE_TREE, &[edit]);
    let engine = open(&image.path);
    assert_eq!(add_data(&engine), extent);
    let outcome = engine.commit();
    assert_refused(&engine, outcome, "called free");
}

/// A block in use whose place is called free: the tree that has it finds another there when it lets go of it.
#[test]
fn a_tree_block_whose_place_is_called_free() {
    require!(Tool("btrfs"), Tool("mkfs.btrfs"));
    let image = image();
    let engine = open(&image.path);
    let root = engine.tree(RootId::UUID_TREE).unwrap().root().pointer().logical;
    let node_size = u64::from(engine.superblock().node_size);
    drop(engine);
    let edit = Edit::new(extent_key(root, node_size), Change::Put(&[]));
    forge(&image.path, RootId::FREE_SPACE_TREE, &[edit]);
    let before = std::fs::read(&image.path).unwrap();
    let engine = open(&image.path);
    // Another tree grows until it has a block there, too.
    let tree = engine.tree(RootId::FS_TREE).unwrap();
    let large = vec![7; 12_000];
    for number in 0..500 {
        let key = Key::new(ObjectId(1000 + number), ItemType::XATTR_ITEM, 0);
        let mut handle = engine.begin(Reservation::items(10)).unwrap();
        handle.edit(&tree, &[Edit::new(key, Change::Put(&large))]).unwrap();
    }
    assert!(engine.read_only_reason().is_none());
    // The tree with the block changes while the commit closes: a snapshot has a UUID.
    let mut handle = engine.begin(Reservation::items(10)).unwrap();
    let id = handle.new_subvolume_number().unwrap();
    let request = SnapshotRequest {
        source: Arc::clone(&tree),
        id,
        uuid: Uuid([9; 16]),
        parent: Uuid([8; 16]),
        time: Timestamp { seconds: 1, nanoseconds: 0 },
        read_only: false,
        directory_tree: Arc::clone(&tree),
        name_keys: Vec::new(),
        after: Box::new(|_, _| Ok(())),
    };
    let snapshot = request.reserve(&mut handle).unwrap();
    drop(handle);
    let outcome = snapshot.commit();
    let error = outcome.unwrap_err().to_string();
    assert!(error.contains(&format!("the space at {} is called free", root.0)), "{error}");
    drop(engine);
    let superblock = |image: &[u8]| image[65536..65536 + 4096].to_vec();
    assert_eq!(
        superblock(&std::fs::read(&image.path).unwrap()),
        superblock(&before),
        "something was published"
    );
}

/// What is free already is not freed again.
#[test]
fn space_in_use_that_is_free_already() {
    require!(Tool("btrfs"), Tool("mkfs.btrfs"));
    let image = image();
    let engine = open(&image.path);
    let extent = add_data(&engine);
    engine.commit().unwrap();
    drop(engine);
    let edit = Edit::new(extent_key(extent.logical, extent.length), Change::Put(&[]));
    forge(&image.path, RootId::FREE_SPACE_TREE, &[edit]);
    let engine = open(&image.path);
    let mut handle = engine.begin(Reservation::items(10)).unwrap();
    // So that the group's free space is read.
    let other = handle.allocate_data(1 << 20, 1 << 20).unwrap();
    handle.release_data(other);
    handle.drop_data_reference(extent, RootId::FS_TREE, ObjectId(257), 0);
    drop(handle);
    let outcome = engine.commit();
    assert_refused(&engine, outcome, "free already");
}

/// A group that counts fewer free runs than it has: two of them become one, where it has none.
#[test]
fn more_free_runs_than_are_counted() {
    require!(Tool("btrfs"), Tool("mkfs.btrfs"));
    let image = image();
    let engine = open(&image.path);
    let (first, second) = (add_data(&engine), add_data(&engine));
    engine.commit().unwrap();
    let mut handle = engine.begin(Reservation::items(10)).unwrap();
    handle.drop_data_reference(first, RootId::FS_TREE, ObjectId(257), 0);
    drop(handle);
    engine.commit().unwrap();
    let chunks = engine.volume().chunks().snapshot();
    let chunk = chunks.iter().rfind(|chunk| chunk.logical <= first.logical).unwrap();
    let group = (chunk.logical, chunk.chunk.length);
    let ends = |run: &(u64, u64)| [run.0, run.0 + run.1];
    let runs: Vec<_> = free_runs(&engine, group).iter().map(ends).collect();
    assert_eq!(runs[0][1], second.logical.0, "a run before the second extent");
    assert_eq!(runs[1][0], second.logical.0 + second.length, "and one behind it");
    drop(engine);

    let key = FreeSpaceInfo::key(group.0, group.1);
    let none = FreeSpaceInfo { extent_count: 0, flags: 0 }.encode();
    forge(&image.path, RootId::FREE_SPACE_TREE, &[Edit::new(key, Change::Replace(&none))]);
    let before = std::fs::read(&image.path).unwrap();
    let engine = open(&image.path);
    let mut handle = engine.begin(Reservation::items(10)).unwrap();
    handle.drop_data_reference(second, RootId::FS_TREE, ObjectId(257), 0);
    drop(handle);
    let outcome = engine.commit();
    assert_refused(&engine, outcome, &format!("key {key}: the block group counts 0 free runs and has more"));
    drop(engine);
    assert!(std::fs::read(&image.path).unwrap() == before, "something was written");
}

/// Two users of one data extent do not agree on its length, or one of them not with the extent tree.
#[test]
fn references_that_disagree_on_an_extent_s_length() {
    require!(Tool("btrfs"), Tool("mkfs.btrfs"));
    let image = image();
    for dropped in [[8192, 4096], [4096, 4096]] {
        let engine = open(&image.path);
        let extent = add_data(&engine);
        let mut handle = engine.begin(Reservation::items(10)).unwrap();
        handle.add_data_reference(extent, false, RootId::FS_TREE, ObjectId(258), 0);
        drop(handle);
        engine.commit().unwrap();
        let mut handle = engine.begin(Reservation::items(10)).unwrap();
        for (inode, length) in [257, 258].into_iter().zip(dropped) {
            let named = DataExtent { logical: extent.logical, length };
            handle.drop_data_reference(named, RootId::FS_TREE, ObjectId(inode), 0);
        }
        drop(handle);
        let outcome = engine.commit();
        assert_refused(&engine, outcome, "another length");
    }
}
