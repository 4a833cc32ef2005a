use super::*;
use crate::key::{ItemType, Key};
use crate::types::{Generation, Level, Logical, ObjectId, RootId, Uuid};
use std::collections::BTreeMap;

fn identity(level: u8) -> BlockIdentity {
    BlockIdentity {
        logical: Logical(1 << 20),
        generation: Generation(7),
        owner: RootId(256),
        level: Level(level),
        fsid: Uuid([1; 16]),
        chunk_tree_uuid: Uuid([2; 16]),
    }
}

const RULES: BlockRules = BlockRules { node_size: 4096, sector_size: 4096 };

fn key(number: u64) -> Key {
    Key::new(ObjectId(number), ItemType::INODE_ITEM, 0)
}

fn assert_same(block: &Block, model: &BTreeMap<Key, Vec<u8>>) {
    let mut written = block.clone();
    written.set_flag(BLOCK_FLAG_WRITTEN, true);
    written.validate(&RULES).unwrap();
    let found: Vec<(Key, Vec<u8>)> =
        (0..block.len()).map(|slot| (block.key(slot), block.data(slot).to_vec())).collect();
    let expected: Vec<(Key, Vec<u8>)> = model.iter().map(|(key, data)| (*key, data.clone())).collect();
    assert_eq!(found, expected);
    let used: usize = model.values().map(|data| data.len() + ITEM_HEADER_SIZE).sum();
    assert_eq!(block.used_bytes(), used);
    assert_eq!(block.free_bytes(), 4096 - HEADER_SIZE - used);
}

#[test]
fn a_leaf_behaves_as_a_sorted_map() {
    let mut block = Block::new(4096, &identity(0));
    let mut model = BTreeMap::new();
    let mut state = 12345u64;
    let mut next = move || {
        state = state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        (state >> 33) as usize
    };
    for round in 0..20_000u32 {
        let number = key((next() % 64) as u64);
        let size = next() % 90;
        match (block.search(&number), next() % 3) {
            (Err(slot), _) if block.free_bytes() >= size + ITEM_HEADER_SIZE => {
                let data = vec![round as u8; size];
                block.items_mut().insert(slot, &[(number, &data)]);
                model.insert(number, data);
            }
            (Ok(slot), 0) => {
                block.items_mut().remove(slot, 1);
                model.remove(&number);
            }
            (Ok(slot), _)
                if size <= block.data_len(slot) || size - block.data_len(slot) <= block.free_bytes() =>
            {
                block.items_mut().resize(slot, size);
                model.get_mut(&number).unwrap().resize(size, 0);
            }
            _ => {}
        }
        if round % 50 == 0 {
            assert_same(&block, &model);
        }
    }
}

#[test]
fn items_inserted_at_once_are_those_inserted_one_by_one() {
    let mut state = 77u64;
    let mut next = move |below: u64| {
        state = state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        (state >> 33) % below
    };
    let mut inserted = 0;
    for _ in 0..2000 {
        let mut leaf = Block::new(4096, &identity(0));
        let mut model = BTreeMap::new();
        for _ in 0..next(30) {
            model.insert(key(next(100)), vec![next(256) as u8; next(60) as usize]);
        }
        let there: Vec<(Key, &[u8])> = model.iter().map(|(key, data)| (*key, data.as_slice())).collect();
        leaf.items_mut().insert(0, &there);
        let mut new = BTreeMap::new();
        for _ in 0..next(30) {
            new.insert(key(next(100)), vec![next(256) as u8; next(60) as usize]);
        }
        new.retain(|key, _| leaf.search(key).is_err());
        let mut one_by_one = leaf.clone();
        for (key, data) in &new {
            let slot = one_by_one.search(key).unwrap_err();
            one_by_one.items_mut().insert(slot, &[(*key, data)]);
        }
        let items: Vec<(usize, Key, &[u8])> =
            new.iter().map(|(key, data)| (leaf.search(key).unwrap_err(), *key, data.as_slice())).collect();
        leaf.items_mut().insert_between(&items);
        assert_eq!(leaf.bytes(), one_by_one.bytes());
        inserted += new.len();
        model.extend(new);
        assert_same(&leaf, &model);
    }
    assert!(inserted > 10_000, "{inserted}");
}

#[test]
fn a_key_is_found_wherever_the_search_begins() {
    for count in 0..6 {
        let mut leaf = Block::new(4096, &identity(0));
        let items: Vec<(Key, &[u8])> = (0..count).map(|number| (key(10 * number + 10), &b"x"[..])).collect();
        leaf.items_mut().insert(0, &items);
        for number in 0..70 {
            for near in 0..8 {
                let found = leaf.search_near(&key(number), near);
                assert_eq!(found, leaf.search(&key(number)), "{number} in {count}, from {near}");
            }
        }
    }
}

#[test]
fn a_split_keeps_every_item() {
    let mut left = Block::new(4096, &identity(0));
    let data: Vec<(Key, Vec<u8>)> = (0..30).map(|number| (key(number), vec![number as u8; 50])).collect();
    let items: Vec<(Key, &[u8])> = data.iter().map(|(key, data)| (*key, data.as_slice())).collect();
    left.items_mut().insert(0, &items);
    let mut right = Block::new(4096, &identity(0));
    left.items_mut().split_into(11, &mut right);
    assert_eq!((left.len(), right.len()), (11, 19));
    assert_eq!(right.key(0), key(11));
    assert_eq!(right.data(18), &[29; 50]);
    left.items_mut().remove(0, 11);
    assert!(left.bytes()[HEADER_SIZE..].iter().all(|byte| *byte == 0), "an emptied leaf has no remnants");
}

