//! What must hold of an inode item (kernel: `check_inode_item`, `check_inode_key`).

use super::fault::InodeFault;
use super::flags::InodeFlags;
use super::item::InodeItem;
use super::mode::Mode;
use crate::key::Key;
use crate::rules::ItemContext;
use crate::types::ObjectId;

/// Whether an object id may be that of an inode: a free number, the root tree's directory, or the remnant of
/// the inode cache.
pub(crate) fn is_inode_number(number: ObjectId) -> bool {
    (number >= ObjectId::FIRST_FREE && number <= ObjectId::LAST_FREE)
        || number == ObjectId::ROOT_TREE_DIRECTORY
        || number == ObjectId::FREE_INODE
}

/// Checks an inode item.
///
/// # Errors
/// The first rule that it breaks.
pub fn check(key: &Key, data: &[u8], context: &ItemContext<'_>) -> Result<(), InodeFault> {
    if !is_inode_number(key.objectid) {
        return Err(InodeFault::Number { found: key.objectid });
    }
    if key.offset != 0 {
        return Err(InodeFault::KeyOffset { found: key.offset });
    }
    let inode = InodeItem::decode(data)?;
    let most = context.rules.newest_generation();
    if inode.generation > most {
        return Err(InodeFault::Generation { found: inode.generation, most });
    }
    if inode.transaction > most {
        return Err(InodeFault::Transaction { found: inode.transaction, most });
    }
    if inode.mode.0 & !(Mode::TYPE_MASK | Mode::PERMISSION_MASK) != 0 {
        return Err(InodeFault::ModeBits { found: inode.mode });
    }
    if inode.file_type().is_none() {
        return Err(InodeFault::FileType { found: inode.mode });
    }
    if inode.mode.is_directory() && inode.link_count > 1 {
        return Err(InodeFault::DirectoryLinks { found: inode.link_count });
    }
    // Sizes of directories are only advisory, and an old bug of Linux let them wrap below zero.
    if !inode.mode.is_directory() && inode.size_bytes > i64::MAX.unsigned_abs() {
        return Err(InodeFault::FileSize { found: inode.size_bytes });
    }
    let found = inode.flags.unknown_incompatible();
    if found != InodeFlags::NONE {
        return Err(InodeFault::IncompatibleFlags { found });
    }
    let found = inode.flags.unknown_read_only();
    if context.rules.writable && found != InodeFlags::NONE {
        return Err(InodeFault::ReadOnlyFlags { found });
    }
    Ok(())
}
