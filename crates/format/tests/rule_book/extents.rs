//! Rules of extents and of the references to them.

use vlinder_format::extent::{
    DataReference, ExtentFault, ExtentFlags, ExtentHeader, ExtentItem, Reference, TreeBlockInfo,
};
use vlinder_format::features::IncompatFeatures;
use vlinder_format::{ItemType, Key, Level, Logical, ObjectId, RootId};

use crate::book::{Book, Leaf, NOW};

const START: Logical = Logical(1 << 30);
const LENGTH: u64 = 64 << 10;
const NODE_SIZE: u32 = 16384;

fn data_reference(root: u64) -> DataReference {
    DataReference { root: RootId(root), inode: ObjectId(257), offset: 0, count: 1 }
}

/// Sorted as an item must have them.
fn item(flags: ExtentFlags, info: Option<TreeBlockInfo>, mut inline: Vec<Reference>) -> Vec<u8> {
    inline.sort_by_key(|reference| (reference.item_type(), core::cmp::Reverse(reference.sequence())));
    let references = inline.iter().map(|reference| u64::from(reference.count())).sum();
    let header = ExtentHeader { references, generation: NOW.next(), flags };
    ExtentItem { header, tree_block: info, inline }.encode()
}

/// A data extent of two users and a neighbour.
fn data() -> Leaf {
    let users = vec![
        Reference::ExtentData(data_reference(256)),
        Reference::SharedData { parent: Logical(1 << 24), count: 1 },
    ];
    let first = item(ExtentFlags::DATA, None, users);
    let second = item(ExtentFlags::DATA, None, vec![Reference::ExtentData(data_reference(5))]);
    let next = Logical(START.0 + LENGTH);
    let items =
        vec![(ExtentItem::data_key(START, LENGTH), first), (ExtentItem::data_key(next, LENGTH), second)];
    Leaf::new(RootId::EXTENT_TREE, items)
}

/// A tree block, under a metadata item or an extent item.
fn block(skinny: bool) -> Leaf {
    let info = TreeBlockInfo { first_key: Key::MIN, level: Level(1) };
    let users =
        vec![Reference::TreeBlock { root: RootId(256) }, Reference::SharedBlock { parent: Logical(1 << 24) }];
    let data = item(ExtentFlags::TREE_BLOCK, (!skinny).then_some(info), users);
    let key = ExtentItem::tree_block_key(START, Level(1), NODE_SIZE, skinny);
    Leaf::new(RootId::EXTENT_TREE, vec![(key, data)])
}

/// Where the fields of an extent item lie.
const GENERATION_AT: usize = 8;
const FLAGS_AT: usize = 16;
const INLINE_AT: usize = 24;

pub fn prove(book: &mut Book) {
    items(book);
    flags(book);
    inline(book);
    order(book);
    keyed(book);
    keyed_sizes(book);
}

fn items(book: &mut Book) {
    let (data, skinny, full) = (data(), block(true), block(false));
    book.leaf("X1", &skinny, 0, ExtentFault::SkinnyFeature, |leaf| {
        leaf.rules.features.incompat = IncompatFeatures::NONE;
    });
    for sound in [&data, &skinny, &full] {
        let fault = ExtentFault::Start { found: Logical(START.0 + 1) };
        book.leaf("X2", sound, 0, fault, |leaf| leaf.items[0].0.objectid.0 += 1);
        for found in [0, 23] {
            let fault = ExtentFault::Size { found };
            book.leaf("X4", sound, 0, fault, |leaf| leaf.items[0].1.truncate(found));
        }
        book.leaf("X4", sound, 0, ExtentFault::Ancient, |leaf| leaf.items[0].1.truncate(4));
        let newest = NOW.next();
        let fault = ExtentFault::Generation { found: newest.next(), newest };
        book.leaf("X5", sound, 0, fault, |leaf| leaf.set_u64(0, GENERATION_AT, newest.next().0));
    }
    book.passes("X3", &skinny, |leaf| leaf.items[0].0.offset = 7);
    book.leaf("X3", &skinny, 0, ExtentFault::Level { found: 8 }, |leaf| leaf.items[0].0.offset = 8);
    let fault = ExtentFault::Level { found: 8 };
    book.leaf("X3", &full, 0, fault, |leaf| leaf.items[0].1[INLINE_AT + 17] = 8);
    let fault = ExtentFault::Size { found: 41 };
    book.leaf("X4", &full, 0, fault, |leaf| leaf.items[0].1.truncate(41));
    for found in [0, 4096, 32768] {
        let fault = ExtentFault::Length { found };
        book.leaf("X7", &full, 0, fault, |leaf| leaf.items[0].0.offset = found);
    }
    for found in [0, LENGTH + 1] {
        let fault = ExtentFault::Length { found };
        book.leaf("X7", &data, 0, fault, |leaf| leaf.items[0].0.offset = found);
    }
    let fault = ExtentFault::Length { found: LENGTH };
    book.leaf("X7", &data, 1, fault, |leaf| leaf.items[1].0.objectid.0 = u64::MAX - 4095);
    let (start, previous_end) = (Logical(START.0 + LENGTH), Logical(START.0 + LENGTH + 4096));
    let fault = ExtentFault::Overlap { start, previous_end };
    book.leaf("X13", &data, 1, fault, |leaf| leaf.items[0].0.offset += 4096);
    let mut blocks = skinny.clone();
    blocks.items.push(skinny.items[0].clone());
    blocks.items[1].0.objectid.0 += u64::from(NODE_SIZE);
    let previous_end = Logical(START.0 + u64::from(NODE_SIZE));
    let start = Logical(previous_end.0 - 4096);
    let fault = ExtentFault::Overlap { start, previous_end };
    book.leaf("X13", &blocks, 1, fault, |leaf| leaf.items[1].0.objectid.0 = start.0);
}

