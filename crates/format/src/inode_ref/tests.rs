use super::*;
use crate::directory::DirectoryIndex;
use crate::inode::InodeItem;
use crate::types::ObjectId;
use crate::validate::tests::{assert_fault, assert_sound};
use proptest::prelude::*;

const INODE: ObjectId = ObjectId(257);
const PARENT: ObjectId = ObjectId(256);

fn reference(name: &[u8]) -> InodeReference<'_> {
    InodeReference { index: DirectoryIndex(5), name }
}

fn extended(name: &[u8]) -> ExtendedReference<'_> {
    ExtendedReference { parent: PARENT, index: DirectoryIndex(5), name }
}

proptest! {
    #[test]
    fn references_come_back_as_they_were(names in proptest::collection::vec(proptest::collection::vec(any::<u8>(), 0..50), 0..8), index: u64, parent: u64) {
        let (mut item, mut extended_item) = (Vec::new(), Vec::new());
        for name in &names {
            InodeReference { index: DirectoryIndex(index), name }.append_to(&mut item);
            ExtendedReference { parent: ObjectId(parent), index: DirectoryIndex(index), name }.append_to(&mut extended_item);
        }
        let found: Vec<_> = InodeReferences::new(&item).map(|entry| entry.unwrap().name.to_vec()).collect();
        prop_assert_eq!(&found, &names);
        let found: Vec<_> = ExtendedReferences::new(&extended_item).map(Result::unwrap).collect();
        prop_assert_eq!(found.len(), names.len());
        for (entry, name) in found.iter().zip(&names) {
            prop_assert_eq!(entry, &ExtendedReference { parent: ObjectId(parent), index: DirectoryIndex(index), name });
        }
    }

    #[test]
    fn whatever_is_read_is_written_back(bytes in proptest::collection::vec(any::<u8>(), 0..300)) {
        let mut item = Vec::new();
        InodeReferences::new(&bytes).map_while(Result::ok).for_each(|entry| entry.append_to(&mut item));
        prop_assert!(bytes.starts_with(&item));
        let mut item = Vec::new();
        ExtendedReferences::new(&bytes).map_while(Result::ok).for_each(|entry| entry.append_to(&mut item));
        prop_assert!(bytes.starts_with(&item));
    }
}

#[test]
fn fields_lie_where_the_format_says() {
    assert_eq!(reference(b"ab").encode(), [5, 0, 0, 0, 0, 0, 0, 0, 2, 0, b'a', b'b']);
    let bytes = extended(b"ab").encode();
    assert_eq!(bytes, [0, 1, 0, 0, 0, 0, 0, 0, 5, 0, 0, 0, 0, 0, 0, 0, 2, 0, b'a', b'b']);
}

#[test]
fn names_are_found_and_removed_among_others() {
    let mut item = Vec::new();
    [b"one", b"two"].into_iter().for_each(|name| reference(name).append_to(&mut item));
    assert_eq!(find(&item, b"two"), Ok(Some(reference(b"two"))));
    assert_eq!(remove(&mut item, b"one"), Ok(true));
    assert_eq!(remove(&mut item, b"one"), Ok(false));
    assert_eq!(item, reference(b"two").encode());

    let mut item = extended(b"one").encode();
    ExtendedReference { parent: ObjectId(300), ..extended(b"one") }.append_to(&mut item);
    assert_eq!(find_extended(&item, ObjectId(300), b"one").unwrap().unwrap().parent, ObjectId(300));
    assert_eq!(find_extended(&item, ObjectId(300), b"two"), Ok(None));
    assert_eq!(find_extended(&item, ObjectId(301), b"one"), Ok(None));
    assert_eq!(remove_extended(&mut item, ObjectId(301), b"one"), Ok(false));
    assert_eq!(remove_extended(&mut item, PARENT, b"one"), Ok(true));
    assert_eq!(item[0..2], 300u16.to_le_bytes());
    item.pop();
    let fault = InodeReferenceFault::Name { found: 3, available: 2 };
    assert_eq!(remove_extended(&mut item, PARENT, b"one"), Err(fault));
}

#[test]
fn references_stay_inside_their_item() {
    let key = key(INODE, PARENT);
    let mut bytes = reference(b"name").encode();
    assert_sound(&key, &bytes, Some((InodeItem::key(INODE), &[])));
    assert_fault(&key, &bytes[..10], None, InodeReferenceFault::Empty { found: 10 });
    assert_fault(&key, &bytes[..13], None, InodeReferenceFault::Name { found: 4, available: 3 });
    bytes.extend_from_slice(&[0; 9]);
    assert_fault(&key, &bytes, None, InodeReferenceFault::Header { found: 9 });

    let key = extended_key(INODE, PARENT, b"name");
    let mut bytes = extended(b"name").encode();
    assert_sound(&key, &bytes, None);
    assert_fault(&key, &bytes[..18], None, InodeReferenceFault::Empty { found: 18 });
    assert_fault(&key, &bytes[..21], None, InodeReferenceFault::Name { found: 4, available: 3 });
    bytes.extend_from_slice(&[0; 17]);
    assert_fault(&key, &bytes, None, InodeReferenceFault::Header { found: 17 });
}

#[test]
fn names_have_a_length() {
    let mut item = reference(b"name").encode();
    reference(b"").append_to(&mut item);
    assert_fault(&key(INODE, PARENT), &item, None, InodeReferenceFault::NameLength { found: 0 });
    let long = reference(&[b'x'; 256]).encode();
    assert_fault(&key(INODE, PARENT), &long, None, InodeReferenceFault::NameLength { found: 256 });
    assert_sound(&key(INODE, PARENT), &reference(&[b'x'; 255]).encode(), None);
    let long = extended(&[b'x'; 256]).encode();
    assert_fault(
        &extended_key(INODE, PARENT, b"x"),
        &long,
        None,
        InodeReferenceFault::NameLength { found: 256 },
    );
}

#[test]
fn references_follow_their_inode() {
    let previous = Some((InodeItem::key(PARENT), &[][..]));
    let fault = InodeReferenceFault::MissingInode { found: PARENT };
    assert_fault(&key(INODE, PARENT), &reference(b"a").encode(), previous, fault.clone());
    assert_fault(&extended_key(INODE, PARENT, b"a"), &extended(b"a").encode(), previous, fault);
}
