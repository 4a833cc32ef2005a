use std::collections::HashMap;

use vlinder_base::metrics::Registry;
use vlinder_format::block::{BLOCK_FLAG_WRITTEN, BlockIdentity, ChildPointer};
use vlinder_format::file_extent::{CompressionId, FileExtent, FileExtentContent};
use vlinder_format::inode::{FileType, InodeItem, Mode};
use vlinder_format::validate::validate_leaf;
use vlinder_format::{Fault, ItemType, Level, ObjectId, Uuid};

use super::*;
use crate::{BlockSource, Readahead, Root, RootPointer, TreeError, TreeMetrics, Trees, WantedBlock};

const GENERATION: Generation = Generation(7);
const TREE: RootId = RootId::FS_TREE;
const RULES: LeafRules = LeafRules {
    sector_size: 4096,
    node_size: 4096,
    checksum_size: 4,
    generation: GENERATION,
    features: vlinder_format::features::Features {
        compat: vlinder_format::features::CompatFeatures::NONE,
        compat_read_only: vlinder_format::features::CompatReadOnlyFeatures::NONE,
        incompat: vlinder_format::features::IncompatFeatures::NONE,
    },
    writable: false,
};

/// Blocks of which no copy is better than these.
struct Disk {
    blocks: HashMap<Logical, Block>,
    left_out: Arc<LeftOut>,
}

impl BlockSource for Disk {
    fn node_size(&self) -> u32 {
        RULES.node_size
    }

    fn read(&self, wanted: &[WantedBlock]) -> Vec<Result<Arc<Block>, TreeError>> {
        let one = |wanted: &WantedBlock| {
            let block = self.blocks[&wanted.logical].clone();
            let Err(fault) = validate_leaf(&block, &RULES) else { return Ok(Arc::new(block)) };
            let left = self.left_out.leave_out(block, wanted.tree, &RULES);
            left.map(Arc::new).ok_or_else(|| fault.into_damage(Some(wanted.tree), wanted.logical).into())
        };
        wanted.iter().map(one).collect()
    }

    fn left_out(&self) -> Option<Arc<LeftOut>> {
        Some(Arc::clone(&self.left_out))
    }
}

fn key(inode: u64, item_type: ItemType, offset: u64) -> Key {
    Key::new(ObjectId(inode), item_type, offset)
}

fn inode(number: u64) -> Key {
    key(number, ItemType::INODE_ITEM, 0)
}

fn bytes_at(number: u64, offset: u64) -> Key {
    key(number, ItemType::EXTENT_DATA, offset)
}

/// What is sound under a key.
fn sound(key: &Key) -> Vec<u8> {
    if key.item_type == ItemType::INODE_ITEM {
        let mode = Mode::new(FileType::Regular, 0o600);
        return InodeItem { link_count: 1, mode, ..InodeItem::default() }.encode().to_vec();
    }
    let range = vlinder_format::file_extent::ExtentRange {
        address: Logical(1 << 30),
        disk_bytes: 4096,
        offset_bytes: 0,
        file_bytes: 4096,
    };
    let extent = FileExtent {
        generation: GENERATION,
        ram_bytes: 4096,
        compression: CompressionId::NONE,
        encryption: 0,
        other_encoding: 0,
        content: FileExtentContent::Regular(range),
    };
    extent.encode()
}

fn block(logical: u64, level: u8) -> Block {
    let identity = BlockIdentity {
        logical: Logical(logical),
        generation: GENERATION,
        owner: TREE,
        level: Level(level),
        fsid: Uuid([1; 16]),
        chunk_tree_uuid: Uuid([2; 16]),
    };
    let mut block = Block::new(RULES.node_size, &identity);
    block.set_flag(BLOCK_FLAG_WRITTEN, true);
    block
}

