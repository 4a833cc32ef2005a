//! Rules of roots, and of the items that Linux does not look at before it uses them.

use vlinder_format::balance::{BalanceFault, BalanceItem};
use vlinder_format::device_replace::{DeviceReplace, DeviceReplaceFault};
use vlinder_format::device_statistics::{DeviceStatistics, DeviceStatisticsFault};
use vlinder_format::directory::DirectoryIndex;
use vlinder_format::log::{DirectoryLogRange, LogFault};
use vlinder_format::orphan::{self, OrphanFault};
use vlinder_format::quota::{
    QuotaFault, QuotaGroupId, QuotaGroupInfo, QuotaGroupLimit, QuotaStatus, relation_key,
};
use vlinder_format::root_item::{RootFlags, RootItem, RootItemExtension, RootItemFault};
use vlinder_format::root_ref::{RootReference, RootReferenceFault};
use vlinder_format::uuid_item::{self, UuidItemFault, UuidKind};
use vlinder_format::verity::{VerityDescriptor, VerityFault};
use vlinder_format::{DeviceId, Generation, ItemType, Key, Level, Logical, ObjectId, RootId, Uuid};

use crate::book::{Book, Leaf, NOW};

const NEWEST: Generation = NOW.next();
const FUTURE: Generation = NEWEST.next();

pub fn prove(book: &mut Book) {
    roots(book);
    root_fields(book);
    root_references(book);
    orphans_and_uuids(book);
    quotas(book);
    devices_and_balance(book);
    verity(book);
    logs(book);
}

fn one(tree: RootId, key: Key, data: Vec<u8>) -> Leaf {
    Leaf::new(tree, vec![(key, data)])
}

/// A root item with one change.
fn root(change: impl FnOnce(&mut RootItem)) -> Vec<u8> {
    let mut item = RootItem {
        extension: Some(RootItemExtension { generation: NEWEST, ..RootItemExtension::default() }),
        ..RootItem::default()
    };
    item.generation = NEWEST;
    item.last_snapshot = NEWEST;
    item.address = Logical(1 << 24);
    item.level = Level(7);
    item.drop_level = Level(7);
    item.flags = RootFlags::KNOWN;
    change(&mut item);
    item.encode()
}

fn roots(book: &mut Book) {
    let sound = one(RootId::ROOT_TREE, RootItem::key(RootId(256), 0), root(|_| ()));
    for found in [238, 240, 438, 440] {
        let fault = RootItemFault::Size { found };
        book.leaf("O2", &sound, 0, fault, |leaf| leaf.items[0].1.resize(found, 0));
    }
    book.passes("O2", &sound, |leaf| leaf.items[0].1.truncate(239));
    book.leaf("O1", &sound, 0, RootItemFault::Number, |leaf| leaf.items[0].0.objectid = ObjectId(0));
    let relocation =
        |of: RootId| move |leaf: &mut Leaf| leaf.items[0].0 = RootItem::key(RootId::TREE_RELOCATION, of.0);
    book.passes("O1", &sound, relocation(RootId::FS_TREE));
    for found in [RootId(0), RootId::EXTENT_TREE, RootId(1 << 48)] {
        book.leaf("O1", &sound, 0, RootItemFault::Relocation { found }, relocation(found));
    }
}

fn root_fields(book: &mut Book) {
    let sound = one(RootId::ROOT_TREE, RootItem::key(RootId(256), 0), root(|_| ()));
    let changed = |change: fn(&mut RootItem)| move |leaf: &mut Leaf| leaf.items[0].1 = root(change);
    let fault = RootItemFault::Generation { found: FUTURE, most: NEWEST };
    book.leaf("O3", &sound, 0, fault, changed(|item| item.generation = FUTURE));
    let fault = RootItemFault::ExtensionGeneration { found: FUTURE, most: NEWEST };
    book.leaf("O3", &sound, 0, fault, changed(|item| item.extension_mut().generation = FUTURE));
    let fault = RootItemFault::LastSnapshot { found: FUTURE, most: NEWEST };
    book.leaf("O3", &sound, 0, fault, changed(|item| item.last_snapshot = FUTURE));
    let fault = RootItemFault::Address { found: Logical(4097), sector_size: 4096 };
    book.leaf("O4", &sound, 0, fault, changed(|item| item.address = Logical(4097)));
    let fault = RootItemFault::Level { found: Level(8) };
    book.leaf("O5", &sound, 0, fault, changed(|item| item.level = Level(8)));
    let fault = RootItemFault::DropLevel { found: Level(8) };
    book.leaf("O5", &sound, 0, fault, changed(|item| item.drop_level = Level(8)));
    let fault = RootItemFault::Flags { found: RootFlags(2) };
    book.leaf("O6", &sound, 0, fault, changed(|item| item.flags.0 |= 2));
}

fn root_references(book: &mut Book) {
    let data =
        |name: &[u8]| RootReference { directory: ObjectId(256), index: DirectoryIndex(2), name }.encode();
    for key in [
        RootReference::forward_key(RootId::FS_TREE, RootId(256)),
        RootReference::backward_key(RootId(256), RootId::FS_TREE),
    ] {
        let sound = one(RootId::ROOT_TREE, key, data(b"name"));
        let fault = RootReferenceFault::Header { found: 17 };
        book.leaf("O7", &sound, 0, fault, |leaf| leaf.items[0].1.truncate(17));
        for found in [3, 5] {
            let fault = RootReferenceFault::Name { found, expected: 4 };
            book.leaf("O7", &sound, 0, fault, |leaf| leaf.items[0].1.resize(18 + found, b'x'));
        }
        book.passes("O8", &sound, |leaf| leaf.items[0].1 = data(&[b'x'; 255]));
        for found in [0, 256] {
            let fault = RootReferenceFault::NameLength { found };
            book.leaf("O8", &sound, 0, fault, |leaf| leaf.items[0].1 = data(&vec![b'x'; found]));
        }
    }
}

