//! Tree blocks: any bytes as a block, and changes of a sound one beside a plain list of its items.

use vlinder_format::block::{BLOCK_FLAG_WRITTEN, BlockIdentity, BlockRules, ChildPointer, ITEM_HEADER_SIZE};
use vlinder_format::validate::validate_leaf;
use vlinder_format::{Block, Generation, ItemType, Key, Level, Logical, ObjectId, RootId, Uuid};

use crate::input::Input;
use crate::item_case;

/// Bytes of the blocks here: small, so that they are full soon.
const NODE_SIZE: u32 = 4096;

const RULES: BlockRules = BlockRules { node_size: NODE_SIZE, sector_size: 4096 };

/// Any bytes as a block: the first part of the input is its front (behind the checksum), the second its end,
/// where the items' data lie.
///
/// # Panics
/// Where a law is broken.
pub fn raw(input: &[u8]) {
    let mut input = Input(input);
    let mut rules = item_case::rules(input.u8());
    (rules.sector_size, rules.node_size) = (4096, NODE_SIZE);
    let front = usize::from(input.u16()) % (NODE_SIZE as usize - 32);
    let front = input.take(front);
    let back = input.rest();
    let back = &back[back.len().saturating_sub(NODE_SIZE as usize - 32 - front.len())..];
    let mut bytes = vec![0; NODE_SIZE as usize];
    bytes[32..32 + front.len()].copy_from_slice(front);
    let end = bytes.len();
    bytes[end - back.len()..].copy_from_slice(back);
    // Most inputs would fail here and nowhere else.
    bytes[56] |= 1;
    let Ok(block) = Block::parse(bytes.into(), &RULES) else { return };
    assert_eq!(block.validate(&RULES), Ok(()));
    let keys: Vec<Key> = (0..block.len()).map(|slot| block.key(slot)).collect();
    assert!(keys.is_sorted() && keys.windows(2).all(|pair| pair[0] != pair[1]));
    for (slot, key) in keys.iter().enumerate() {
        assert_eq!(block.search(key), Ok(slot));
        assert_eq!(block.child_slot(key), slot);
    }
    if block.is_leaf() { leaf(block, &rules) } else { node(block) }
}

fn leaf(mut block: Block, rules: &vlinder_format::validate::LeafRules) {
    let verdict = validate_leaf(&block, rules);
    let used: usize = (0..block.len()).map(|slot| block.data_len(slot) + ITEM_HEADER_SIZE).sum();
    assert_eq!(used, block.used_bytes());
    assert_eq!(used + block.free_bytes(), block.capacity_bytes());
    if let Err(fault) = &verdict {
        assert!((fault.slot as usize) < block.len() && block.key(fault.slot as usize) == fault.key);
    } else {
        // Without its first item, a sound leaf of no subvolume is sound as well.
        let is_subvolume = block.owner().is_subvolume();
        if block.len() > 1 && !is_subvolume {
            block.items_mut().remove(0, 1);
            assert_eq!(block.validate(&RULES), Ok(()));
            assert_eq!(validate_leaf(&block, rules), Ok(()));
        }
    }
}

fn node(mut block: Block) {
    for child in block.children() {
        assert!(child.logical.0 != 0 && child.logical.0.is_multiple_of(4096));
        assert!(child.generation <= block.generation());
    }
    if block.len() > 1 {
        block.children_mut().remove(0, 1);
        assert_eq!(block.validate(&RULES), Ok(()));
    }
}

fn empty(level: Level) -> Block {
    let identity = BlockIdentity {
        logical: Logical(1 << 20),
        generation: Generation(7),
        // A relocated or log tree may have empty leaves.
        owner: RootId(300),
        level,
        fsid: Uuid([1; 16]),
        chunk_tree_uuid: Uuid([2; 16]),
    };
    let mut block = Block::new(NODE_SIZE, &identity);
    block.set_flag(BLOCK_FLAG_WRITTEN, true);
    block
}

/// A key of few, so that inputs meet the same ones again.
fn key(input: &mut Input<'_>) -> Key {
    Key::new(ObjectId(u64::from(input.u8())), ItemType(input.u8() % 4 + 1), u64::from(input.u8() % 8))
}

/// Changes of a leaf, or of a node, beside a sorted list.
///
/// # Panics
/// Where the block and the list differ.
pub fn edits(input: &[u8]) {
    let mut input = Input(input);
    if input.u8().is_multiple_of(2) { edit_leaf(input) } else { edit_node(input) }
}

