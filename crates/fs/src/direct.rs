//! Writing past the memory of a file: what is written is on the devices when the call returns.

use std::borrow::Cow;

use vlinder_base::sync::Arc;

use crate::file::{FileChange, FileContent};
use crate::inode::Inode;
use crate::write_lock::lock_for_write;
use crate::write_origin::WriteOrigin;
use crate::{Caller, Result};

impl FileContent<'_> {
    /// Writes parts of a file as [`write_file`](Self::write_file) does each, and has them on the devices when
    /// it returns: a write with `O_DIRECT`. They are not durable by that: the devices may hold them in a
    /// cache, and no commit has the extents yet ([`sync_inode`](crate::Maintenance::sync_inode)).
    ///
    /// Parts of any alignment are taken, in the order given. Callers that write to one file at once share
    /// what is expensive: while one of them waits for the devices, what the others bring gathers, and one of
    /// these writes it all.
    ///
    /// # Errors
    /// As [`write_file`](Self::write_file), and what the devices met. Some of the parts may be written then,
    /// or be in memory, where the next flush tries again.
    pub fn write_file_direct(
        &self,
        caller: &Caller,
        inode: &Arc<Inode>,
        parts: &[(u64, &[u8])],
        origin: WriteOrigin,
    ) -> Result<FileChange> {
        self.maintenance().check_host_room()?;
        let operation = lock_for_write(self.store(), self.rights(), caller, inode, parts, origin)?;
        let change = if operation.is_shared() {
            self.write_inside_locked(caller, inode, parts, origin)?
        } else {
            let mut change = FileChange::default();
            for (offset, data) in parts {
                let written = self.write_locked(caller, inode, *offset, Cow::Borrowed(data), origin)?;
                change.length_bytes += written.length_bytes;
                change.mode_changed |= written.mode_changed;
            }
            change
        };
        drop(operation);
        vlinder_data::store_dirty(self.store(), inode.node())?;
        Ok(change)
    }
}
