//! Rules of the structure of one block.

use vlinder_format::block::{
    BLOCK_FLAG_RELOCATION, BLOCK_FLAG_WRITTEN, BlockFault, BlockIdentity, BlockRules, ChildPointer,
    HEADER_SIZE, ITEM_HEADER_SIZE, POINTER_SIZE,
};
use vlinder_format::{Block, Generation, ItemType, Key, Level, Logical, ObjectId, RootId, Uuid};

use crate::book::{AT, Book, NOW};

const SIZES: BlockRules = BlockRules { node_size: 4096, sector_size: 4096 };
/// Where the header has its fields.
const FLAGS: usize = 56;
const COUNT: usize = 96;
const LEVEL: usize = 100;

fn key(number: u64) -> Key {
    Key::new(ObjectId(number), ItemType::ORPHAN_ITEM, 0)
}

fn empty(owner: RootId, level: u8) -> Block {
    let identity = BlockIdentity {
        logical: AT,
        generation: NOW,
        owner,
        level: Level(level),
        fsid: Uuid([1; 16]),
        chunk_tree_uuid: Uuid([2; 16]),
    };
    let mut block = Block::new(SIZES.node_size, &identity);
    block.set_flag(BLOCK_FLAG_WRITTEN, true);
    block
}

/// A leaf of three items of 10 bytes.
fn leaf() -> Vec<u8> {
    let mut block = empty(RootId(256), 0);
    block.items_mut().insert(0, &[(key(1), &[1; 10]), (key(2), &[2; 10]), (key(3), &[3; 10])]);
    block.bytes().to_vec()
}

/// A node of three pointers.
fn node() -> Vec<u8> {
    let mut block = empty(RootId(256), 1);
    let child = |number: u64| ChildPointer {
        key: key(number),
        logical: Logical(number << 20),
        generation: Generation(NOW.0 - 3 + number),
    };
    block.children_mut().insert(0, &[child(1), child(2), child(3)]);
    block.bytes().to_vec()
}

/// Bytes that are sound pass; after the change the block is refused, at this slot.
#[track_caller]
fn breaks(
    book: &mut Book,
    rule: &'static str,
    sound: &[u8],
    slot: Option<u32>,
    fault: BlockFault,
    change: impl FnOnce(&mut Vec<u8>),
) {
    Block::parse(sound.into(), &SIZES).unwrap();
    let mut broken = sound.to_vec();
    change(&mut broken);
    let found = Block::parse(broken.into_boxed_slice(), &SIZES).err();
    assert_eq!(found, Some((fault.clone(), slot)), "rule {rule}");
    book.note(rule, &fault.into());
}

fn put(bytes: &mut [u8], at: usize, value: &[u8]) {
    bytes[at..at + value.len()].copy_from_slice(value);
}

/// Where the header of an item begins; its key, then where its data begin, then their size.
const fn item(slot: usize) -> usize {
    HEADER_SIZE + slot * ITEM_HEADER_SIZE
}

/// Where a pointer begins: its key, the address, the generation.
const fn pointer(slot: usize) -> usize {
    HEADER_SIZE + slot * POINTER_SIZE
}

pub fn prove(book: &mut Book) {
    both(book);
    leaves(book);
    empty_leaves(book);
    nodes(book);
}

fn both(book: &mut Book) {
    let short = BlockFault::Size { found: 4095, expected: 4096 };
    for sound in [leaf(), node()] {
        breaks(book, "B1", &sound, None, short.clone(), |bytes| bytes.truncate(4095));
        let high = BlockFault::LevelTooHigh { found: Level(8) };
        breaks(book, "B2", &sound, None, high, |bytes| bytes[LEVEL] = 8);
        breaks(book, "B3", &sound, None, BlockFault::NotWritten, |bytes| bytes[FLAGS] = 0);
    }
}