fn orphans_and_uuids(book: &mut Book) {
    let sound = one(RootId(256), orphan::key(ObjectId(300)), vec![]);
    let fault = OrphanFault::KeyObject { found: ObjectId(256) };
    book.leaf("Z1", &sound, 0, fault, |leaf| leaf.items[0].0.objectid = ObjectId(256));
    book.leaf("Z1", &sound, 0, OrphanFault::Size { found: 1 }, |leaf| leaf.items[0].1.push(0));
    for kind in [UuidKind::Own, UuidKind::Received] {
        let sound = one(RootId::UUID_TREE, uuid_item::key(kind, Uuid([3; 16])), vec![1; 16]);
        for found in [0, 7, 15] {
            let fault = UuidItemFault::Size { found };
            book.leaf("Z2", &sound, 0, fault, |leaf| leaf.items[0].1.truncate(found));
        }
    }
}

fn quotas(book: &mut Book) {
    let group = QuotaGroupId(256);
    let keys = [QuotaStatus::KEY, QuotaGroupInfo::key(group), QuotaGroupLimit::key(group)];
    for key in keys {
        let sound = one(RootId::QUOTA_TREE, key, vec![0; 40]);
        for found in [0, 39, 41] {
            let fault = QuotaFault::Size { item_type: key.item_type, found, expected: 40 };
            book.leaf("Z3", &sound, 0, fault, |leaf| leaf.items[0].1.resize(found, 0));
        }
        let found = Key { objectid: ObjectId(1), ..key };
        book.leaf("Z3", &sound, 0, QuotaFault::Key { found }, |leaf| leaf.items[0].0 = found);
    }
    let sound = one(RootId::QUOTA_TREE, QuotaStatus::KEY, vec![0; 40]);
    book.passes("Z3", &sound, |leaf| leaf.items[0].1.truncate(32));
    let found = Key { offset: 1, ..QuotaStatus::KEY };
    book.leaf("Z3", &sound, 0, QuotaFault::Key { found }, |leaf| leaf.items[0].0 = found);
    let sound = one(RootId::QUOTA_TREE, relation_key(group, QuotaGroupId(1 << 48)), vec![]);
    let item_type = ItemType::QUOTA_GROUP_RELATION;
    let fault = QuotaFault::Size { item_type, found: 1, expected: 0 };
    book.leaf("Z4", &sound, 0, fault, |leaf| leaf.items[0].1.push(0));
    let found = relation_key(group, group);
    book.leaf("Z4", &sound, 0, QuotaFault::Key { found }, |leaf| leaf.items[0].0 = found);
}

fn devices_and_balance(book: &mut Book) {
    let sound = one(RootId::DEVICE_TREE, DeviceStatistics::key(DeviceId(1)), vec![0; 40]);
    book.passes("Z5", &sound, |leaf| leaf.items[0].1.truncate(16));
    book.passes("Z5", &sound, |leaf| leaf.items[0].1.resize(48, 0));
    let fault = DeviceStatisticsFault::Size { found: 39 };
    book.leaf("Z5", &sound, 0, fault, |leaf| leaf.items[0].1.truncate(39));
    let sound = one(RootId::DEVICE_TREE, DeviceReplace::KEY, vec![0; 72]);
    for found in [71, 73] {
        let fault = DeviceReplaceFault::Size { found };
        book.leaf("Z6", &sound, 0, fault, |leaf| leaf.items[0].1.resize(found, 0));
    }
    let sound = one(RootId::ROOT_TREE, BalanceItem::KEY, vec![0; 448]);
    for found in [447, 449] {
        let fault = BalanceFault::Size { found };
        book.leaf("Z7", &sound, 0, fault, |leaf| leaf.items[0].1.resize(found, 0));
    }
}

fn verity(book: &mut Book) {
    let head = VerityDescriptor::key(ObjectId(257));
    let sound = one(RootId(256), head, vec![0; 25]);
    for found in [24, 26] {
        let fault = VerityFault::Size { found };
        book.leaf("Z8", &sound, 0, fault, |leaf| leaf.items[0].1.resize(found, 0));
    }
    for key in [Key { offset: 1, ..head }, Key::new(ObjectId(257), ItemType::VERITY_MERKLE_ITEM, 0)] {
        let sound = one(RootId(256), key, vec![7; 2048]);
        book.leaf("Z9", &sound, 0, VerityFault::EmptyPiece, |leaf| leaf.items[0].1.clear());
        let position = u64::MAX - 2047;
        let fault = VerityFault::End { found: 2048, position };
        book.leaf("Z9", &sound, 0, fault, |leaf| leaf.items[0].0.offset = position);
    }
}

fn logs(book: &mut Book) {
    let (first, last) = (DirectoryIndex(5), DirectoryIndex(4));
    for item_type in [ItemType::DIR_LOG_INDEX, ItemType::DIR_LOG_ITEM] {
        let key = Key { item_type, ..DirectoryLogRange::key(ObjectId(256), first) };
        let sound = one(RootId::TREE_LOG, key, DirectoryLogRange { last: first }.encode().to_vec());
        for found in [7, 9] {
            let fault = LogFault::Size { found };
            book.leaf("Z10", &sound, 0, fault, |leaf| leaf.items[0].1.resize(found, 0));
        }
        book.leaf("Z11", &sound, 0, LogFault::Range { first, last }, |leaf| {
            leaf.items[0].1 = DirectoryLogRange { last }.encode().to_vec();
        });
    }
}
