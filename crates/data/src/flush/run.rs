//! A flush of some files on its way: their dirty bytes taken, written out and entered, or given back.

use vlinder_base::sync::Arc;
use vlinder_extent_state::ByteRange;
use vlinder_format::inode::InodeFlags;
use vlinder_transaction::ReservedData;

use super::file_flush::{DirtyRange, FileFlush, parts};
use super::pipelined_batch::PipelinedBatch;
use super::steps;
use crate::file_data::{DELALLOC, FileData};
use crate::file_node::FileNode;
use crate::file_store::FileStore;
use crate::runs::Runs;
use crate::unflushed::Unflushed;
use crate::{DataError, Result};

/// Jobs under way. However that ends, by a panic too, each is finished: bytes that were left as being written
/// would never be again, and every later flush would call the file clean.
pub(super) struct FlushRun<'a> {
    pub(super) store: &'a FileStore,
    pub(super) jobs: Vec<FileFlush>,
}

impl<'a> FlushRun<'a> {
    /// Takes what is dirty of files whose extents are locked.
    pub(super) fn take(store: &'a FileStore, files: &[&Arc<FileNode>]) -> Self {
        Self { store, jobs: files.iter().filter_map(|node| take(store, node)).collect() }
    }

    pub(super) fn run(mut self) -> Result<()> {
        let batch_bytes = steps::batch_bytes(self.store, &self.jobs);
        let last_batch = self.start(batch_bytes)?;
        self.enter_and_settle(last_batch)
    }

    /// Flushes all but the last of its batches of about so many bytes, which is on its way to the devices
    /// still.
    pub(super) fn start(&mut self, batch_bytes: u64) -> Result<Option<PipelinedBatch>> {
        if self.jobs.is_empty() {
            return Ok(None);
        }
        let metrics = &self.store.write_back().metrics;
        metrics.flushes.increment();
        let _timer = metrics.flush_time.time();
        let batches = steps::batches(&self.jobs, batch_bytes);
        let started = steps::flush(self.store, &mut self.jobs, batches);
        started.or_else(|error| self.settle_jobs().and(Err(error)))
    }

    /// Waits for the last batch and enters it into the trees. Then settles each job, whatever came of it:
    /// bytes that were entered are clean, the rest is dirty again.
    pub(super) fn enter_and_settle(mut self, last_batch: Option<PipelinedBatch>) -> Result<()> {
        let result = steps::enter_last_batch(self.store, &mut self.jobs, last_batch);
        result.and(self.settle_jobs())
    }

    pub(super) fn settle_jobs(&mut self) -> Result<()> {
        let jobs = std::mem::take(&mut self.jobs);
        jobs.iter().map(|job| settle_job(self.store, job)).fold(Ok(()), Result::and)
    }
}

impl Drop for FlushRun<'_> {
    fn drop(&mut self) {
        if let Err(error) = self.settle_jobs() {
            tracing::error!(%error, "a flush that was broken off can't be finished");
        }
    }
}

/// Takes what is dirty of a file.
fn take(store: &FileStore, node: &Arc<FileNode>) -> Option<FileFlush> {
    // Both at once: bytes behind a size that was read before they came would be on disk with nobody to grow
    // the file.
    let state = node.state();
    let mut unflushed = node.data().unflushed();
    let size = state.item.size_bytes;
    if unflushed.dirty.is_empty() || state.deleted {
        drop((unflushed, state));
        store.write_back().remove_if_clean(node);
        return None;
    }
    let runs = Arc::new(std::mem::take(&mut unflushed.dirty));
    unflushed.dirty_since = None;
    unflushed.is_held = false;
    debug_assert!(
        unflushed.promised.bytes >= runs.bytes()
            || state.item.flags.has_any(InodeFlags::NODATACOW | InodeFlags::PREALLOC),
        "{}: of {} dirty bytes {} have a promise",
        node.id(),
        runs.bytes(),
        unflushed.promised.bytes
    );
    unflushed.writing_promised = std::mem::take(&mut unflushed.promised);
    unflushed.writing = Some(Arc::clone(&runs));
    Some(FileFlush { node: Arc::clone(node), runs, size, incompressible: false, done_to: 0, placed_bytes: 0 })
}

/// Ends the writing of a file: bytes that were entered are clean, the rest is dirty again, and the space that
/// is not needed any more is given back.
fn settle_job(store: &FileStore, job: &FileFlush) -> Result<()> {
    let write_back = store.write_back();
    let data = job.node.data();
    let settled;
    let cleared = {
        let mut unflushed = data.unflushed();
        let before = unflushed.bytes();
        unflushed.writing = None;
        let promised = std::mem::take(&mut unflushed.writing_promised);
        if job.runs.end().is_some_and(|end| job.done_to < end) {
            let mut rest = Runs::clone(&job.runs);
            rest.remove(ByteRange::new(0, job.done_to).unwrap_or_default());
            unflushed.dirty.put_below(&rest);
            // What was not needed of the promise is given back with the next flush.
            settled = ReservedData::written(promised.bytes.min(job.placed_bytes), 0);
            let mut left = promised;
            left -= settled;
            unflushed.promised += left;
            unflushed.is_held = true;
            unflushed.dirty_since.get_or_insert_with(|| store.engine().clock().monotonic());
        } else {
            settled = promised;
        }
        write_back.account_change(before, unflushed.bytes());
        clear_states(data, &unflushed, &parts(std::slice::from_ref(job)))
    };
    store.engine().reservations().unreserve_data(settled, job.placed_bytes);
    write_back.remove_if_clean(&job.node);
    cleared
}

/// Clears the states of what is not in memory any more.
pub(super) fn clear_states(data: &FileData, unflushed: &Unflushed, parts: &[DirtyRange]) -> Result<()> {
    let Some(states) = data.states_if_any() else { return Ok(()) };
    for clean in parts.iter().flat_map(|part| unflushed.gaps(part.range)) {
        states.clear(clean, DELALLOC).map_err(DataError::State)?;
    }
    Ok(())
}
