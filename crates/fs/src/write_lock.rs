//! Which writers of a file may go side by side.

use vlinder_base::sync::{RwLockReadGuard, RwLockWriteGuard};
use vlinder_data::FileStore;
use vlinder_format::inode::{FileType, InodeFlags};

use crate::inode::Inode;
use crate::permission::Rights;
use crate::write_origin::WriteOrigin;
use crate::{Caller, Result};

/// The right to write to a file: [`Inode::operation`], shared or exclusive.
pub(crate) struct WriteGuard<'a> {
    shared: Option<RwLockReadGuard<'a, ()>>,
    _alone: Option<RwLockWriteGuard<'a, ()>>,
}

impl WriteGuard<'_> {
    /// Whether others may write to the file meanwhile: all parts are whole sectors inside it, with
    /// copy-on-write, and nothing but data changes.
    pub(crate) fn is_shared(&self) -> bool {
        self.shared.is_some()
    }
}

/// Locks a file for a write of these parts. Whole sectors inside the file get there in one step each,
/// whatever others read and write meanwhile, so such writers share the lock with readers, who may be
/// waiting for a device. Who changes the size, a part of a sector, bytes that lie where they will be
/// written, or privileges, is alone. (Linux tells direct writes apart in the same way, in
/// `btrfs_direct_write`.)
///
/// # Errors
/// What reading the file's attributes met.
pub(crate) fn lock_for_write<'a>(
    store: &FileStore,
    rights: &Rights,
    caller: &Caller,
    inode: &'a Inode,
    parts: &[(u64, &[u8])],
    origin: WriteOrigin,
) -> Result<WriteGuard<'a>> {
    if is_inside(store.sector_size(), inode, parts) {
        let shared = inode.operation.read();
        // The caller that was alone before may have cut the file.
        if is_inside(store.sector_size(), inode, parts) && changes_data_only(rights, caller, inode, origin)? {
            return Ok(WriteGuard { shared: Some(shared), _alone: None });
        }
    }
    Ok(WriteGuard { shared: None, _alone: Some(inode.operation.write()) })
}

/// Whether the parts are whole sectors inside the file.
fn is_inside(sector_size: u32, inode: &Inode, parts: &[(u64, &[u8])]) -> bool {
    let (size, sector_size) = (inode.size(), u64::from(sector_size));
    parts.iter().all(|(start, data)| {
        let end = start.checked_add(data.len() as u64).filter(|end| *end <= size);
        end.is_some_and(|end| start % sector_size == 0 && end % sector_size == 0)
    })
}

fn changes_data_only(rights: &Rights, caller: &Caller, inode: &Inode, origin: WriteOrigin) -> Result<bool> {
    let overwrites = inode.flags().has_any(InodeFlags::NODATACOW | InodeFlags::PREALLOC);
    if inode.file_type() != FileType::Regular || overwrites {
        return Ok(false);
    }
    Ok(origin.keeps_privileges() || rights.privileges_to_drop(caller, inode)?.is_none())
}
