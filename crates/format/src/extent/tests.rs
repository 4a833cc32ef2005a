use super::*;
use crate::features::{Features, IncompatFeatures};
use crate::key::{ItemType, Key};
use crate::types::{Generation, Level, Logical, ObjectId, RootId};
use crate::validate::{ItemContext, LeafRules};
use proptest::prelude::*;

const AT: Logical = Logical(1 << 20);

fn rules() -> LeafRules {
    LeafRules {
        sector_size: 4096,
        node_size: 16384,
        checksum_size: 4,
        generation: Generation(7),
        features: Features { incompat: IncompatFeatures::SKINNY_METADATA, ..Features::default() },
        writable: true,
    }
}

fn judge(key: Key, data: &[u8], previous: Option<Key>) -> Result<(), ExtentFault> {
    let previous = previous.map(|key| (key, &[][..]));
    check(&key, data, &ItemContext { rules: &rules(), owner: RootId::EXTENT_TREE, previous })
}

fn data_reference(inode: u64, count: u32) -> Reference {
    Reference::ExtentData(DataReference { root: RootId(5), inode: ObjectId(inode), offset: 4096, count })
}

fn data_item() -> ExtentItem {
    let mut item = ExtentItem::new_data(Generation(7));
    item.add(Reference::SharedData { parent: Logical(8192), count: 2 }).unwrap();
    item.add(data_reference(257, 1)).unwrap();
    item.add(data_reference(258, 3)).unwrap();
    item
}

fn metadata_item() -> ExtentItem {
    let mut item = ExtentItem::new_tree_block(Generation(7), ExtentFlags::default(), None);
    item.add(Reference::SharedBlock { parent: Logical(8192) }).unwrap();
    item.add(Reference::TreeBlock { root: RootId(5) }).unwrap();
    item.add(Reference::TreeBlock { root: RootId(300) }).unwrap();
    item
}

fn data_key() -> Key {
    ExtentItem::data_key(AT, 8192)
}

fn metadata_key() -> Key {
    ExtentItem::tree_block_key(AT, Level(1), 16384, true)
}

#[test]
fn references_are_kept_in_linuxs_order_and_counted() {
    let item = metadata_item();
    let roots = [Reference::TreeBlock { root: RootId(300) }, Reference::TreeBlock { root: RootId(5) }];
    assert_eq!(item.inline[..2], roots, "roots descend");
    assert_eq!(item.inline[2], Reference::SharedBlock { parent: Logical(8192) });
    assert_eq!(item.header.references, 3);
    let item = data_item();
    assert_eq!(item.header.references, 6);
    assert!(item.inline[0].sequence() > item.inline[1].sequence(), "hashes descend");
    assert_eq!(item.inline[2].item_type(), ItemType::SHARED_DATA_REF);
    judge(data_key(), &item.encode(), None).unwrap();
    judge(metadata_key(), &metadata_item().encode(), None).unwrap();
}

#[test]
fn counts_rise_fall_and_vanish() {
    let mut item = data_item();
    item.add(data_reference(257, 4)).unwrap();
    assert_eq!((item.inline.len(), item.header.references), (3, 10));
    item.drop_reference(&data_reference(257, 2)).unwrap();
    assert_eq!((item.inline.len(), item.header.references), (3, 8));
    item.drop_reference(&data_reference(257, 3)).unwrap();
    assert_eq!((item.inline.len(), item.header.references), (2, 5));
    let before = item.clone();
    for wanted in [data_reference(257, 1), data_reference(258, 4)] {
        assert_eq!(item.drop_reference(&wanted), Err(ExtentFault::NoSuchReference { wanted }));
    }
    assert_eq!(item, before);
}

#[test]
fn room_ends_at_a_sixteenth_of_a_leaf() {
    assert_eq!(most_item_bytes(16384), (16384 - 101) / 16 - 25);
    let mut item = ExtentItem::new_data(Generation(7));
    let mut inode = 256;
    while item.has_room_for(&data_reference(inode, 1), 16384) {
        item.add(data_reference(inode, 1)).unwrap();
        inode += 1;
    }
    assert!(item.size() < 992 && item.size() + 29 >= 992, "{}", item.size());
    assert!(item.has_room_for(&data_reference(256, 1), 16384), "a count in place needs no room");
}

#[test]
fn a_fat_tree_block_has_level_and_first_key() {
    let info = TreeBlockInfo { first_key: Key::new(ObjectId(9), ItemType::INODE_ITEM, 0), level: Level(1) };
    let mut item = ExtentItem::new_tree_block(Generation(7), ExtentFlags::default(), Some(info));
    item.add(Reference::TreeBlock { root: RootId(5) }).unwrap();
    let key = ExtentItem::tree_block_key(AT, Level(1), 16384, false);
    let bytes = item.encode();
    assert_eq!(bytes.len(), 24 + 18 + 9);
    judge(key, &bytes, None).unwrap();
    assert_eq!(ExtentItem::decode(key.item_type, &bytes), Ok(item.clone()));
    assert_eq!(ExtentItem::decode_header(&bytes), Ok(item.header));
    item.tree_block = Some(TreeBlockInfo { level: Level(8), ..info });
    assert_eq!(judge(key, &item.encode(), None), Err(ExtentFault::Level { found: 8 }));
    assert_eq!(judge(Key { offset: 4096, ..key }, &bytes, None), Err(ExtentFault::Length { found: 4096 }));
    assert_eq!(judge(key, &bytes[..41], None), Err(ExtentFault::Size { found: 41 }));
}

