//! What the file system puts into a transaction before it ends: inode items that changed without one.

use vlinder_base::sync::{Arc, Weak};
use vlinder_transaction::{EngineError, Participant};

use crate::filesystem::Shared;
use crate::{Filesystem, FsError};

/// Inodes put in with one handle.
const BATCH: usize = 64;

struct DirtyInodes {
    shared: Weak<Shared>,
}

/// Registers with the engine; the value lives as long as the file system.
pub(crate) fn register(filesystem: &Filesystem) -> Arc<dyn Participant> {
    let participant: Arc<dyn Participant> =
        Arc::new(DirtyInodes { shared: Arc::downgrade(filesystem.shared()) });
    filesystem.engine().register(Arc::downgrade(&participant));
    participant
}

impl Participant for DirtyInodes {
    fn before_commit(&self) -> Result<(), EngineError> {
        let Some(shared) = self.shared.upgrade() else { return Ok(()) };
        let filesystem = Filesystem::from_shared(shared);
        let flushed =
            if filesystem.options().flush_on_commit { crate::data::flush_idle(&filesystem) } else { Ok(()) };
        // One file that cannot be flushed keeps no inode from the commit.
        let put = filesystem.put_dirty_inodes();
        flushed.and(put).map_err(into_engine)
    }
}

/// The engine tells its own errors to whoever asked for the commit; ours are of its kinds but for refusals, which
/// nothing here can meet.
pub(crate) fn into_engine(error: FsError) -> EngineError {
    match error {
        FsError::Engine(error) => error,
        FsError::Tree(error) => error.into(),
        FsError::Damage(error) => error.into(),
        FsError::Volume(error) => error.into(),
        other => EngineError::Participant(Box::new(other)),
    }
}

impl Filesystem {
    /// Gives every inode item that changed outside a transaction to the running one.
    pub(crate) fn put_dirty_inodes(&self) -> crate::Result<()> {
        while !self.shared().dirty_inodes.is_empty() {
            // The handle comes first: an inode that is off the list is in the transaction before that can end, and one
            // for which there is no handle stays on it.
            // Their room is owed since they changed (`await_items`), and still is while they are pending.
            let mut handle = self.begin_deletion(0)?;
            let batch = self.shared().dirty_inodes.take(BATCH);
            for inode in &batch {
                let mut state = inode.state.lock();
                if state.dirty && !state.deleted && !inode.subvolume().is_deleted() {
                    inode.put(&mut handle, &mut state);
                }
                state.dirty = false;
            }
            self.engine().settle_awaited_items(u64::try_from(batch.len()).unwrap_or(u64::MAX));
        }
        Ok(())
    }
}
