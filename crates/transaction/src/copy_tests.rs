//! Copies of blocks that others share, or have left: what they change of the references of the blocks'
//! children is charged before.

use vlinder_base::sync::Arc;
use vlinder_format::file_extent::FileExtent;
use vlinder_format::inode::{InodeItem, Mode, Timestamp};
use vlinder_format::{Block, FileOffset, ItemType, Key, Level, Logical, ObjectId, RootId, Uuid};
use vlinder_testkit::{Scratch, require};
use vlinder_tree::{Change, Edit, Space, Touch, WantedBlock};

use crate::engine::Engine;
use crate::extents::delayed::ExtentKind;
use crate::opening_tests::{new_image, write};
use crate::reservation::Reservation;
use crate::snapshots::SnapshotRequest;
use vlinder_forest::OpenTree;
use vlinder_forest::Referrer;
use vlinder_space::Charge;

const SECTOR: u64 = 4096;
const FILE: ObjectId = ObjectId(257);
/// So many that their items have nodes of two levels above them, where blocks have 4 KiB.
const EXTENTS: u64 = 8000;

fn key_of(number: u64) -> Key {
    FileExtent::key(FILE, FileOffset(number * SECTOR))
}

/// The top level with the items of many extents but for each tenth, and a snapshot of it.
fn plant(engine: &Engine) -> Arc<OpenTree> {
    let tree = engine.tree(RootId::FS_TREE).unwrap();
    let mut handle = engine.begin(Reservation::items(2000)).unwrap();
    let inode = InodeItem {
        generation: handle.generation(),
        size_bytes: EXTENTS * SECTOR,
        allocated_bytes: EXTENTS * SECTOR,
        link_count: 1,
        mode: Mode(0o100_644),
        ..InodeItem::default()
    };
    let inode_key = Key::new(FILE, ItemType::INODE_ITEM, 0);
    handle.edit(&tree, &[Edit::new(inode_key, Change::Insert(&inode.encode()))]).unwrap();
    for part in 0..EXTENTS / 100 {
        let items: Vec<(Key, Vec<u8>)> = (part * 100..(part + 1) * 100)
            .map(|number| {
                let extent =
                    FileExtent::whole(Logical((1 << 40) + number * SECTOR), SECTOR, handle.generation());
                (key_of(number), extent.encode())
            })
            .collect();
        let edits: Vec<Edit<'_>> =
            items.iter().map(|(key, data)| Edit::new(*key, Change::Insert(data))).collect();
        handle.edit(&tree, &edits).unwrap();
    }
    // Each leaf has room for some items.
    let gaps: Vec<Edit<'_>> =
        (0..EXTENTS).step_by(10).map(|number| Edit::new(key_of(number), Change::Remove)).collect();
    handle.edit(&tree, &gaps).unwrap();
    drop(handle);
    engine.commit().unwrap();
    assert_eq!(tree.root().pointer().level, Level(2));
    let mut handle = engine.begin(Reservation::items(10)).unwrap();
    let id = handle.new_subvolume_number().unwrap();
    let request = SnapshotRequest {
        source: Arc::clone(&tree),
        id,
        uuid: Uuid([9; 16]),
        parent: Uuid([8; 16]),
        time: Timestamp::default(),
        read_only: false,
        directory_tree: Arc::clone(&tree),
        name_keys: Vec::new(),
        after: Box::new(|_, _| Ok(())),
    };
    let snapshot = request.reserve(&mut handle).unwrap();
    drop(handle);
    snapshot.commit().unwrap();
    tree
}

/// The leaf in which an item lies.
fn leaf_of(engine: &Engine, tree: &OpenTree, key: &Key) -> Arc<Block> {
    let mut block = engine.core().trees().store().block(&WantedBlock::root(tree.root())).unwrap();
    while !block.is_leaf() {
        let slot = block.child_slot(key);
        block = engine.core().trees().store().block(&WantedBlock::child(tree.id(), &block, slot)).unwrap();
    }
    block
}

/// Puts the item of an extent again, and gives what the handle was promised for copies, and what these left
/// for the commit.
fn change(engine: &Engine, tree: &OpenTree, key: Key) -> (Charge, Charge) {
    let before = engine.core().queues().delayed().charge();
    let mut handle = engine.begin(Reservation::items(1)).unwrap();
    let item = FileExtent::hole(SECTOR, handle.generation()).encode();
    handle.edit(tree, &[Edit::new(key, Change::Put(&item))]).unwrap();
    let further = handle.editor().space.further();
    let left = engine.core().queues().delayed().charge().growth_since(before);
    (further, left)
}