/// Leaves at 1, 2 … MiB under a root at 0.5 MiB; an item is one byte short where that is said.
fn trees(leaves: &[&[(Key, bool)]], most_items: usize) -> (Trees, Arc<Root>) {
    let mut blocks = HashMap::new();
    let mut root = block(1 << 19, 1);
    for (number, items) in leaves.iter().enumerate() {
        let mut leaf = block((number as u64 + 1) << 20, 0);
        for (slot, (key, is_sound)) in items.iter().enumerate() {
            let data = sound(key);
            leaf.items_mut().insert(slot, &[(*key, &data[usize::from(!is_sound)..])]);
        }
        let child = ChildPointer { key: items[0].0, logical: leaf.logical(), generation: GENERATION };
        root.children_mut().insert(number, &[child]);
        blocks.insert(leaf.logical(), leaf);
    }
    let pointer = RootPointer { logical: root.logical(), generation: GENERATION, level: Level(1) };
    blocks.insert(root.logical(), root);
    let left_out = Arc::new(LeftOut { most_items, ..LeftOut::default() });
    let disk = Disk { blocks, left_out };
    let metrics = TreeMetrics::new(&Registry::new());
    (Trees::new(Arc::new(disk), 1 << 20, metrics), Root::new(TREE, pointer, Generation(0)))
}

/// Items that a walk met, and the ranges that it lost.
fn walk(trees: &Trees, root: &Root, from: Key, to: Key) -> Vec<Result<Key, (Key, Key, bool)>> {
    let walk = trees.salvage(root, from..=to);
    walk.map(|found| {
        found
            .map(|position| position.key())
            .map_err(|lost| (*lost.keys.start(), *lost.keys.end(), lost.is_item))
    })
    .collect()
}

/// The second file's own item and its last run are faulty, as is the first run of the first file.
const LEAVES: [&[(Key, bool)]; 3] = [
    &[
        (Key::new(ObjectId(256), ItemType::INODE_ITEM, 0), true),
        (Key::new(ObjectId(256), ItemType::EXTENT_DATA, 0), false),
        (Key::new(ObjectId(256), ItemType::EXTENT_DATA, 8192), true),
    ],
    &[
        (Key::new(ObjectId(257), ItemType::INODE_ITEM, 0), false),
        (Key::new(ObjectId(257), ItemType::EXTENT_DATA, 0), true),
        (Key::new(ObjectId(257), ItemType::EXTENT_DATA, 4096), false),
        (Key::new(ObjectId(257), ItemType::EXTENT_DATA, 8192), false),
    ],
    &[(Key::new(ObjectId(258), ItemType::INODE_ITEM, 0), true)],
];

#[test]
fn a_walk_gives_all_but_faulty_items_and_tells_of_these() {
    let (trees, root) = trees(&LEAVES, MAX_ITEMS);
    let expected = [
        Ok(inode(256)),
        Err((bytes_at(256, 0), bytes_at(256, 8191), true)),
        Ok(bytes_at(256, 8192)),
        Err((inode(257), bytes_at(257, 0).previous().unwrap(), true)),
        Ok(bytes_at(257, 0)),
        Err((bytes_at(257, 4096), bytes_at(257, 8191), true)),
        Err((bytes_at(257, 8192), inode(258).previous().unwrap(), true)),
        Ok(inode(258)),
    ];
    // Once from disk, once from memory.
    for _ in 0..2 {
        assert_eq!(walk(&trees, &root, Key::MIN, Key::MAX), expected);
    }
    // A range: an item is lost in it only if its own key is there, and no loss ends behind it.
    let (from, to) = (bytes_at(257, 0), bytes_at(257, 5000));
    assert_eq!(
        walk(&trees, &root, from, to),
        [Ok(from), Err((bytes_at(257, 4096), bytes_at(257, 5000), true))]
    );
    assert_eq!(walk(&trees, &root, bytes_at(256, 1), bytes_at(256, 8191)), []);
    let lost = trees.salvage(&root, inode(257)..=Key::MAX).next().unwrap().unwrap_err();
    let TreeError::Damage(damage) = *lost.error else { panic!("{}", lost.error) };
    assert!(matches!(damage.fault, Fault::Inode(_)), "{damage}");
    let place = &damage.place;
    assert_eq!((place.tree, place.block, place.slot), (Some(TREE), Some(Logical(2 << 20)), Some(0)));
    assert_eq!(place.key, Some(inode(257)));
    let all: Vec<Key> =
        trees.left_out().unwrap().all().iter().filter_map(|damage| damage.place.key).collect();
    assert_eq!(all, [bytes_at(256, 0), inode(257), bytes_at(257, 4096), bytes_at(257, 8192)]);
}

