//! What file data put into a transaction before it ends: inode items that changed without one.

use vlinder_base::sync::{Arc, Weak};
use vlinder_format::inode::InodeItem;
use vlinder_transaction::{ChangeKind, EngineError, Participant, Reservation};

use crate::begin::begin_unnoted;
use crate::file_store::FileStore;
use crate::{Result, SpaceFailure, flush};

/// Inodes put in with one handle.
const BATCH: usize = 64;

struct DirtyInodes {
    store: Weak<FileStore>,
    /// With `flushoncommit`, the data of files go along.
    flush_on_commit: bool,
}

/// Registers with the engine, so that each commit takes the inode items that changed without a transaction.
/// The caller keeps the value as long as the file system is open.
pub fn take_part_in_commits(store: &Arc<FileStore>, flush_on_commit: bool) -> Arc<dyn Participant> {
    let participant: Arc<dyn Participant> =
        Arc::new(DirtyInodes { store: Arc::downgrade(store), flush_on_commit });
    store.engine().register(Arc::downgrade(&participant));
    participant
}

impl Participant for DirtyInodes {
    fn before_commit(&self) -> Result<(), EngineError> {
        let Some(store) = self.store.upgrade() else { return Ok(()) };
        let flushed = if self.flush_on_commit { flush::flush_idle(&store) } else { Ok(()) };
        // One file that cannot be flushed keeps no inode from the commit.
        let put = put_dirty_inodes(&store);
        flushed.and(put).map_err(Into::into)
    }
}

/// Gives every inode item that changed outside a transaction to the running one. Items for which there is no
/// room stay where they are, in memory, until there is: what changed there is a time, or a size that its data
/// bring along.
///
/// # Errors
/// What beginning a transaction met, or reading where the items lie; but for a lack of room.
pub fn put_dirty_inodes(store: &FileStore) -> Result<()> {
    let mut most = BATCH;
    while !store.dirty().is_empty() {
        match put_some(store, most) {
            Err(error) if error.is_no_space() && most > 1 => most = 1,
            Err(error) if error.is_no_space() => {
                tracing::debug!(%error, "times of inodes wait for space");
                return Ok(());
            }
            other => other?,
        }
    }
    Ok(())
}

fn put_some(store: &FileStore, most: usize) -> Result<()> {
    // The handle comes first: an inode that is off the list is in the transaction before that can end, and
    // one for which there is no handle stays on it.
    let items = u32::try_from(most).unwrap_or(u32::MAX);
    // A change of an item was noted when it was made; an access time is not, and waits for a commit.
    let mut handle = begin_unnoted(store, Reservation::accepted(items).of(ChangeKind::Attributes))?;
    let batch = store.dirty().take(most);
    let mut left = batch.iter();
    for node in left.by_ref() {
        let key = InodeItem::key(node.number());
        if let Err(error) = handle.charge_pending(node.tree(), &[key]) {
            for node in std::iter::once(node).chain(left) {
                let counted_again = store.dirty().put_back(node);
                store.engine().awaited_items().release(counted_again);
            }
            return Err(error.into());
        }
        let mut state = node.state();
        if state.dirty && !state.deleted && !node.files().is_deleted() {
            node.put(&mut handle, &mut state);
        }
        state.dirty = false;
        store.engine().awaited_items().release(1);
    }
    Ok(())
}
