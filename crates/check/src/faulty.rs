//! Items that break a rule. Each is a finding, and what it says is not used; but it is there, so that what it
//! should say must not be called missing.

use std::collections::BTreeSet;

use vlinder_format::directory::DirectoryIndex;
use vlinder_format::{ItemType, Key, ObjectId, RootId};

/// Keys that are kept, at some 40 bytes each. Of more, what they should say is called missing too.
const MOST: usize = 100_000;

/// The keys of such items in a tree.
#[derive(Debug, Default)]
pub(crate) struct Faulty(BTreeSet<Key>);

impl Faulty {
    pub(crate) fn add(&mut self, key: Key) {
        if self.0.len() < MOST {
            self.0.insert(key);
        }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub(crate) fn has(&self, objectid: ObjectId, item_type: ItemType, offset: u64) -> bool {
        self.0.contains(&Key::new(objectid, item_type, offset))
    }

    /// Whether there is one of this type, whatever its offset.
    pub(crate) fn has_any(&self, objectid: ObjectId, item_type: ItemType) -> bool {
        let all = Key::new(objectid, item_type, 0)..=Key::new(objectid, item_type, u64::MAX);
        self.0.range(all).next().is_some()
    }

    /// Whether there is one of this type.
    pub(crate) fn has_type(&self, item_type: ItemType) -> bool {
        self.0.iter().any(|key| key.item_type == item_type)
    }

    /// Whether there is any of this object.
    pub(crate) fn has_object(&self, objectid: ObjectId) -> bool {
        let first = Key { objectid, ..Key::MIN };
        self.0.range(first..).next().is_some_and(|key| key.objectid == objectid)
    }

    /// Whether a place in a directory's index is there and says nothing.
    pub(crate) fn has_index(&self, directory: ObjectId, index: DirectoryIndex) -> bool {
        self.has(directory, ItemType::DIR_INDEX, index.0)
    }

    /// Whether a tree's root item is there and leads nowhere.
    pub(crate) fn has_root(&self, tree: RootId) -> bool {
        self.has_any(tree.object_id(), ItemType::ROOT_ITEM)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_are_found_by_their_parts_up_to_a_bound() {
        let mut faulty = Faulty::default();
        assert!(faulty.is_empty());
        for (objectid, offset) in [(7, 0), (7, u64::MAX), (9, 5)] {
            faulty.add(Key::new(ObjectId(objectid), ItemType::ROOT_ITEM, offset));
        }
        assert!(faulty.has_type(ItemType::ROOT_ITEM) && !faulty.has_type(ItemType::ROOT_REF));
        assert!(!faulty.is_empty() && faulty.has(ObjectId(9), ItemType::ROOT_ITEM, 5));
        assert!(
            !faulty.has(ObjectId(9), ItemType::ROOT_ITEM, 6)
                && !faulty.has(ObjectId(9), ItemType::ROOT_REF, 5)
        );
        for (objectid, is_there) in [(6, false), (7, true), (8, false), (9, true), (10, false)] {
            assert_eq!(faulty.has_root(RootId(objectid)), is_there, "{objectid}");
            assert_eq!(faulty.has_object(ObjectId(objectid)), is_there, "{objectid}");
            assert!(!faulty.has_any(ObjectId(objectid), ItemType::ROOT_REF));
        }
        for number in 0..=u64::try_from(MOST).unwrap() {
            faulty.add(Key::new(ObjectId(1000), ItemType::DIR_INDEX, number));
        }
        assert_eq!(faulty.0.len(), MOST);
    }
}
