//! A batch under way: files whose bytes are on their way to the devices, while nobody waits for them and no
//! lock is held.
//!
//! Who makes many files one after the other, and writes them out as it goes, would wait for the devices at
//! the end of each flush, and they for it while it makes the next files. So it leaves the last batch of a
//! flush *under way*, and enters it once the next one is: devices and whoever makes files work at the same
//! time. Not for direct writes, which wait anyway, nor for what is written in place, which keeps a
//! transaction open.
//!
//! A file system has one batch under way at most. Whoever wants to change the items of one of its files, or
//! to take bytes of it, [finishes](finish) the batch first ([`lock_settled`](super::lock_settled) does).
//! Nobody waits for that with locks of files of the batch, nor with a transaction handle. A batch that fails
//! is dirty again, so that whoever flushes next meets the error.

use vlinder_base::sync::{Arc, Mutex, MutexGuard};

use super::steps::Step;
use super::{BATCH_BYTES, Flight, Job};
use crate::data::file_data::ExtentsGuard;
use crate::inode::Inode;
use crate::{Filesystem, Result};

/// What may be under way of a file system.
#[derive(Default)]
pub(crate) struct UnderWay(Mutex<Option<Batch>>);

/// The files of a flush, with all but the last batch entered.
struct Batch {
    /// In the order of their ids.
    jobs: Vec<Job>,
    step: Step,
}

/// Flushes what is dirty of files, and leaves the last of it under way, after what was under way before is
/// finished.
///
/// # Errors
/// What either met.
pub fn flush_ahead(filesystem: &Filesystem) -> Result<()> {
    let mut files = filesystem.shared().write_back.files();
    // The others are under way, and are to stay so until more is.
    files.retain(|inode| !inode.data.unflushed().dirty.is_empty());
    super::flush_groups(&files, |group| flush_files_ahead(filesystem, group))
}

fn flush_files_ahead(filesystem: &Filesystem, group: &[&Arc<Inode>]) -> Result<()> {
    let _locks: Vec<_> = group.iter().map(|inode| super::lock_settled(filesystem, inode)).collect();
    let mut flight = Flight::take(filesystem, group);
    // All of it at once, as far as it goes: what comes before the last batch would be waited for.
    let Some(step) = flight.start(BATCH_BYTES)? else { return flight.finish() };
    let mut under_way = filesystem.shared().write_back.under_way.0.lock();
    // The devices have something to do meanwhile.
    let finished = finish_batch(filesystem, &mut under_way);
    *under_way = Some(Batch { jobs: std::mem::take(&mut flight.jobs), step });
    finished
}

/// Finishes what is under way.
///
/// # Errors
/// What writing and entering met; the bytes are dirty again.
pub(super) fn finish(filesystem: &Filesystem) -> Result<()> {
    finish_batch(filesystem, &mut filesystem.shared().write_back.under_way.0.lock())
}

fn finish_batch(filesystem: &Filesystem, under_way: &mut MutexGuard<'_, Option<Batch>>) -> Result<()> {
    let Some(Batch { jobs, step }) = under_way.take() else { return Ok(()) };
    let files: Vec<Arc<Inode>> = jobs.iter().map(|job| Arc::clone(&job.inode)).collect();
    let _locks: Vec<ExtentsGuard<'_>> = files.iter().map(|inode| inode.data.lock_extents()).collect();
    Flight { filesystem, jobs }.complete(Some(step))
}

/// As [`finish`] for the committer, who must not wait for a file whose extents somebody is changing: what is
/// under way stays so then.
///
/// # Errors
/// As [`finish`].
pub(super) fn finish_idle(filesystem: &Filesystem) -> Result<()> {
    let Some(mut under_way) = filesystem.shared().write_back.under_way.0.try_lock() else { return Ok(()) };
    let Some(batch) = under_way.take() else { return Ok(()) };
    let files: Vec<Arc<Inode>> = batch.jobs.iter().map(|job| Arc::clone(&job.inode)).collect();
    let locks: Option<Vec<ExtentsGuard<'_>>> =
        files.iter().map(|inode| inode.data.try_lock_extents()).collect();
    if locks.is_none() {
        *under_way = Some(batch);
        return Ok(());
    }
    Flight { filesystem, jobs: batch.jobs }.complete(Some(batch.step))
}

/// Finishes what is under way, for who does not care how that ends: the next flush does.
pub(super) fn settle(filesystem: &Filesystem) {
    if let Err(error) = finish(filesystem) {
        tracing::debug!(%error, "what was under way is written again");
    }
}

/// Whether some of a file is under way. Of a file whose extents or storing are locked this stays so; else it
/// may just be a flush that goes on.
pub(super) fn is_under_way(inode: &Inode) -> bool {
    inode.data.unflushed().writing.is_some()
}