fn leaves(book: &mut Book) {
    let most = (4096 - HEADER_SIZE) / ITEM_HEADER_SIZE;
    let count = u32::try_from(most).unwrap() + 1;
    let crowded = BlockFault::EntryCount { found: count, most };
    breaks(book, "B4", &leaf(), None, crowded, |bytes| put(bytes, COUNT, &count.to_le_bytes()));
    for (slot, twin) in [(1, 1), (2, 1)] {
        let before = if slot == 1 { key(1) } else { key(2) };
        let order = BlockFault::KeyOrder { key: before, next: key(twin) };
        breaks(book, "B6", &leaf(), u32::try_from(slot).ok(), order, |bytes| {
            put(bytes, item(slot), &key(twin).encode());
        });
    }
    let smallest = BlockFault::KeyOrder { key: Key::MIN, next: Key::MIN };
    breaks(book, "B6", &leaf(), Some(0), smallest, |bytes| put(bytes, item(0), &Key::MIN.encode()));
    let (capacity, second) = (4096 - 101u32, 4096 - 101u32 - 20);
    let outside = BlockFault::DataEnd { found: u64::from(capacity) + 1, expected: capacity.into() };
    breaks(book, "B7", &leaf(), Some(0), outside, |bytes| put(bytes, item(0) + 21, &11u32.to_le_bytes()));
    let hole = BlockFault::DataEnd { found: u64::from(capacity) - 11, expected: u64::from(capacity) - 10 };
    breaks(book, "B7", &leaf(), Some(1), hole, |bytes| put(bytes, item(1) + 21, &9u32.to_le_bytes()));
    let endless = BlockFault::DataEnd {
        found: u64::from(second) + u64::from(u32::MAX),
        expected: u64::from(capacity) - 10,
    };
    breaks(book, "B7", &leaf(), Some(1), endless, |bytes| {
        put(bytes, item(1) + 21, &u32::MAX.to_le_bytes());
    });
    let over = BlockFault::DataOverHeaders { found: 74, headers_end: 75 };
    breaks(book, "B8", &leaf(), Some(2), over, |bytes| {
        put(bytes, item(2) + 17, &74u32.to_le_bytes());
        put(bytes, item(2) + 21, &(second - 74).to_le_bytes());
    });
}

fn empty_leaves(book: &mut Book) {
    let bytes = |owner| empty(owner, 0).bytes().to_vec();
    let sound = bytes(RootId(256));
    let never = [
        RootId(0),
        RootId::ROOT_TREE,
        RootId::CHUNK_TREE,
        RootId::DEVICE_TREE,
        RootId::FS_TREE,
        RootId::DATA_RELOCATION_TREE,
        RootId::EXTENT_TREE,
    ];
    for owner in never {
        breaks(book, "B5", &sound, None, BlockFault::EmptyLeaf { owner }, |changed| *changed = bytes(owner));
        // Of a relocation tree the owner says nothing.
        let mut relocated = empty(owner, 0);
        relocated.set_flag(BLOCK_FLAG_RELOCATION, true);
        Block::parse(relocated.bytes().into(), &SIZES).unwrap();
    }
    for owner in [RootId::CHECKSUM_TREE, RootId::UUID_TREE, RootId::TREE_LOG] {
        Block::parse(bytes(owner).into(), &SIZES).unwrap();
    }
}

fn nodes(book: &mut Book) {
    let most = (4096 - HEADER_SIZE) / POINTER_SIZE;
    for count in [0, u32::try_from(most).unwrap() + 1] {
        let fault = BlockFault::EntryCount { found: count, most };
        breaks(book, "B9", &node(), None, fault, |bytes| put(bytes, COUNT, &count.to_le_bytes()));
    }
    // The last pointer, which Linux does not look at, is judged like the others.
    for slot in 0..3usize {
        let place = u32::try_from(slot).ok();
        let rule = if slot == 2 { "B13" } else { "B10" };
        for found in [Logical(0), Logical(4097)] {
            breaks(book, rule, &node(), place, BlockFault::Pointer { found }, |bytes| {
                put(bytes, pointer(slot) + 17, &found.0.to_le_bytes());
            });
        }
        let newer = BlockFault::PointerGeneration { found: NOW.next(), own: NOW };
        breaks(book, "B12", &node(), place, newer, |bytes| {
            put(bytes, pointer(slot) + 25, &NOW.next().0.to_le_bytes());
        });
    }
    for (slot, before) in [(1, 1), (2, 2)] {
        let order = BlockFault::KeyOrder { key: key(before), next: key(before) };
        breaks(book, "B11", &node(), u32::try_from(slot).ok(), order, |bytes| {
            put(bytes, pointer(slot), &key(before).encode());
        });
    }
}
