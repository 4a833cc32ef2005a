//! Flushing a batch: planned, written out and entered, in smaller ones where there is no room for all of it.

use vlinder_extent_state::ByteRange;

use super::enter::{self, Entered};
use super::file_flush::{DirtyRange, FileFlush};
use super::{plan, write_out};
use crate::file_store::FileStore;
use crate::written_extent::WrittenExtent;
use crate::{Result, SpaceFailure};

/// A part is not split below this, nor elsewhere than at its multiples: what compression looks at together.
const MIN_PART_BYTES: u64 = 128 << 10;

/// Flushes a batch, in smaller ones where there is no room for all of it at once: what a transaction may take
/// is reckoned for the worst case, which halves with the batch. The smallest is tried again after a commit,
/// which settles what others are reckoned to take, too.
pub(super) fn flush_in_parts(store: &FileStore, jobs: &mut [FileFlush], batch: &[DirtyRange]) -> Result<()> {
    match flush_batch(store, jobs, batch) {
        Err(error) if error.is_no_space() => match halves(batch) {
            Some((first, second)) => {
                flush_in_parts(store, jobs, &first)?;
                flush_in_parts(store, jobs, &second)
            }
            None => {
                store.engine().commit()?;
                flush_sectors(store, jobs, batch)
            }
        },
        other => other,
    }
}

/// Flushes a single part, in halves down to a sector where there is no room for all of it: even extents that
/// compress worse are better than bytes that are lost.
fn flush_sectors(store: &FileStore, jobs: &mut [FileFlush], batch: &[DirtyRange]) -> Result<()> {
    match (flush_batch(store, jobs, batch), batch) {
        (Err(error), [part]) if error.is_no_space() => {
            let Some((first, second)) = halves_at(*part, u64::from(store.sector_size())) else {
                return Err(error);
            };
            flush_sectors(store, jobs, &[first])?;
            store.engine().commit()?;
            flush_sectors(store, jobs, &[second])
        }
        (flushed, _) => flushed,
    }
}

/// Splits a batch; none where it is a single part of the least length.
fn halves(batch: &[DirtyRange]) -> Option<(Vec<DirtyRange>, Vec<DirtyRange>)> {
    if let [part] = batch {
        return halves_at(*part, MIN_PART_BYTES).map(|(first, second)| (vec![first], vec![second]));
    }
    let (first, second) = batch.split_at(batch.len() / 2);
    Some((first.to_vec(), second.to_vec()))
}

/// Splits a part about its middle, at a multiple of `unit`; none where there is no such place inside it.
fn halves_at(part: DirtyRange, unit: u64) -> Option<(DirtyRange, DirtyRange)> {
    let range = part.range;
    let middle = (range.start() + range.length_bytes() / 2).next_multiple_of(unit);
    let (first, second) = (ByteRange::new(range.start(), middle)?, ByteRange::new(middle, range.end())?);
    let is_split = !first.is_empty() && !second.is_empty();
    is_split
        .then_some((DirtyRange { range: first, last: false, ..part }, DirtyRange { range: second, ..part }))
}

fn flush_batch(store: &FileStore, jobs: &mut [FileFlush], batch: &[DirtyRange]) -> Result<()> {
    loop {
        let plan = plan::plan(store, jobs, batch)?;
        let stored = write_out::write_out(store, jobs, plan)?;
        match enter_batch(store, jobs, batch, stored)? {
            Entered::Done => return Ok(()),
            // The plan to come finds the space shared, so this goes on only as long as new preallocated space
            // comes.
            Entered::Overtaken => store.write_back().metrics.overtaken.increment(),
        }
    }
}

/// Enters a batch that is on the devices.
pub(super) fn enter_batch(
    store: &FileStore,
    jobs: &mut [FileFlush],
    batch: &[DirtyRange],
    stored: Vec<WrittenExtent>,
) -> Result<Entered> {
    let placed: Vec<(usize, u64)> = stored.iter().map(|piece| (piece.job, piece.new_bytes())).collect();
    let entered = enter::enter(store, jobs, batch, stored)?;
    if entered == Entered::Done {
        for (job, bytes) in placed {
            jobs[job].placed_bytes += bytes;
        }
        for part in batch {
            jobs[part.job].done_to = part.range.end();
        }
    }
    Ok(entered)
}
