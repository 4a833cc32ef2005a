//! Orphans: inodes and subvolumes that await deletion.
//!
//! Key (-5, ORPHAN_ITEM, inode) in a subvolume tree for an inode without names that is still open or not yet
//! freed, (-5, ORPHAN_ITEM, subvolume) in the root tree for a deleted subvolume whose blocks are not yet
//! freed. No data.

use crate::key::{ItemType, Key};
use crate::rules::ItemContext;
use crate::types::ObjectId;

/// How an orphan item can be wrong.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum OrphanFault {
    /// The item has data.
    #[error("{found} bytes of data, where an orphan has none")]
    Size {
        /// Bytes of the item.
        found: usize,
    },
    /// The key's object id is not that of orphans.
    #[error("an orphan under object {found} instead of {}", ObjectId::ORPHAN)]
    KeyObject {
        /// In the key.
        found: ObjectId,
    },
}

/// The key that says that an inode or subvolume is an orphan.
#[must_use]
pub const fn key(orphan: ObjectId) -> Key {
    Key::new(ObjectId::ORPHAN, ItemType::ORPHAN_ITEM, orphan.0)
}

/// The inode or subvolume that an orphan's key names; none for other keys.
#[must_use]
pub fn orphan_of(key: &Key) -> Option<ObjectId> {
    (key.objectid == ObjectId::ORPHAN && key.item_type == ItemType::ORPHAN_ITEM)
        .then_some(ObjectId(key.offset))
}

/// Checks an orphan item. Linux does not.
///
/// # Errors
/// The first rule that it breaks.
pub fn check(key: &Key, data: &[u8], _context: &ItemContext<'_>) -> Result<(), OrphanFault> {
    if key.objectid != ObjectId::ORPHAN {
        return Err(OrphanFault::KeyObject { found: key.objectid });
    }
    if !data.is_empty() {
        return Err(OrphanFault::Size { found: data.len() });
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::validate::tests::{assert_fault, assert_sound};

    #[test]
    fn an_orphan_is_a_key_alone() {
        let sound = key(ObjectId(300));
        assert_eq!(orphan_of(&sound), Some(ObjectId(300)));
        assert_eq!(orphan_of(&Key::new(ObjectId::ORPHAN, ItemType::INODE_ITEM, 300)), None);
        assert_sound(&sound, &[], None);
        assert_fault(&sound, &[0], None, OrphanFault::Size { found: 1 });
        let found = ObjectId(256);
        assert_fault(
            &Key::new(found, ItemType::ORPHAN_ITEM, 300),
            &[],
            None,
            OrphanFault::KeyObject { found },
        );
    }
}
