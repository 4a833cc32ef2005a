use super::*;
use crate::key::Key;
use crate::types::{Generation, Level, Logical, RootId, Uuid};
use crate::validate::tests::{assert_fault, assert_sound};
use proptest::prelude::*;

const KEY: Key = RootItem::key(RootId(256), 0);

fn root() -> RootItem {
    let base = RootItemBase { address: Logical(1 << 20), reference_count: 1, ..RootItemBase::default() };
    let mut item = RootItem { base, extension: None };
    item.set_generation(Generation(7));
    item
}

#[track_caller]
fn refused(change: impl FnOnce(&mut RootItem), fault: RootItemFault) {
    let mut item = root();
    change(&mut item);
    assert_fault(&KEY, &item.encode(), None, fault);
}

proptest! {
    #[test]
    fn decode_and_encode_are_inverse(bytes in proptest::collection::vec(any::<u8>(), SIZE)) {
        prop_assert_eq!(&RootItem::decode(&bytes).unwrap().encode(), &bytes);
        let legacy = &bytes[..LEGACY_SIZE];
        prop_assert_eq!(&RootItem::decode(legacy).unwrap().encode()[..], legacy);
    }
}

#[test]
fn fields_lie_where_the_format_says() {
    let mut item = root();
    item.flags = RootFlags::READ_ONLY;
    item.level = Level(2);
    item.extension_mut().received_uuid = Uuid([9; 16]);
    let bytes = item.encode();
    assert_eq!(bytes[160..168], 7u64.to_le_bytes());
    assert_eq!(bytes[176..184], (1u64 << 20).to_le_bytes());
    assert_eq!(bytes[208..220], [1, 0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0]);
    assert_eq!(bytes[238], 2);
    assert_eq!(bytes[239..247], 7u64.to_le_bytes());
    assert_eq!(bytes[279..295], [9; 16]);
}

#[test]
fn an_extension_counts_only_when_it_is_current() {
    let mut item = root();
    item.extension_mut().uuid = Uuid([4; 16]);
    assert_eq!(item.uuid(), Uuid([4; 16]));
    // A kernel that does not know the extension changes the generation alone.
    item.generation = Generation(8);
    assert_eq!((item.uuid(), item.current_extension()), (Uuid::NIL, None));
    item.set_generation(Generation(9));
    assert_eq!(item.uuid(), Uuid::NIL);
    assert_eq!(item.current_extension().unwrap().generation, Generation(9));
    // An extension that was current stays so.
    item.extension_mut().uuid = Uuid([5; 16]);
    item.set_generation(Generation(10));
    assert_eq!(item.uuid(), Uuid([5; 16]));
}

#[test]
fn a_legacy_item_grows_when_its_generation_is_set() {
    let mut item = RootItem::decode(&root().encode()[..LEGACY_SIZE]).unwrap();
    assert_eq!((item.extension, item.uuid()), (None, Uuid::NIL));
    item.set_generation(Generation(8));
    assert_eq!(item.encode().len(), SIZE);
}

#[test]
fn roots_as_linux_writes_them_pass() {
    assert_sound(&KEY, &root().encode(), None);
    assert_sound(&KEY, &root().encode()[..LEGACY_SIZE], None);
    assert_sound(&RootItem::key(RootId::TREE_RELOCATION, 256), &root().encode(), None);
    let mut deleted = root();
    deleted.flags = RootFlags::READ_ONLY.with(RootFlags::DEAD);
    deleted.reference_count = 0;
    (deleted.level, deleted.drop_level) = (Level(7), Level(7));
    assert_sound(&KEY, &deleted.encode(), None);
    assert!(deleted.is_deleted() && deleted.is_read_only());
}

#[test]
fn keys_and_sizes_are_those_of_the_format() {
    let bytes = root().encode();
    assert_fault(&RootItem::key(RootId(0), 0), &bytes, None, RootItemFault::Number);
    for tree in [0, 7, 1 << 48] {
        let fault = RootItemFault::Relocation { found: RootId(tree) };
        assert_fault(&RootItem::key(RootId::TREE_RELOCATION, tree), &bytes, None, fault);
    }
    for found in [0, 238, 240, 438] {
        assert_fault(&KEY, &bytes[..found], None, RootItemFault::Size { found });
    }
    let long = [&bytes[..], &[0]].concat();
    assert_fault(&KEY, &long, None, RootItemFault::Size { found: 440 });
}

#[test]
fn generations_to_come_are_refused() {
    let (found, most) = (Generation(102), Generation(101));
    refused(|item| item.generation = found, RootItemFault::Generation { found, most });
    refused(
        |item| item.extension_mut().generation = found,
        RootItemFault::ExtensionGeneration { found, most },
    );
    refused(|item| item.last_snapshot = found, RootItemFault::LastSnapshot { found, most });
}

#[test]
fn addresses_levels_and_flags_that_cannot_be_are_refused() {
    let found = Logical(4095);
    refused(|item| item.address = found, RootItemFault::Address { found, sector_size: 4096 });
    refused(|item| item.level = Level(8), RootItemFault::Level { found: Level(8) });
    refused(|item| item.drop_level = Level(8), RootItemFault::DropLevel { found: Level(8) });
    let found = RootFlags(2);
    refused(|item| item.flags = found.with(RootFlags::DEAD), RootItemFault::Flags { found });
}
