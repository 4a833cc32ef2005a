//! What keeps a file system as a whole: making changes durable, freeing what was deleted, and how it fares.

use vlinder_base::sync::{Arc, Mutex};
use vlinder_data::{
    FileStore, SpaceFailure, bytes_freed_by_commit, flush_all, put_dirty_inodes, take_part_in_commits,
};
use vlinder_format::Generation;
use vlinder_transaction::Participant;

use crate::condition::Condition;
use crate::fsync_log::FsyncMetrics;
use crate::host_retry::HostRetry;
use crate::inode::table::InodeTable;
use crate::options::OpenOptions;
use crate::{FsError, Result};

/// Blocks of deleted subvolumes looked at before the background work asks whether to stop.
const CLEANED_BLOCKS: usize = 4096;

/// The work on a file system as a whole.
pub struct Maintenance {
    store: Arc<FileStore>,
    inodes: Arc<InodeTable>,
    /// Every commit takes the data of all files along.
    flush_on_commit: bool,
    host_retry: HostRetry,
    fsync: FsyncMetrics,
    /// Keeps what the engine holds only weakly.
    participant: Mutex<Option<Arc<dyn Participant>>>,
}

impl Maintenance {
    pub(crate) fn new(inodes: Arc<InodeTable>, options: &OpenOptions) -> Self {
        Self {
            store: Arc::clone(inodes.store()),
            inodes,
            flush_on_commit: options.flush_on_commit,
            host_retry: HostRetry::default(),
            fsync: FsyncMetrics::new(&options.registry),
            participant: Mutex::new(None),
        }
    }

    /// From here on, commits take along the inode items that changed outside a transaction.
    pub(crate) fn take_part(&self) {
        *self.participant.lock() = Some(take_part_in_commits(&self.store, self.flush_on_commit));
    }

    pub(crate) fn store(&self) -> &Arc<FileStore> {
        &self.store
    }

    pub(crate) fn inodes(&self) -> &InodeTable {
        &self.inodes
    }

    pub(crate) fn host_retry(&self) -> &HostRetry {
        &self.host_retry
    }

    pub(crate) fn fsync_metrics(&self) -> &FsyncMetrics {
        &self.fsync
    }

    /// Writes everything out and commits: what was done before is durable when this returns.
    ///
    /// # Errors
    /// What writing met; nothing can be said then of what was done since the last success.
    pub fn sync(&self) -> Result<Generation> {
        self.store.background().begin_commit();
        self.inodes.delete_put_off();
        // One file that finds no room must not keep all others from becoming durable.
        let flushed = flush_all(&self.store).map_err(FsError::from);
        match (flushed, self.commit()) {
            (Ok(()), Ok(generation)) => {
                self.store.engine().troubles().note_all_durable();
                Ok(generation)
            }
            (Err(error), Ok(_)) => {
                self.store.engine().note_failed_commit(&error);
                Err(error)
            }
            (Ok(()), Err(error)) => Err(error),
            (Err(flush_error), Err(error)) => Err(error.or_graver(flush_error)),
        }
    }

    /// Makes durable what is in transactions, and every inode item that changed beside them. (The commit
    /// takes those too, but one of another thread that is under way may have asked for them before they
    /// changed.)
    ///
    /// # Errors
    /// What putting them in or committing met.
    pub fn commit(&self) -> Result<Generation> {
        self.flush_if_on_commit()?;
        put_dirty_inodes(&self.store)?;
        Ok(self.store.engine().commit()?)
    }

    /// With `flushoncommit`, writes out the data of every file, also of files that another thread is writing
    /// out. A commit passes those by, because their holder may be waiting for the commit; so
    /// [`commit`](Self::commit) and snapshots come here first.
    pub(crate) fn flush_if_on_commit(&self) -> Result<()> {
        if self.flush_on_commit { Ok(flush_all(&self.store)?) } else { Ok(()) }
    }

    /// Frees some blocks of deleted subvolumes; whether there are more.
    pub(crate) fn clean_some(&self) -> Result<bool> {
        let cleaned = self.store.engine().clean(CLEANED_BLOCKS);
        Ok(cleaned.inspect_err(|error| self.store.engine().note_failed_commit(error))?)
    }

    /// Wakes the background work (freeing blocks of deleted subvolumes, the commit) before its time.
    pub fn wake_background(&self) {
        self.store.background().ask_for_commit();
    }

    /// Whether subvolumes were deleted whose blocks are not all free, but for those that are still open.
    #[must_use]
    pub fn has_deletions(&self) -> bool {
        !self.store.engine().dead_trees().is_empty()
    }

    /// Frees the blocks of every deleted subvolume that nobody has open any more, then commits.
    ///
    /// # Errors
    /// What freeing and committing met.
    pub fn finish_deletions(&self) -> Result<()> {
        while self.store.engine().clean(CLEANED_BLOCKS)? {}
        self.sync()?;
        Ok(())
    }

    /// How the file system fares now.
    #[must_use]
    pub fn condition(&self) -> Condition {
        Condition::of(&self.store)
    }

    /// Bytes that ordinary writers may still be promised, beside what was promised already. It counts nothing
    /// that only a commit would free.
    #[must_use]
    pub fn room_for_writers(&self) -> u64 {
        if self.store.engine().is_host_full() {
            return 0;
        }
        let free = self.store.engine().room_for_data();
        let promised = self.store.unflushed_bytes();
        let left = free.saturating_sub(promised.saturating_add(metadata_of(promised)));
        left.saturating_sub(metadata_of(left))
    }

    /// Bytes that the next commit frees.
    ///
    /// # Errors
    /// What learning how full the file system is met.
    pub fn bytes_freed_by_commit(&self) -> Result<u64> {
        Ok(bytes_freed_by_commit(&self.store)?)
    }
}

/// Metadata that so much data take at worst when they are flushed.
fn metadata_of(bytes: u64) -> u64 {
    bytes / 4
}
