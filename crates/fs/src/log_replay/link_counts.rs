//! The end of a subvolume's replay: how many names each touched inode has. What has none is an orphan, whose
//! deletion is left to the first look at the subvolume; a directory's names go first.

use vlinder_format::inode::{FileType, InodeItem};
use vlinder_format::inode_ref::{self, ExtendedReferences, InodeReferences};
use vlinder_format::{ItemType, ObjectId, orphan};

use super::ReplayError;
use super::target::Target;

impl Target<'_, '_> {
    /// Counts the names of all touched inodes, and of those that are touched by that.
    pub(super) fn settle_link_counts(&mut self) -> Result<(), ReplayError> {
        while let Some(number) = self.touched.pop_last() {
            let mut item = self.known_inode(number)?;
            let count = self.count_names(number)?;
            if item.link_count != count {
                item.link_count = count;
                self.put_inode(number, item)?;
            }
            if count == 0 {
                if item.file_type() == Some(FileType::Directory) {
                    self.remove_all_names(number)?;
                }
                self.put(orphan::key(number), &[])?;
            }
        }
        Ok(())
    }

    fn count_names(&self, number: ObjectId) -> Result<u32, ReplayError> {
        let mut count: u32 = 0;
        let mut from = inode_ref::key(number, ObjectId(0));
        while let Some(found) = self.next_item(&from)? {
            let key = found.key();
            if key.objectid != number || key.item_type > ItemType::INODE_EXTREF {
                break;
            }
            let damage = |fault| self.damage(key, fault);
            if key.item_type == ItemType::INODE_EXTREF {
                for name in ExtendedReferences::new(found.data()) {
                    name.map_err(damage)?;
                    count = count.saturating_add(1);
                }
            } else {
                for name in InodeReferences::new(found.data()) {
                    name.map_err(damage)?;
                    count = count.saturating_add(1);
                }
            }
            match key.next() {
                Some(next) => from = next,
                None => break,
            }
        }
        debug_assert!(from > InodeItem::key(number));
        Ok(count)
    }
}