fn edit_leaf(mut input: Input<'_>) {
    let mut block = empty(Level::LEAF);
    let mut model: Vec<(Key, Vec<u8>)> = Vec::new();
    while !input.is_empty() {
        match input.u8() % 8 {
            0..=2 => insert(&mut block, &mut model, &mut input),
            3 if !model.is_empty() => {
                let slot = input.below(model.len());
                let count = input.below(model.len() - slot + 1);
                block.items_mut().remove(slot, count);
                model.drain(slot..slot + count);
            }
            4 if !model.is_empty() => {
                let slot = input.below(model.len());
                let size = usize::from(input.u16()) % 1200;
                let item = &mut model[slot].1;
                if size.saturating_sub(item.len()) <= block.free_bytes() {
                    block.items_mut().resize(slot, size);
                    item.resize(size, 0);
                }
            }
            5 if !model.is_empty() => {
                let slot = input.below(model.len() + 1);
                let mut other = empty(Level::LEAF);
                block.items_mut().split_into(slot, &mut other);
                let tail = model.split_off(slot);
                compare_leaf(&other, &tail);
                if input.u8().is_multiple_of(2) {
                    (block, model) = (other, tail);
                }
            }
            6 if !model.is_empty() => {
                let slot = input.below(model.len());
                let new = key(&mut input);
                let after = slot.checked_sub(1).is_none_or(|before| model[before].0 < new);
                if after && model.get(slot + 1).is_none_or(|next| new < next.0) {
                    block.set_key(slot, &new);
                    model[slot].0 = new;
                }
            }
            _ if !model.is_empty() => {
                let slot = input.below(model.len());
                let byte = input.u8();
                block.items_mut().data(slot).fill(byte);
                model[slot].1.fill(byte);
            }
            _ => {}
        }
        compare_leaf(&block, &model);
    }
}

/// Inserts one item, or two that follow one another.
fn insert(block: &mut Block, model: &mut Vec<(Key, Vec<u8>)>, input: &mut Input<'_>) {
    let (first, size, byte) = (key(input), input.u16() % 700, input.u8());
    let data = vec![byte; usize::from(size)];
    let Err(slot) = block.search(&first) else { return };
    let second = Key { offset: first.offset + 9, ..first };
    let follows = model.get(slot).is_none_or(|(next, _)| second < *next);
    let mut new = vec![(first, &data[..])];
    if byte.is_multiple_of(3) && follows {
        new.push((second, &data[..data.len() / 2]));
    }
    let need: usize = new.iter().map(|(_, data)| data.len() + ITEM_HEADER_SIZE).sum();
    if need > block.free_bytes() {
        return;
    }
    block.items_mut().insert(slot, &new);
    model.splice(slot..slot, new.iter().map(|(key, data)| (*key, data.to_vec())));
}

fn compare_leaf(block: &Block, model: &[(Key, Vec<u8>)]) {
    assert_eq!(block.validate(&RULES), Ok(()));
    assert_eq!(block.len(), model.len());
    for (slot, (key, data)) in model.iter().enumerate() {
        assert_eq!((block.key(slot), block.data(slot)), (*key, &data[..]));
        assert_eq!(block.get(key), Some(&data[..]));
    }
    let used: usize = model.iter().map(|(_, data)| data.len() + ITEM_HEADER_SIZE).sum();
    assert_eq!(block.used_bytes(), used);
}

fn edit_node(mut input: Input<'_>) {
    let mut block = empty(Level(1));
    let mut model: Vec<ChildPointer> = Vec::new();
    while !input.is_empty() {
        let child = |input: &mut Input<'_>| ChildPointer {
            key: key(input),
            logical: Logical((u64::from(input.u8()) + 1) * 4096),
            generation: Generation(u64::from(input.u8() % 8)),
        };
        match input.u8() % 4 {
            0 | 1 => {
                let new = child(&mut input);
                if let Err(slot) = block.search(&new.key)
                    && block.len() < block.pointer_capacity()
                {
                    block.children_mut().insert(slot, &[new]);
                    model.insert(slot, new);
                }
            }
            2 if !model.is_empty() => {
                let slot = input.below(model.len());
                let count = input.below(model.len() - slot + 1);
                block.children_mut().remove(slot, count);
                model.drain(slot..slot + count);
            }
            _ if !model.is_empty() => {
                let slot = input.below(model.len());
                let new = ChildPointer { key: model[slot].key, ..child(&mut input) };
                block.children_mut().set(slot, &new);
                model[slot] = new;
            }
            _ => {}
        }
        assert_eq!(block.children().collect::<Vec<_>>(), model);
        assert!(model.is_empty() || block.validate(&RULES) == Ok(()));
    }
}
