//! The end of a subvolume's replay: how many names each touched inode has. What has none is an orphan, whose
//! deletion is left to the first look at the subvolume; a directory's names go first.

use vlinder_format::inode::{FileType, InodeItem};
use vlinder_format::inode_ref::{self, ExtendedReferences, InodeReferences};
use vlinder_format::{ItemType, ObjectId, orphan};

use super::ReplayError;
use super::directories::DirectoryReplay;
use super::logged_items::LoggedItems;
use super::subvolume::ReplayedSubvolume;

/// Counts the names of all touched inodes, and of those that are touched by that.
pub(super) fn settle<'r>(
    subvolume: &mut ReplayedSubvolume<'r, '_>,
    log: LoggedItems<'r>,
) -> Result<(), ReplayError> {
    while let Some(number) = subvolume.take_touched() {
        let mut item = subvolume.known_inode(number)?;
        let count = count_names(subvolume, number)?;
        if item.link_count != count {
            item.link_count = count;
            subvolume.put_inode(number, item)?;
        }
        if count == 0 {
            if item.file_type() == Some(FileType::Directory) {
                DirectoryReplay::new(subvolume, log).remove_all(number)?;
            }
            subvolume.put(orphan::key(number), &[])?;
        }
    }
    Ok(())
}

fn count_names(subvolume: &ReplayedSubvolume<'_, '_>, number: ObjectId) -> Result<u32, ReplayError> {
    let mut count: u32 = 0;
    let mut from = inode_ref::key(number, ObjectId(0));
    while let Some(found) = subvolume.next_item(&from)? {
        let key = found.key();
        if key.objectid != number || key.item_type > ItemType::INODE_EXTREF {
            break;
        }
        let damage = |fault| subvolume.damage(key, fault);
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