#[test]
fn node_pointers_insert_and_remove() {
    let mut node = Block::new(4096, &identity(1));
    let child = |number: u64| ChildPointer {
        key: key(number),
        logical: Logical(number * 4096),
        generation: Generation(3),
    };
    node.children_mut().insert(0, &[child(10), child(30)]);
    node.children_mut().insert(1, &[child(20)]);
    node.children_mut().remove(0, 1);
    assert_eq!(node.children().collect::<Vec<_>>(), vec![child(20), child(30)]);
    assert_eq!(node.child_slot(&key(5)), 0);
    assert_eq!(node.child_slot(&key(29)), 0);
    assert_eq!(node.child_slot(&key(31)), 1);
}

#[test]
fn arbitrary_bytes_never_panic() {
    let mut state = 99u64;
    for round in 0..3000u32 {
        let mut block = Block::new(4096, &identity((round % 3) as u8));
        block.set_flag(BLOCK_FLAG_WRITTEN, true);
        let mut bytes = block.bytes().to_vec();
        for _ in 0..(round % 40) {
            state = state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
            let at = 90 + (state >> 40) as usize % 120;
            bytes[at] = (state >> 20) as u8;
        }
        if let Ok(block) = Block::parse(bytes.into_boxed_slice(), &RULES) {
            for slot in 0..block.len() {
                let _ = block.key(slot);
                if block.is_leaf() {
                    let _ = block.data(slot).len();
                } else {
                    let _ = block.child(slot);
                }
            }
        }
    }
}

/// What a change that a block does not bear says.
fn refusal(level: u8, change: impl FnOnce(&mut Block)) -> String {
    let mut block = Block::new(4096, &identity(level));
    let refused = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| change(&mut block)));
    *refused.unwrap_err().downcast::<String>().unwrap()
}

#[test]
fn changes_of_another_kind_or_behind_the_end_are_refused() {
    let child = ChildPointer { key: key(1), logical: Logical(4096), generation: Generation(3) };
    assert_eq!(refusal(1, |node| node.items_mut().remove(0, 0)), "items 0+0 of 0");
    assert_eq!(refusal(0, |leaf| leaf.items_mut().remove(0, 1)), "items 0+1 of 0");
    assert_eq!(refusal(1, |node| node.items_mut().insert(0, &[(key(1), b"")])), "item 0 of 0");
    assert_eq!(refusal(0, |leaf| leaf.items_mut().insert(1, &[(key(1), b"")])), "item 1 of 0");
    assert_eq!(refusal(0, |leaf| leaf.items_mut().insert_between(&[(1, key(1), b"")])), "item 1 of 0");
    assert_eq!(refusal(0, |leaf| leaf.children_mut().insert(0, &[child])), "pointer 0 of 0");
    assert_eq!(refusal(1, |node| node.children_mut().insert(1, &[child])), "pointer 1 of 0");
    assert_eq!(refusal(0, |leaf| leaf.children_mut().remove(0, 0)), "pointers 0+0 of 0");
    assert_eq!(refusal(1, |node| node.children_mut().remove(0, 1)), "pointers 0+1 of 0");
    assert_eq!(refusal(0, |leaf| leaf.children_mut().set(0, &child)), "pointer 0 of 0");
    assert_eq!(refusal(1, |node| node.children_mut().set(0, &child)), "pointer 0 of 0");
    for level in [0, 1] {
        let message = std::panic::catch_unwind(|| {
            let mut other = Block::new(4096, &identity(level));
            if level == 0 {
                other.items_mut().insert(0, &[(key(1), b"")]);
            }
            Block::new(4096, &identity(0)).items_mut().split_into(0, &mut other);
        });
        let message = message.unwrap_err();
        assert_eq!(*message.downcast::<&str>().unwrap(), "items move into an empty leaf");
    }
}

#[test]
fn what_changes_nothing_leaves_the_bytes() {
    let mut leaf = Block::new(4096, &identity(0));
    leaf.items_mut().insert(0, &[(key(1), b"one"), (key(2), b"two")]);
    let before = leaf.bytes().to_vec();
    leaf.items_mut().remove(2, 0);
    leaf.set_flag(BLOCK_FLAG_WRITTEN, true);
    assert!(leaf.has_flag(BLOCK_FLAG_WRITTEN));
    leaf.set_flag(BLOCK_FLAG_WRITTEN, false);
    assert_eq!(leaf.bytes(), before);
}

#[test]
fn a_block_has_the_size_of_a_node_and_more_than_its_header() {
    let parse = |bytes: usize, node_size: u32| {
        let rules = BlockRules { node_size, ..RULES };
        Block::parse(vec![0; bytes].into_boxed_slice(), &rules).map(drop)
    };
    let size = |found, expected| Err((BlockFault::Size { found, expected }, None));
    assert_eq!(parse(4095, 4096), size(4095, 4096));
    assert_eq!(parse(HEADER_SIZE, 101), size(101, 101));
    assert_eq!(parse(102, 102), Err((BlockFault::NotWritten, None)));
}
