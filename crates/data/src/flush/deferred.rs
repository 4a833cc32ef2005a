//! A batch under way: files whose bytes are on their way to the devices, while nobody waits for them and no
//! lock is held.
//!
//! A program that makes many files one after the other, and writes them out as it goes, would wait for the
//! devices at the end of each flush, and the devices for it while it makes the next files. So it leaves the
//! last batch of a flush *under way* ([`flush_ahead`](super::flush_ahead)), and enters it once the next one
//! is: devices and the maker of files work at the same time. Not for direct writes, which wait anyway, nor
//! for what is written in place, which keeps a transaction open.
//!
//! A file system has one batch under way at most. A thread that wants to change the items of one of its
//! files, or to take bytes of it, [finishes](finish) the batch first ([`lock_settled`](super::lock_settled)
//! does). Nobody waits for that with locks of files of the batch, nor with a transaction handle. A batch that
//! fails is dirty again, so that the next flush meets the error.

use vlinder_base::sync::{Arc, MutexGuard};

use super::deferred_batch::DeferredFiles;
use super::run::FlushRun;
use crate::Result;
use crate::file_data::ExtentsGuard;
use crate::file_node::FileNode;
use crate::file_store::FileStore;

/// Finishes what is under way.
///
/// # Errors
/// What writing and entering met; the bytes are dirty again.
pub(super) fn finish(store: &FileStore) -> Result<()> {
    finish_batch(store, &mut store.write_back().under_way.0.lock())
}

pub(super) fn finish_batch(
    store: &FileStore,
    under_way: &mut MutexGuard<'_, Option<DeferredFiles>>,
) -> Result<()> {
    let Some(DeferredFiles { jobs, step }) = under_way.take() else { return Ok(()) };
    let files: Vec<Arc<FileNode>> = jobs.iter().map(|job| Arc::clone(&job.node)).collect();
    let _locks: Vec<ExtentsGuard<'_>> = files.iter().map(|node| node.data().lock_extents()).collect();
    FlushRun { store, jobs }.enter_and_settle(Some(step))
}

/// As [`finish`] for the committer, who must not wait for a file whose extents somebody is changing: what is
/// under way stays so then.
///
/// # Errors
/// As [`finish`].
pub(super) fn finish_idle(store: &FileStore) -> Result<()> {
    let Some(mut under_way) = store.write_back().under_way.0.try_lock() else { return Ok(()) };
    let Some(batch) = under_way.take() else { return Ok(()) };
    let files: Vec<Arc<FileNode>> = batch.jobs.iter().map(|job| Arc::clone(&job.node)).collect();
    let locks: Option<Vec<ExtentsGuard<'_>>> =
        files.iter().map(|node| node.data().try_lock_extents()).collect();
    if locks.is_none() {
        *under_way = Some(batch);
        return Ok(());
    }
    FlushRun { store, jobs: batch.jobs }.enter_and_settle(Some(batch.step))
}

/// Finishes what is under way, for who does not care how that ends: the next flush does.
pub(super) fn settle(store: &FileStore) {
    if let Err(error) = finish(store) {
        tracing::debug!(%error, "what was under way is written again");
    }
}

/// Whether some of a file is under way. Of a file whose extents or storing are locked this stays so; else it
/// may just be a flush that goes on.
pub(super) fn is_under_way(node: &FileNode) -> bool {
    node.data().unflushed().writing.is_some()
}