#[test]
fn a_block_does_not_reach_past_the_last_address() {
    let bytes = metadata_item().encode();
    let at = |start| Key { objectid: ObjectId(start), ..metadata_key() };
    judge(at(0u64.wrapping_sub(16384 + 4096)), &bytes, None).unwrap();
    let last = at(0u64.wrapping_sub(16384));
    assert_eq!(judge(last, &bytes, None), Err(ExtentFault::Length { found: 16384 }));
}

#[test]
fn each_rule_of_the_item_has_its_fault() {
    let bytes = data_item().encode();
    let skinny = LeafRules { features: Features::default(), ..rules() };
    let context = ItemContext { rules: &skinny, owner: RootId::EXTENT_TREE, previous: None };
    assert_eq!(check(&metadata_key(), &metadata_item().encode(), &context), Err(ExtentFault::SkinnyFeature));
    let odd = Key { objectid: ObjectId(5), ..data_key() };
    assert_eq!(judge(odd, &bytes, None), Err(ExtentFault::Start { found: Logical(5) }));
    let high = Key { offset: 8, ..metadata_key() };
    assert_eq!(judge(high, &metadata_item().encode(), None), Err(ExtentFault::Level { found: 8 }));
    assert_eq!(judge(data_key(), &[0; 4], None), Err(ExtentFault::Ancient));
    assert_eq!(judge(data_key(), &[0; 23], None), Err(ExtentFault::Size { found: 23 }));
    let mut item = data_item();
    item.header.generation = Generation(9);
    let fault = ExtentFault::Generation { found: Generation(9), newest: Generation(8) };
    assert_eq!(judge(data_key(), &item.encode(), None), Err(fault));
    for bits in [0, 1 << 8 | 1] {
        let mut item = data_item();
        item.header.flags = ExtentFlags(bits);
        let fault = ExtentFault::Flags { found: ExtentFlags(bits) };
        assert_eq!(judge(data_key(), &item.encode(), None), Err(fault));
    }
    let fault = ExtentFault::Flags { found: ExtentFlags::DATA };
    assert_eq!(judge(metadata_key(), &bytes, None), Err(fault));
    for found in [0, 100, u64::MAX - 4095] {
        assert_eq!(
            judge(Key { offset: found, ..data_key() }, &bytes, None),
            Err(ExtentFault::Length { found })
        );
    }
    let mut item = data_item();
    item.header.references = 5;
    assert_eq!(judge(data_key(), &item.encode(), None), Err(ExtentFault::Count { inline: 6, total: 5 }));
    let before = ExtentItem::data_key(Logical(AT.0 - 8192), 8192);
    judge(data_key(), &bytes, Some(before)).unwrap();
    let before = Key { offset: 12288, ..before };
    let fault = ExtentFault::Overlap { start: AT, previous_end: Logical(AT.0 + 4096) };
    assert_eq!(judge(data_key(), &bytes, Some(before)), Err(fault.clone()));
    let before = ExtentItem::tree_block_key(Logical(AT.0 - 12288), Level(0), 16384, true);
    assert_eq!(judge(data_key(), &bytes, Some(before)), Err(fault));
}

#[test]
fn each_rule_of_inline_references_has_its_fault() {
    let with = |change: fn(&mut ExtentItem)| {
        let mut item = data_item();
        change(&mut item);
        judge(data_key(), &item.encode(), None).unwrap_err()
    };
    assert_eq!(with(|item| item.inline.swap(0, 1)), ExtentFault::Order { found: ItemType::EXTENT_DATA_REF });
    assert_eq!(with(|item| item.inline.swap(1, 2)), ExtentFault::Order { found: ItemType::EXTENT_DATA_REF });
    let parent = with(|item| item.inline[2] = Reference::SharedData { parent: Logical(5), count: 1 });
    assert_eq!(parent, ExtentFault::Parent { found: Logical(5) });
    let found = Reference::SharedData { parent: Logical(4096), count: 0 };
    let none = with(|item| item.inline[2] = Reference::SharedData { parent: Logical(4096), count: 0 });
    assert_eq!(none, ExtentFault::DataReference { found });
    let sound = DataReference { root: RootId(5), inode: ObjectId(257), offset: 0, count: 1 };
    for odd in [
        DataReference { root: RootId(2), ..sound },
        DataReference { inode: ObjectId(5), ..sound },
        DataReference { offset: 7, ..sound },
        DataReference { count: 0, ..sound },
    ] {
        let mut item = ExtentItem::new_data(Generation(7));
        item.add(Reference::ExtentData(odd)).unwrap();
        let fault = ExtentFault::DataReference { found: Reference::ExtentData(odd) };
        assert_eq!(judge(data_key(), &item.encode(), None), Err(fault));
    }
    let kind = with(|item| item.inline = vec![Reference::TreeBlock { root: RootId(5) }]);
    assert_eq!(kind, ExtentFault::Kind { found: ItemType::TREE_BLOCK_REF });
    let mut bytes = data_item().encode();
    bytes.pop();
    assert_eq!(judge(data_key(), &bytes, None), Err(ExtentFault::CutOff { left: 12 }));
    bytes.truncate(24);
    bytes.extend_from_slice(&[180; 9]);
    assert_eq!(judge(data_key(), &bytes, None), Err(ExtentFault::UnknownReference { found: ItemType(180) }));
}