/// The blocks whose copies a measurement of a change at a key counts.
fn measured_copies(engine: &Engine, tree: &OpenTree, key: Key) -> Vec<Logical> {
    let touches = [Touch::at(key, 0)];
    engine.core().reserver().measuring().touches(tree.id(), tree.root(), &touches).unwrap().copied
}

#[test]
fn a_leaf_below_a_shared_node_is_shared_by_one_reference() {
    require!(Tool("mkfs.btrfs"));
    let scratch = Scratch::new("shared_below");
    let engine = write(&new_image(&scratch, &["-n", "4096"])).unwrap();
    let tree = plant(&engine);
    let key = key_of(EXTENTS / 2 + 1);
    let leaf = leaf_of(&engine, &tree, &key);
    let sharing =
        engine.core().trees().sharing_at(leaf.logical(), tree.id(), engine.core().queues()).unwrap();
    assert_eq!((sharing.references, sharing.full_back_references), (1, false));
    assert_eq!(measured_copies(&engine, &tree, key).last(), Some(&leaf.logical()));
    let (further, left) = change(&engine, &tree, key);
    let extents = u64::try_from(leaf.len()).unwrap();
    assert_eq!((further.added_references, left.added_references), (extents, extents));
    assert!(left.block_references > extents, "those of the node's children and of both copies: {left:?}");
    assert_eq!(measured_copies(&engine, &tree, key), [], "both are copied");
}

#[test]
fn a_left_leaf_costs_its_last_user_two_changes_a_reference() {
    require!(Tool("mkfs.btrfs"));
    let scratch = Scratch::new("left_to_others");
    let engine = write(&new_image(&scratch, &["-n", "4096"])).unwrap();
    let tree = plant(&engine);
    let key = key_of(EXTENTS / 2 + 1);
    // The node above is copied by a change in another leaf.
    change(&engine, &tree, key_of(EXTENTS / 2 + 61));
    let leaf = leaf_of(&engine, &tree, &key);
    assert!(leaf.generation() < engine.generation());
    engine.core().block_space().set_full_back_references(&leaf);
    let kind = ExtentKind::TreeBlock {
        level: Level::LEAF,
        first_key: Key::new(FILE, ItemType::EXTENT_DATA, 0),
        owner: tree.id(),
    };
    let node_bytes = u64::from(engine.volume().geometry().node_size);
    let by_node = Referrer::Root(tree.id());
    while engine
        .core()
        .trees()
        .sharing_at(leaf.logical(), tree.id(), engine.core().queues())
        .unwrap()
        .references
        > 1
    {
        engine.core().queues().delayed().change(leaf.logical(), node_bytes, kind, by_node, -1, false);
    }
    assert_eq!(measured_copies(&engine, &tree, key), [leaf.logical()]);
    let (further, left) = change(&engine, &tree, key);
    let extents = u64::try_from(leaf.len()).unwrap();
    assert_eq!((further.added_references, further.dropped_references), (extents, extents));
    assert_eq!((left.added_references, left.dropped_references), (extents, extents));
    assert_eq!(left.extents, 0);
}

#[test]
fn a_leaf_that_grows_small_is_not_joined_with_a_shared_one() {
    require!(Tool("mkfs.btrfs"));
    let scratch = Scratch::new("shared_sibling");
    let engine = write(&new_image(&scratch, &["-n", "4096"])).unwrap();
    let tree = plant(&engine);
    let leaf = leaf_of(&engine, &tree, &key_of(EXTENTS / 2 + 1));
    let keys: Vec<Key> = (1..leaf.len()).map(|slot| leaf.key(slot)).collect();
    let mut handle = engine.begin(Reservation::items(10)).unwrap();
    let edits: Vec<Edit<'_>> = keys.iter().map(|key| Edit::new(*key, Change::Remove)).collect();
    handle.edit(&tree, &edits).unwrap();
    let extents = u64::try_from(leaf.len()).unwrap();
    let left = engine.core().queues().delayed().charge();
    assert_eq!((handle.editor().space.further().added_references, left.added_references), (extents, extents));
    assert_eq!(leaf_of(&engine, &tree, &leaf.key(0)).len(), 1, "it is as small as that");
}
