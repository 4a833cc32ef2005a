//! What the file system puts into a transaction before it ends: inode items that changed without one.

use vlinder_base::sync::{Arc, Weak};
use vlinder_format::inode::InodeItem;
use vlinder_transaction::{ChangeKind, EngineError, Participant};

use crate::filesystem::Shared;
use crate::{Filesystem, FsError, Refusal};

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

/// The engine tells its own errors to whoever asked for the commit; ours are of its kinds but for refusals,
/// which nothing here can meet.
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
    /// Gives every inode item that changed outside a transaction to the running one. Items for which there is
    /// no room stay where they are, in memory, until there is: what changed there is a time, or a size that
    /// its data bring along.
    pub(crate) fn put_dirty_inodes(&self) -> crate::Result<()> {
        let mut most = BATCH;
        while !self.shared().dirty_inodes.is_empty() {
            match self.put_some_dirty_inodes(most) {
                Err(error) if error.refusal() == Some(Refusal::NoSpace) && most > 1 => most = 1,
                Err(error) if error.refusal() == Some(Refusal::NoSpace) => {
                    tracing::debug!(%error, "times of inodes wait for space");
                    return Ok(());
                }
                other => other?,
            }
        }
        Ok(())
    }

    fn put_some_dirty_inodes(&self, most: usize) -> crate::Result<()> {
        // The handle comes first: an inode that is off the list is in the transaction before that can end,
        // and one for which there is no handle stays on it.
        let mut handle =
            self.begin_accepted(ChangeKind::Attributes, u32::try_from(most).unwrap_or(u32::MAX))?;
        let batch = self.shared().dirty_inodes.take(most);
        let mut left = batch.iter();
        for inode in left.by_ref() {
            let key = InodeItem::key(inode.number());
            if let Err(error) = handle.charge_pending(inode.subvolume().tree(), &[key]) {
                for inode in std::iter::once(inode).chain(left) {
                    let counted_again = self.shared().dirty_inodes.put_back(inode);
                    self.engine().settle_awaited_items(counted_again);
                }
                return Err(error.into());
            }
            let mut state = inode.state.lock();
            if state.dirty && !state.deleted && !inode.subvolume().is_deleted() {
                inode.put(&mut handle, &mut state);
            }
            state.dirty = false;
            self.engine().settle_awaited_items(1);
        }
        Ok(())
    }
}
