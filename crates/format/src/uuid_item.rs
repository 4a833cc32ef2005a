//! UUID items: subvolumes by their UUID.
//!
//! Key (first half of the UUID, UUID_SUBVOLUME or UUID_RECEIVED_SUBVOLUME, second half) in the UUID tree,
//! both halves little-endian. The data are the numbers of the subvolumes, u64 each: one for a UUID of their
//! own, several where a subvolume was received more than once. Brought by Linux 3.12.

use crate::key::{ItemType, Key};
use crate::layout::{Layout, structure};
use crate::rules::ItemContext;
use crate::types::{ObjectId, RootId, Uuid};

/// Bytes of one subvolume's number.
const ENTRY_SIZE: usize = 8;

/// How a UUID item can be wrong.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum UuidItemFault {
    /// The data are no sequence of numbers.
    #[error("{found} bytes, where one or more numbers of {ENTRY_SIZE} belong")]
    Size {
        /// Bytes of the item.
        found: usize,
    },
}

/// Which UUID of a subvolume an item is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum UuidKind {
    /// The subvolume's own.
    Own,
    /// That of the subvolume that it was received from.
    Received,
}

impl UuidKind {
    const fn item_type(self) -> ItemType {
        match self {
            Self::Own => ItemType::UUID_SUBVOLUME,
            Self::Received => ItemType::UUID_RECEIVED_SUBVOLUME,
        }
    }
}

/// The key of a UUID's item.
#[must_use]
pub const fn key(kind: UuidKind, uuid: Uuid) -> Key {
    let [a, b, c, d, e, f, g, h, i, j, k, l, m, n, o, p] = uuid.0;
    let first = u64::from_le_bytes([a, b, c, d, e, f, g, h]);
    Key::new(ObjectId(first), kind.item_type(), u64::from_le_bytes([i, j, k, l, m, n, o, p]))
}

/// The UUID of a key, and which it is; none for keys of other items.
#[must_use]
pub fn uuid_of(key: &Key) -> Option<(UuidKind, Uuid)> {
    let kind =
        [UuidKind::Own, UuidKind::Received].into_iter().find(|kind| kind.item_type() == key.item_type)?;
    let [a, b, c, d, e, f, g, h] = key.objectid.0.to_le_bytes();
    let [i, j, k, l, m, n, o, p] = key.offset.to_le_bytes();
    Some((kind, Uuid([a, b, c, d, e, f, g, h, i, j, k, l, m, n, o, p])))
}

/// The subvolumes in an item, in order.
///
/// # Errors
/// [`UuidItemFault::Size`] if the data are no sequence of numbers.
pub fn decode(data: &[u8]) -> Result<impl Iterator<Item = RootId> + '_, UuidItemFault> {
    match data.as_chunks::<ENTRY_SIZE>() {
        (entries, []) => Ok(entries.iter().map(|entry| RootId(u64::from_le_bytes(*entry)))),
        _ => Err(UuidItemFault::Size { found: data.len() }),
    }
}

/// The bytes of an item of these subvolumes.
#[must_use]
pub fn encode(subvolumes: impl IntoIterator<Item = RootId>) -> Vec<u8> {
    subvolumes.into_iter().flat_map(|subvolume| subvolume.0.to_le_bytes()).collect()
}

/// Appends a subvolume to an item.
pub fn append(item: &mut Vec<u8>, subvolume: RootId) {
    item.extend_from_slice(&subvolume.0.to_le_bytes());
}

/// Removes a subvolume from an item; false if it is not there. An item without subvolumes is to be deleted.
///
/// # Errors
/// As [`decode`].
pub fn remove(item: &mut Vec<u8>, subvolume: RootId) -> Result<bool, UuidItemFault> {
    let position = decode(item)?.position(|found| found == subvolume);
    let Some(start) = position.map(|number| number.saturating_mul(ENTRY_SIZE)) else {
        return Ok(false);
    };
    item.drain(start..start.saturating_add(ENTRY_SIZE));
    Ok(true)
}

/// Checks a UUID item. Linux does so only where it reads one.
///
/// # Errors
/// The first rule that it breaks.
pub fn check(_key: &Key, data: &[u8], _context: &ItemContext<'_>) -> Result<(), UuidItemFault> {
    if data.is_empty() {
        return Err(UuidItemFault::Size { found: 0 });
    }
    decode(data).map(drop)
}

structure! {
    /// What [`decode`] reads of each subvolume.
    ENTRY: "UuidItem", 8 bytes {
        subvolume: 0, 8;
    }
}

/// The fields of an item: its subvolumes.
pub(crate) fn lay_out(layout: &mut Layout<'_>) {
    while layout.structure(ENTRY) {}
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::validate::tests::{assert_fault, assert_sound};
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn decode_and_encode_are_inverse(numbers in proptest::collection::vec(any::<u64>(), 0..40)) {
            let bytes: Vec<u8> = numbers.iter().flat_map(|number| number.to_le_bytes()).collect();
            prop_assert_eq!(encode(decode(&bytes).unwrap()), bytes);
        }

        #[test]
        fn a_key_gives_its_uuid_back(bytes in any::<[u8; 16]>()) {
            for kind in [UuidKind::Own, UuidKind::Received] {
                prop_assert_eq!(uuid_of(&key(kind, Uuid(bytes))), Some((kind, Uuid(bytes))));
            }
        }
    }

    #[test]
    fn subvolumes_are_appended_and_removed() {
        let mut item = encode([RootId(256), RootId(300)]);
        append(&mut item, RootId(400));
        assert_eq!(remove(&mut item, RootId(300)), Ok(true));
        assert_eq!(remove(&mut item, RootId(300)), Ok(false));
        assert_eq!(decode(&item).unwrap().collect::<Vec<_>>(), [RootId(256), RootId(400)]);
    }

    #[test]
    fn an_item_holds_whole_numbers() {
        let key = key(UuidKind::Own, Uuid([3; 16]));
        assert_eq!(key.objectid, ObjectId(0x0303_0303_0303_0303));
        assert_sound(&key, &[1; 16], None);
        for found in [0, 7, 12] {
            assert_fault(&key, &vec![1; found], None, UuidItemFault::Size { found });
        }
    }
}
