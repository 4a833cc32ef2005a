//! Attributes: those that were removed, and those that the log holds.

use vlinder_data::{COMPRESSION_NAME, CompressionProperty};
use vlinder_format::directory::{self, DirectoryEntries};
use vlinder_format::{ItemType, Key, ObjectId};

use super::ReplayError;
use super::logged_items::LoggedItems;
use super::subvolume::ReplayedSubvolume;

/// Brings the attributes of a log into the subvolume.
pub(super) struct AttributeReplay<'s, 'r, 'a> {
    subvolume: &'s mut ReplayedSubvolume<'r, 'a>,
    log: LoggedItems<'r>,
}

impl<'s, 'r, 'a> AttributeReplay<'s, 'r, 'a> {
    pub(super) fn new(subvolume: &'s mut ReplayedSubvolume<'r, 'a>, log: LoggedItems<'r>) -> Self {
        Self { subvolume, log }
    }
}

impl AttributeReplay<'_, '_, '_> {
    /// Attributes take the place of what there is, one item at a time.
    pub(super) fn replay(&mut self, key: Key, data: &[u8]) -> Result<(), ReplayError> {
        let property =
            directory::find(data, COMPRESSION_NAME).map_err(|fault| self.log.damage(key, fault))?;
        let value = property.and_then(|property| CompressionProperty::parse(property.data));
        if let Some(CompressionProperty::Algorithm(algorithm)) = value {
            self.subvolume.note_compression(algorithm);
        }
        self.subvolume.put(key, data)
    }

    /// A log that holds an inode holds all its attributes: others were removed.
    pub(super) fn remove_unlogged(&mut self, number: ObjectId) -> Result<(), ReplayError> {
        let mut from = Key::new(number, ItemType::XATTR_ITEM, 0);
        while let Some(found) = self.subvolume.next_item(&from)? {
            let key = found.key();
            if key.objectid != number || key.item_type != ItemType::XATTR_ITEM {
                break;
            }
            let mut rest = found.data().to_vec();
            for entry in DirectoryEntries::new(found.data()) {
                let name = entry.map_err(|fault| self.subvolume.damage(key, fault))?.name;
                if !self.log.has_entry(&key, name)? {
                    directory::remove(&mut rest, name).map_err(|fault| self.subvolume.damage(key, fault))?;
                }
            }
            if rest != found.data() {
                self.subvolume.put_rest(key, &rest)?;
            }
            match key.next() {
                Some(next) => from = next,
                None => break,
            }
        }
        Ok(())
    }
}