fn flags(book: &mut Book) {
    let (data, skinny, full) = (data(), block(true), block(false));
    for sound in [&data, &skinny, &full] {
        for found in [0, 3].map(ExtentFlags) {
            let fault = ExtentFault::Flags { found };
            book.leaf("X6", sound, 0, fault, |leaf| leaf.set_u64(0, FLAGS_AT, found.0));
        }
    }
    let found = ExtentFlags::DATA.with(ExtentFlags::FULL_BACK_REFERENCE);
    book.leaf("X6", &data, 0, ExtentFault::Flags { found }, |leaf| leaf.set_u64(0, FLAGS_AT, found.0));
    let found = ExtentFlags::DATA;
    book.leaf("X6", &skinny, 0, ExtentFault::Flags { found }, |leaf| leaf.set_u64(0, FLAGS_AT, found.0));
    let both = ExtentFlags::TREE_BLOCK.with(ExtentFlags::FULL_BACK_REFERENCE);
    book.passes("X6", &skinny, |leaf| leaf.set_u64(0, FLAGS_AT, both.0));
}

/// An extent of these users.
fn of(sound: &Leaf, users: Vec<Reference>) -> impl FnOnce(&mut Leaf) {
    let is_data = sound.items[0].0.item_type == ItemType::EXTENT_ITEM;
    let flags = if is_data { ExtentFlags::DATA } else { ExtentFlags::TREE_BLOCK };
    move |leaf| leaf.items[0].1 = item(flags, None, users)
}

/// References that no item may have, inline or by themselves.
fn impossible() -> Vec<Reference> {
    let good = data_reference(256);
    vec![
        Reference::ExtentData(DataReference { root: RootId::EXTENT_TREE, ..good }),
        Reference::ExtentData(DataReference { root: RootId(1 << 48), ..good }),
        Reference::ExtentData(DataReference { inode: ObjectId(255), ..good }),
        Reference::ExtentData(DataReference { offset: 1, ..good }),
        Reference::ExtentData(DataReference { count: 0, ..good }),
        Reference::SharedData { parent: Logical(4096), count: 0 },
    ]
}

