//! Batches one after the other, each being written out while the one before it is entered: the devices and
//! the thread that flushes work at the same time.
//!
//! All files are locked, so nobody else comes in between. Items of a file are entered in the order of its
//! bytes, as ever, and no transaction handle is held from one batch to the next.

use vlinder_format::inode::InodeFlags;

use super::batch::{enter_batch, flush_in_parts};
use super::enter::Entered;
use super::file_flush::{DirtyRange, FileFlush, MAX_BATCH_BYTES, parts};
use super::pipelined_batch::{PipelinedBatch, WritesInFlight};
use super::{plan, write_out};
use crate::file_store::FileStore;
use crate::{Result, SpaceFailure};

/// A batch has at least so many bytes, if there are as many: enough to be worth a transaction of its own, and
/// little enough for several of them to be in what is flushed together.
const USUAL_BATCH_BYTES: u64 = 2 << 20;

/// How many bytes of these jobs are worth a batch, so that several are on their way one after the other.
pub(super) fn batch_bytes(store: &FileStore, jobs: &[FileFlush]) -> u64 {
    let is_compressed = |job: &FileFlush| job.node.flags().has(InodeFlags::COMPRESS);
    match store.options().compress {
        None if !jobs.iter().any(is_compressed) => USUAL_BATCH_BYTES,
        // All cores work on a batch.
        _ => MAX_BATCH_BYTES,
    }
}

/// All that there is to flush, in batches of about so many bytes.
pub(super) fn batches(jobs: &[FileFlush], batch_bytes: u64) -> Vec<Vec<DirtyRange>> {
    let mut batches: Vec<Vec<DirtyRange>> = Vec::new();
    let mut bytes = 0;
    for part in parts(jobs) {
        let length = part.range.length_bytes();
        let goes_on = bytes < batch_bytes && bytes + length <= MAX_BATCH_BYTES;
        match batches.last_mut().filter(|_| goes_on) {
            Some(batch) => {
                batch.push(part);
                bytes += length;
            }
            None => {
                batches.push(vec![part]);
                bytes = length;
            }
        }
    }
    batches
}

/// Flushes batches of the jobs, in their order. The last may be on its way to the devices still, to be
/// [finished](super::deferred::finish).
///
/// # Errors
/// The first; nothing behind that batch is entered.
pub(super) fn flush(
    store: &FileStore,
    jobs: &mut [FileFlush],
    batches: Vec<Vec<DirtyRange>>,
) -> Result<Option<PipelinedBatch>> {
    let mut before: Option<PipelinedBatch> = None;
    for batch in batches {
        if may_overwrite(jobs, &batch) {
            enter_last_batch(store, jobs, before.take())?;
            flush_in_parts(store, jobs, &batch)?;
            continue;
        }
        let started = start(store, jobs, &batch);
        match (enter_last_batch(store, jobs, before.take()), started) {
            (Ok(()), Ok(storing)) => before = Some(PipelinedBatch { batch, storing }),
            (Ok(()), Err(error)) if error.is_no_space() => {
                flush_in_parts(store, jobs, &batch)?;
            }
            (Ok(()), Err(error)) | (Err(error), Err(_)) => return Err(error),
            (Err(error), Ok(storing)) => {
                storing.abandon(store.engine());
                return Err(error);
            }
        }
    }
    Ok(before)
}

/// Whether some of it may be written in place. What is overwritten keeps a handle open until it is written,
/// and a thread that holds one must not wait for another.
fn may_overwrite(jobs: &[FileFlush], batch: &[DirtyRange]) -> bool {
    let in_place = InodeFlags::NODATACOW | InodeFlags::PREALLOC;
    batch.iter().any(|part| jobs[part.job].node.flags().has_any(in_place))
}

fn start(store: &FileStore, jobs: &mut [FileFlush], batch: &[DirtyRange]) -> Result<WritesInFlight> {
    let plan = plan::plan(store, jobs, batch)?;
    write_out::start(store, jobs, plan)
}

/// Waits for the last batch, and enters it into the trees.
///
/// # Errors
/// What writing and entering met.
pub(super) fn enter_last_batch(
    store: &FileStore,
    jobs: &mut [FileFlush],
    last_batch: Option<PipelinedBatch>,
) -> Result<()> {
    let Some(PipelinedBatch { batch, storing }) = last_batch else { return Ok(()) };
    let stored = storing.finish(store.engine())?;
    match enter_batch(store, jobs, &batch, stored) {
        Err(error) if error.is_no_space() => flush_in_parts(store, jobs, &batch),
        entered => {
            assert_eq!(entered?, Entered::Done, "what is overwritten in place is waited for");
            Ok(())
        }
    }
}
