use super::*;
use crate::inode::InodeItem;
use crate::key::{ItemType, Key};
use crate::types::{Generation, ObjectId, RootId};
use crate::validate::tests::{RULES, assert_fault, assert_sound, check_in_subvolume};
use crate::validate::{ItemContext, check_item};
use proptest::prelude::*;
use vlinder_codec::name_hash::name_hash;

const DIRECTORY: ObjectId = ObjectId(256);

fn entry(name: &[u8]) -> DirectoryEntry<'_> {
    DirectoryEntry {
        location: InodeItem::key(ObjectId(257)),
        transaction: Generation(7),
        entry_type: DirectoryEntryType::REGULAR,
        name,
        data: &[],
    }
}

fn encoded(entries: &[DirectoryEntry<'_>]) -> Vec<u8> {
    let mut item = Vec::new();
    for entry in entries {
        entry.append_to(&mut item);
    }
    item
}

#[track_caller]
fn refused(entry: &DirectoryEntry<'_>, fault: DirectoryFault) {
    assert_fault(&item_key(DIRECTORY, entry.name), &entry.encode(), None, fault);
}

#[track_caller]
fn attribute_refused(entry: &DirectoryEntry<'_>, fault: DirectoryFault) {
    assert_fault(&attribute_key(DIRECTORY, entry.name), &entry.encode(), None, fault);
}

proptest! {
    #[test]
    fn whatever_is_read_is_written_back(bytes in proptest::collection::vec(any::<u8>(), 0..300)) {
        let mut item = Vec::new();
        let mut entries = DirectoryEntries::new(&bytes);
        while let Some(Ok(entry)) = entries.next() {
            entry.append_to(&mut item);
        }
        prop_assert!(bytes.starts_with(&item));
        prop_assert!(entries.next().is_none());
    }

    #[test]
    fn entries_come_back_in_order(
        headers in proptest::collection::vec(any::<[u8; 25]>(), 0..8),
        names in proptest::collection::vec(proptest::collection::vec(any::<u8>(), 0..40), 8),
        types in proptest::collection::vec(any::<u8>(), 8),
    ) {
        // Arbitrary headers with lengths that fit: 25 bytes before the two lengths, one after.
        let mut bytes = Vec::new();
        for ((header, name), entry_type) in headers.iter().zip(&names).zip(&types) {
            bytes.extend_from_slice(header);
            bytes.extend_from_slice(&3u16.to_le_bytes());
            bytes.extend_from_slice(&u16::try_from(name.len()).unwrap().to_le_bytes());
            bytes.push(*entry_type);
            bytes.extend_from_slice(name);
            bytes.extend_from_slice(b"abc");
        }
        let entries: Vec<DirectoryEntry<'_>> = DirectoryEntries::new(&bytes).map(Result::unwrap).collect();
        prop_assert_eq!(entries.len(), headers.len());
        prop_assert_eq!(encoded(&entries), bytes);
    }

    #[test]
    fn the_rules_never_panic(bytes in proptest::collection::vec(any::<u8>(), 0..300), item_type in 0u8..255) {
        let _ = check_in_subvolume(&Key::new(DIRECTORY, ItemType(item_type), 3), &bytes, None);
    }
}

#[test]
fn fields_lie_where_the_format_says() {
    let bytes = DirectoryEntry { data: b"xyz", ..entry(b"ab") }.encode();
    assert_eq!(bytes[..17], InodeItem::key(ObjectId(257)).encode());
    assert_eq!(bytes[17..30], [7, 0, 0, 0, 0, 0, 0, 0, 3, 0, 2, 0, 1]);
    assert_eq!(&bytes[30..], b"abxyz");
}

#[test]
fn keys_have_the_hashes_that_linux_gives() {
    // From `btrfs inspect-internal dump-tree`: the root tree's directory has "default" under this offset.
    assert_eq!(item_key(ObjectId::ROOT_TREE_DIRECTORY, b"default").offset, 2_378_154_706);
    assert_eq!(index_key(DIRECTORY, DirectoryIndex(9)), Key::new(DIRECTORY, ItemType::DIR_INDEX, 9));
}

#[test]
fn an_entry_is_found_and_removed_among_others() {
    let mut item = encoded(&[entry(b"one"), entry(b"two"), entry(b"three")]);
    assert_eq!(find(&item, b"two"), Ok(Some(entry(b"two"))));
    assert_eq!(find(&item, b"tw"), Ok(None));
    assert_eq!(remove(&mut item, b"two"), Ok(true));
    assert_eq!(remove(&mut item, b"two"), Ok(false));
    assert_eq!(item, encoded(&[entry(b"one"), entry(b"three")]));
    assert_eq!(remove(&mut item, b"one"), Ok(true));
    assert_eq!(remove(&mut item, b"three"), Ok(true));
    assert!(item.is_empty());
    item.extend_from_slice(&[0; 29]);
    assert_eq!(remove(&mut item, b"one"), Err(DirectoryFault::Header { found: 29 }));
}

#[test]
fn decoding_takes_one_entry() {
    let one = entry(b"one").encode();
    assert_eq!(DirectoryEntry::decode(&one), Ok(entry(b"one")));
    let two = encoded(&[entry(b"one"), entry(b"two")]);
    assert_eq!(DirectoryEntry::decode(&two), Err(DirectoryFault::EntryCount { trailing: 33 }));
}

#[test]
fn entries_as_linux_writes_them_pass() {
    let file = entry(b"name");
    assert_sound(&item_key(DIRECTORY, b"name"), &file.encode(), Some((InodeItem::key(DIRECTORY), &[])));
    assert_sound(&index_key(DIRECTORY, DirectoryIndex(2)), &file.encode(), None);
    let location = Key::new(ObjectId(300), ItemType::ROOT_ITEM, u64::MAX);
    let subvolume =
        DirectoryEntry { location, entry_type: DirectoryEntryType::DIRECTORY, ..entry(b"snapshot") };
    assert_sound(&item_key(DIRECTORY, b"snapshot"), &subvolume.encode(), None);
    let value = vec![1; largest_entry_bytes(RULES.node_size) - 9];
    let attribute = DirectoryEntry::attribute(b"user.mime", &value, Generation(7));
    assert_sound(&attribute_key(DIRECTORY, b"user.mime"), &attribute.encode(), None);
    assert_sound(
        &attribute_key(DIRECTORY, b"user.e"),
        &DirectoryEntry::attribute(b"user.e", b"", Generation(0)).encode(),
        None,
    );
}

#[test]
fn entries_that_leave_the_item_are_refused() {
    let key = item_key(DIRECTORY, b"name");
    assert_fault(&key, &[], None, DirectoryFault::Empty);
    let mut bytes = entry(b"name").encode();
    assert_fault(&key, &bytes[..29], None, DirectoryFault::Header { found: 29 });
    assert_fault(&key, &bytes[..33], None, DirectoryFault::Entry { name_len: 4, data_len: 0, available: 3 });
    bytes[25] = 1;
    assert_fault(&key, &bytes, None, DirectoryFault::Entry { name_len: 4, data_len: 1, available: 4 });
    bytes[25] = 0;
    bytes.push(0);
    assert_fault(&key, &bytes, None, DirectoryFault::Header { found: 1 });
}

#[test]
fn an_index_has_one_entry() {
    let item = encoded(&[entry(b"one"), entry(b"two")]);
    assert_fault(
        &index_key(DIRECTORY, DirectoryIndex(2)),
        &item,
        None,
        DirectoryFault::EntryCount { trailing: 33 },
    );
}

#[test]
fn entries_follow_their_inode_in_subvolumes_only() {
    let (key, bytes) = (item_key(DIRECTORY, b"name"), entry(b"name").encode());
    let previous = Some((InodeItem::key(ObjectId(255)), &[][..]));
    assert_fault(&key, &bytes, previous, DirectoryFault::MissingInode { found: ObjectId(255) });
    for owner in [RootId::ROOT_TREE, RootId::TREE_LOG] {
        assert_eq!(check_item(&key, &bytes, &ItemContext { rules: &RULES, owner, previous }), Ok(()));
    }
}

#[test]
fn locations_that_no_name_has_are_refused() {
    let at = |objectid, item_type, offset| Key::new(ObjectId(objectid), item_type, offset);
    for found in [at(5, ItemType::INODE_ITEM, 0), at(257, ItemType::INODE_ITEM, 1)] {
        refused(&DirectoryEntry { location: found, ..entry(b"name") }, DirectoryFault::Location { found });
    }
    for root in [0, 7, 255, 1 << 48, u64::MAX - 7] {
        let location = at(root, ItemType::ROOT_ITEM, u64::MAX);
        refused(
            &DirectoryEntry { location, ..entry(b"name") },
            DirectoryFault::LocationRoot { found: RootId(root) },
        );
    }
    for found in [ItemType(0), ItemType::EXTENT_DATA] {
        let location = at(257, found, 0);
        refused(&DirectoryEntry { location, ..entry(b"name") }, DirectoryFault::LocationType { found });
    }
    let found = at(257, ItemType::INODE_ITEM, 0);
    let attribute =
        DirectoryEntry { location: found, ..DirectoryEntry::attribute(b"user.a", b"1", Generation(7)) };
    attribute_refused(&attribute, DirectoryFault::Location { found });
}

#[test]
fn types_fit_their_key() {
    for value in [0, 9, 0x81] {
        let found = DirectoryEntryType(value);
        refused(
            &DirectoryEntry { entry_type: found, ..entry(b"name") },
            DirectoryFault::UnknownType { found },
        );
    }
    let found = DirectoryEntryType::EXTENDED_ATTRIBUTE;
    let fault = DirectoryFault::TypeOfKey { found, key_type: ItemType::DIR_ITEM };
    refused(&DirectoryEntry { entry_type: found, ..entry(b"name") }, fault);
    let found = DirectoryEntryType::REGULAR;
    let fault = DirectoryFault::TypeOfKey { found, key_type: ItemType::XATTR_ITEM };
    attribute_refused(&DirectoryEntry { location: Key::MIN, ..entry(b"user.a") }, fault);
}

#[test]
fn names_and_data_have_limits() {
    refused(&entry(b""), DirectoryFault::EmptyName);
    refused(&entry(&[b'x'; 256]), DirectoryFault::NameLength { found: 256 });
    refused(&DirectoryEntry { data: b"12", ..entry(b"name") }, DirectoryFault::Data { found: 2 });
    let most = 16384 - 101 - 25 - 30;
    let value = vec![1; most - 5];
    let fault = DirectoryFault::EntryLength { found: most + 1, most };
    attribute_refused(&DirectoryEntry::attribute(b"user.a", &value, Generation(7)), fault);
}

#[test]
fn names_have_the_hash_of_their_key() {
    let (found, expected) = (name_hash(b"name"), name_hash(b"other"));
    let fault = DirectoryFault::Hash { found, expected };
    assert_fault(&item_key(DIRECTORY, b"other"), &entry(b"name").encode(), None, fault);
    let (found, expected) = (name_hash(b"user.a"), name_hash(b"user.b"));
    let attribute = DirectoryEntry::attribute(b"user.a", b"1", Generation(7));
    let fault = DirectoryFault::Hash { found, expected };
    assert_fault(&attribute_key(DIRECTORY, b"user.b"), &attribute.encode(), None, fault);
}

#[test]
fn names_that_a_host_would_misread_are_told_apart() {
    for name in [&b""[..], b".", b"..", b"a/b", b"a\0b", &[b'x'; 256]] {
        assert!(!is_file_name(name), "{name:?}");
    }
    for name in [&b"..."[..], b"a", &[b'x'; 255], &[0xff, 0xfe]] {
        assert!(is_file_name(name), "{name:?}");
    }
}

#[test]
fn file_types_and_entry_types_match() {
    for value in 1..=7 {
        let entry_type = DirectoryEntryType(value);
        assert_eq!(DirectoryEntryType::from(entry_type.file_type().unwrap()), entry_type);
    }
    assert_eq!(DirectoryEntryType::EXTENDED_ATTRIBUTE.file_type(), None);
}

#[test]
fn what_an_entry_has_no_field_for_is_refused() {
    let long = vec![b'x'; 65536];
    for entry in [entry(&long), DirectoryEntry { data: &long, ..entry(b"") }] {
        let refused = std::panic::catch_unwind(|| entry.encode()).unwrap_err();
        assert_eq!(*refused.downcast::<String>().unwrap(), "a directory entry of 65566 bytes");
    }
}