#[test]
fn a_search_takes_nothing_else_for_what_was_left_out() {
    let (trees, root) = trees(&LEAVES, MAX_ITEMS);
    let refused = |result: Result<Option<crate::Position>, TreeError>| match result {
        Err(TreeError::Damage(damage)) => damage.place.key,
        other => panic!("{other:?}"),
    };
    let key_of =
        |result: Result<Option<crate::Position>, TreeError>| result.unwrap().map(|found| found.key());
    assert_eq!(refused(trees.get(&root, &inode(257))), Some(inode(257)));
    assert_eq!(refused(trees.get(&root, &bytes_at(256, 0))), Some(bytes_at(256, 0)));
    assert_eq!(refused(trees.floor(&root, &bytes_at(256, 5000))), Some(bytes_at(256, 0)));
    // From the leaf behind, and from before the leaf's first item that is left.
    assert_eq!(refused(trees.floor(&root, &inode(258).previous().unwrap())), Some(bytes_at(257, 8192)));
    assert_eq!(refused(trees.floor(&root, &key(257, ItemType::INODE_REF, 0))), Some(inode(257)));
    assert_eq!(key_of(trees.floor(&root, &bytes_at(257, 100))), Some(bytes_at(257, 0)));
    assert_eq!(key_of(trees.get(&root, &key(257, ItemType::INODE_REF, 0))), None);
    assert_eq!(key_of(trees.get(&root, &bytes_at(256, 12288))), None);
    assert_eq!(key_of(trees.get(&root, &inode(258))), Some(inode(258)));
    // A cursor that goes on from item to item goes past it.
    assert_eq!(key_of(trees.ceiling(&root, &bytes_at(256, 0))), Some(bytes_at(256, 8192)));
    let mut cursor = trees.cursor(&root, &Key::MIN, Readahead::None).unwrap();
    let mut keys = Vec::new();
    while let Some(key) = cursor.key() {
        keys.push(key);
        cursor.advance().unwrap();
    }
    assert_eq!(keys, [inode(256), bytes_at(256, 8192), bytes_at(257, 0), inode(258)]);
}

#[test]
fn leaves_are_lost_whole_where_too_much_is_to_be_remembered() {
    let whole = |walked: &[Result<Key, (Key, Key, bool)>]| {
        walked.iter().filter(|found| matches!(found, Err((.., false)))).count()
    };
    // The first leaf takes one, the second needs three more.
    for (most_items, lost) in [(0, 2), (1, 1), (3, 1), (4, 0)] {
        let (trees, root) = trees(&LEAVES, most_items);
        let walked = walk(&trees, &root, Key::MIN, Key::MAX);
        assert_eq!(whole(&walked), lost, "{most_items}: {walked:?}");
        assert!(trees.left_out().unwrap().all().len() <= most_items);
        assert_eq!(walked.last(), Some(&Ok(inode(258))));
    }
    let (trees, root) = trees(&[LEAVES[0], &[(inode(257), false)], LEAVES[2]], MAX_ITEMS);
    let walked = walk(&trees, &root, Key::MIN, Key::MAX);
    assert_eq!(walked[3], Err((inode(257), inode(258).previous().unwrap(), false)), "{walked:?}");
    assert!(size_of::<ItemFault>() <= 150, "{}", size_of::<ItemFault>());
}

#[test]
fn what_was_left_out_stays_the_same() {
    let mut leaf = block(1 << 20, 0);
    for (slot, number) in (256..259).enumerate() {
        let (key, data) = (inode(number), sound(&inode(number)));
        leaf.items_mut().insert(slot, &[(key, &data[usize::from(number == 257)..])]);
    }
    let left_out = LeftOut::default();
    let given = left_out.leave_out(leaf.clone(), TREE, &RULES).unwrap();
    assert_eq!((given.len(), validate_leaf(&given, &RULES)), (2, Ok(())));
    assert_eq!(left_out.of(&given).len(), 1);
    assert_eq!(left_out.span(&given), Some((inode(256), inode(258))));
    // Once more, and from a copy in which nothing, or something else, is wrong.
    assert!(left_out.leave_out(leaf.clone(), TREE, &RULES).is_some());
    let mut whole = leaf.clone();
    whole.items_mut().resize(1, InodeItem::SIZE);
    whole.items_mut().data(1).copy_from_slice(&sound(&inode(257)));
    assert!(left_out.of(&whole).is_empty());
    leaf.items_mut().resize(2, 7);
    assert!(left_out.leave_out(leaf, TREE, &RULES).is_none());
    assert_eq!(left_out.all().len(), 1);
}
