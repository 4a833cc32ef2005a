//! Batches one after the other, each being stored while the one before it is entered: the devices and whoever
//! flushes work at the same time.
//!
//! All files are locked, so nobody else comes in between. Items of a file are entered in the order of its
//! bytes, as ever, and no transaction handle is held from one batch to the next.

use vlinder_format::inode::InodeFlags;

use super::enter::Entered;
use super::store::{self, Storing};
use super::{BATCH_BYTES, Job, Part, enter_batch, flush_in_parts, parts, plan};
use crate::{Filesystem, Refusal, Result};

/// A batch has at least so many bytes, if there are as many: enough to be worth a transaction of its own, and
/// little enough for several of them to be in what is flushed together.
const STEP_BYTES: u64 = 2 << 20;

/// A batch on its way to the devices.
pub(super) struct Step {
    batch: Vec<Part>,
    storing: Storing,
}

/// How many bytes of these jobs are worth a batch, so that several are on their way one after the other.
pub(super) fn step_bytes(filesystem: &Filesystem, jobs: &[Job]) -> u64 {
    let is_compressed = |job: &Job| job.inode.flags().has(InodeFlags::COMPRESS);
    match filesystem.options().compress {
        None if !jobs.iter().any(is_compressed) => STEP_BYTES,
        // All cores work on a batch.
        _ => BATCH_BYTES,
    }
}

/// All that there is to flush, in batches of about so many bytes.
pub(super) fn batches(jobs: &[Job], step_bytes: u64) -> Vec<Vec<Part>> {
    let mut batches: Vec<Vec<Part>> = Vec::new();
    let mut bytes = 0;
    for part in parts(jobs) {
        let length = part.range.length_bytes();
        let goes_on = bytes < step_bytes && bytes + length <= BATCH_BYTES;
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
/// [finished](finish).
///
/// # Errors
/// The first; nothing behind that batch is entered.
pub(super) fn flush(
    filesystem: &Filesystem,
    jobs: &mut [Job],
    batches: Vec<Vec<Part>>,
) -> Result<Option<Step>> {
    let mut before: Option<Step> = None;
    for batch in batches {
        if may_overwrite(jobs, &batch) {
            finish(filesystem, jobs, before.take())?;
            flush_in_parts(filesystem, jobs, &batch)?;
            continue;
        }
        let started = start(filesystem, jobs, &batch);
        match (finish(filesystem, jobs, before.take()), started) {
            (Ok(()), Ok(storing)) => before = Some(Step { batch, storing }),
            (Ok(()), Err(error)) if error.refusal() == Some(Refusal::NoSpace) => {
                flush_in_parts(filesystem, jobs, &batch)?;
            }
            (Ok(()), Err(error)) | (Err(error), Err(_)) => return Err(error),
            (Err(error), Ok(storing)) => {
                storing.abandon(filesystem);
                return Err(error);
            }
        }
    }
    Ok(before)
}

/// Whether some of it may be written in place. What is overwritten keeps a handle open until it is written,
/// and whoever holds one must not wait for another.
fn may_overwrite(jobs: &[Job], batch: &[Part]) -> bool {
    let in_place = InodeFlags::NODATACOW | InodeFlags::PREALLOC;
    batch.iter().any(|part| jobs[part.job].inode.flags().has_any(in_place))
}

fn start(filesystem: &Filesystem, jobs: &mut [Job], batch: &[Part]) -> Result<Storing> {
    let plan = plan::plan(filesystem, jobs, batch)?;
    store::start(filesystem, jobs, plan)
}

/// Enters what was on its way, once it is on the devices.
///
/// # Errors
/// What writing and entering met.
pub(super) fn finish(filesystem: &Filesystem, jobs: &mut [Job], step: Option<Step>) -> Result<()> {
    let Some(Step { batch, storing }) = step else { return Ok(()) };
    let stored = storing.finish(filesystem)?;
    match enter_batch(filesystem, jobs, &batch, stored) {
        Err(error) if error.refusal() == Some(Refusal::NoSpace) => flush_in_parts(filesystem, jobs, &batch),
        entered => {
            assert_eq!(entered?, Entered::Done, "what is overwritten in place is waited for");
            Ok(())
        }
    }
}