#[test]
fn references_with_items_of_their_own_keep_their_rules() {
    let references = [
        Reference::TreeBlock { root: RootId(5) },
        Reference::SharedBlock { parent: Logical(8192) },
        Reference::SharedData { parent: Logical(8192), count: 2 },
        data_reference(257, 1),
    ];
    for reference in references {
        let (key, data) = (reference.key(AT), reference.encode_item());
        check_key_reference(&key, &data, 4096).unwrap();
        assert_eq!(Reference::decode_item(&key, &data), Some(Ok(reference)));
        let long = [data.as_slice(), &[0]].concat();
        assert_eq!(check_key_reference(&key, &long, 4096), Err(ExtentFault::Size { found: long.len() }));
        let odd = Key { objectid: ObjectId(3), ..key };
        assert_eq!(check_key_reference(&odd, &data, 4096), Err(ExtentFault::Start { found: Logical(3) }));
    }
    let odd = Reference::SharedBlock { parent: Logical(5) };
    assert_eq!(check_key_reference(&odd.key(AT), &[], 4096), Err(ExtentFault::Parent { found: Logical(5) }));
    let found = data_reference(257, 0);
    let fault = check_key_reference(&found.key(AT), &found.encode_item(), 4096);
    assert_eq!(fault, Err(ExtentFault::DataReference { found }));
    assert_eq!(Reference::decode_item(&data_key(), &[]), None);
}

fn any_reference() -> impl Strategy<Value = Reference> {
    prop_oneof![
        any::<u64>().prop_map(|root| Reference::TreeBlock { root: RootId(root) }),
        any::<u64>().prop_map(|root| Reference::ExtentOwner { root: RootId(root) }),
        any::<u64>().prop_map(|parent| Reference::SharedBlock { parent: Logical(parent) }),
        (any::<u64>(), 1u32..9)
            .prop_map(|(parent, count)| Reference::SharedData { parent: Logical(parent), count }),
        (any::<u64>(), any::<u64>(), any::<u64>(), 1u32..9).prop_map(|(root, inode, offset, count)| {
            let (root, inode) = (RootId(root), ObjectId(inode));
            Reference::ExtentData(DataReference { root, inode, offset, count })
        }),
    ]
}

proptest! {
    #[test]
    fn any_bytes_decode_to_their_inverse_or_a_fault(bytes in proptest::collection::vec(any::<u8>(), 0..120), metadata: bool) {
        let item_type = if metadata { ItemType::METADATA_ITEM } else { ItemType::EXTENT_ITEM };
        if let Ok(item) = ExtentItem::decode(item_type, &bytes) {
            prop_assert_eq!(item.encode(), bytes);
        }
    }

    #[test]
    fn items_come_back_with_any_references_sorted(references in proptest::collection::vec(any_reference(), 0..12), flags: u64) {
        let mut item = ExtentItem::new_data(Generation(3));
        item.header.flags = ExtentFlags(flags & !2);
        for reference in &references {
            item.add(reference.clone()).unwrap();
        }
        prop_assert!(item.inline.windows(2).all(|pair| pair[0].order() <= pair[1].order()));
        let bytes = item.encode();
        prop_assert_eq!(bytes.len(), item.size());
        prop_assert_eq!(ExtentItem::decode(ItemType::EXTENT_ITEM, &bytes), Ok(item.clone()));
        for reference in &references {
            item.drop_reference(reference).unwrap();
        }
        prop_assert_eq!((item.header.references, item.inline.len()), (0, 0));
    }
}

#[test]
fn a_count_that_cant_grow_is_refused_and_nothing_is_changed() {
    let mut item = ExtentItem::new_data(Generation(7));
    item.add(data_reference(257, u32::MAX)).unwrap();
    let before = item.clone();
    let found = u64::from(u32::MAX);
    assert_eq!(item.add(data_reference(257, 1)), Err(ExtentFault::TooManyReferences { found }));
    assert_eq!(item, before);
    item.header.references = u64::MAX;
    let before = item.clone();
    assert_eq!(item.add(data_reference(258, 1)), Err(ExtentFault::TooManyReferences { found: u64::MAX }));
    assert_eq!(item, before);
}