fn inline(book: &mut Book) {
    let (data, skinny) = (data(), block(true));
    let end = data.items[0].1.len();
    for (left, cut) in [(26, end - 16), (12, end - 1)] {
        book.leaf("X8", &data, 0, ExtentFault::CutOff { left }, |leaf| leaf.items[0].1.truncate(cut));
    }
    let fault = ExtentFault::CutOff { left: 8 };
    book.leaf("X8", &skinny, 0, fault, |leaf| leaf.items[0].1.truncate(INLINE_AT + 9 + 8));
    let fault = ExtentFault::UnknownReference { found: ItemType(77) };
    book.leaf("X9", &skinny, 0, fault, |leaf| leaf.items[0].1[INLINE_AT] = 77);
    for root in [RootId::FS_TREE, RootId::ROOT_TREE, RootId::DATA_RELOCATION_TREE] {
        book.passes("X10", &data, of(&data, vec![Reference::ExtentData(data_reference(root.0))]));
    }
    for found in impossible() {
        let fault = ExtentFault::DataReference { found: found.clone() };
        book.leaf("X10", &data, 0, fault, of(&data, vec![found]));
    }
    let parent = Logical(4097);
    let fault = ExtentFault::Parent { found: parent };
    book.leaf("X10", &data, 0, fault.clone(), of(&data, vec![Reference::SharedData { parent, count: 1 }]));
    book.leaf("X10", &skinny, 0, fault, of(&skinny, vec![Reference::SharedBlock { parent }]));
    let stranger = Reference::TreeBlock { root: RootId(256) };
    let fault = ExtentFault::Kind { found: ItemType::TREE_BLOCK_REF };
    book.leaf("X14", &data, 0, fault, of(&data, vec![stranger]));
    let stranger = Reference::ExtentData(data_reference(256));
    let fault = ExtentFault::Kind { found: ItemType::EXTENT_DATA_REF };
    book.leaf("X14", &skinny, 0, fault, of(&skinny, vec![stranger]));
}

fn order(book: &mut Book) {
    let skinny = block(true);
    // Two references of nine bytes each, put the other way round.
    let swap = |leaf: &mut Leaf| leaf.items[0].1[INLINE_AT..].rotate_left(9);
    let fault = ExtentFault::Order { found: ItemType::TREE_BLOCK_REF };
    book.leaf("X11", &skinny, 0, fault, swap);
    let mut twins = skinny.clone();
    let users = [Logical(2 << 24), Logical(1 << 24)].map(|parent| Reference::SharedBlock { parent });
    of(&skinny, users.to_vec())(&mut twins);
    let fault = ExtentFault::Order { found: ItemType::SHARED_BLOCK_REF };
    book.leaf("X11", &twins, 0, fault, swap);
    let fault = ExtentFault::Count { inline: 2, total: 1 };
    book.leaf("X12", &skinny, 0, fault.clone(), |leaf| leaf.set_u64(0, 0, 1));
    book.leaf("X12", &data(), 0, fault, |leaf| leaf.set_u64(0, 0, 1));
    // Further references may be items of their own.
    book.passes("X12", &skinny, |leaf| leaf.set_u64(0, 0, 3));
}

/// A leaf of one reference that is an item of its own.
fn alone(reference: &Reference) -> Leaf {
    Leaf::new(RootId::EXTENT_TREE, vec![(reference.key(START), reference.encode_item())])
}

fn kinds() -> [Reference; 4] {
    [
        Reference::TreeBlock { root: RootId(256) },
        Reference::SharedBlock { parent: Logical(4096) },
        Reference::ExtentData(data_reference(256)),
        Reference::SharedData { parent: Logical(4096), count: 1 },
    ]
}

fn keyed(book: &mut Book) {
    for reference in kinds() {
        let fault = ExtentFault::Start { found: Logical(START.0 + 1) };
        book.leaf("Y2", &alone(&reference), 0, fault, |leaf| leaf.items[0].0.objectid.0 += 1);
    }
    for reference in [&kinds()[1], &kinds()[3]] {
        let fault = ExtentFault::Parent { found: Logical(4097) };
        book.leaf("Y3", &alone(reference), 0, fault, |leaf| leaf.items[0].0.offset = 4097);
    }
    for found in impossible() {
        let sound = if found.item_type() == ItemType::EXTENT_DATA_REF { &kinds()[2] } else { &kinds()[3] };
        let fault = ExtentFault::DataReference { found: found.clone() };
        book.leaf("Y4", &alone(sound), 0, fault, |leaf| {
            leaf.items[0] = (found.key(START), found.encode_item());
        });
    }
}

fn keyed_sizes(book: &mut Book) {
    for reference in kinds() {
        let sound = alone(&reference);
        let found = sound.items[0].1.len() + 1;
        book.leaf("Y1", &sound, 0, ExtentFault::Size { found }, |leaf| leaf.items[0].1.push(0));
    }
    for reference in [&kinds()[2], &kinds()[3]] {
        let sound = alone(reference);
        let found = sound.items[0].1.len() - 1;
        book.leaf("Y1", &sound, 0, ExtentFault::Size { found }, |leaf| leaf.items[0].1.truncate(found));
    }
}
