//! Flushing: unflushed bytes become extents.
//!
//! Files are flushed in groups, each in batches of bounded size, so that many small files share what is
//! expensive: one allocation, one batch of writes, one change of each tree. A batch is *planned* (inline, in
//! place, or new extents, compressed where it pays), *stored* (space taken, bytes written, checksums worked
//! out meanwhile) and *entered* (items, references, checksums and inodes in one transaction). What fails goes
//! back to the files' dirty bytes, so that a later flush tries again: no error is ever followed by a false
//! success.
//!
//! While a batch is being entered, the next one is on its way to the devices already ([`steps`]).
//!
//! Direct writes stop after the second step, and their extents stay *ordered* for a while before they are
//! entered.

mod enter;
mod ordered;
mod plan;
mod steps;
mod store;
mod under_way;

pub(crate) use ordered::{Ordered, lock_settled, store_dirty};
pub(crate) use under_way::UnderWay;
pub use under_way::flush_ahead;

use vlinder_base::sync::Arc;
use vlinder_extent_state::ByteRange;
use vlinder_format::inode::InodeFlags;
use vlinder_transaction::{ChangeKind, Charge, Handle, PromisedData, Reservation};

use self::enter::Entered;
use self::steps::Step;
use self::store::Stored;
use super::file_data::{DELALLOC, FileData, Unflushed};
use super::runs::Runs;
use crate::inode::Inode;
use crate::{Filesystem, FsError, Refusal, Result};

/// Files flushed together: as many as it takes for the cost of a batch to be small beside that of its files,
/// and so few that their locks are soon free again.
const FILES_IN_GROUP: usize = 256;
/// Nor are files flushed together that have more bytes.
const GROUP_BYTES: u64 = 32 << 20;
/// The most bytes of a batch.
pub(crate) const BATCH_BYTES: u64 = 32 << 20;

/// A part is not split below this, nor elsewhere than at its multiples: what compression looks at together.
const LEAST_PART_BYTES: u64 = 128 << 10;

/// A file that is being flushed. Its extents are locked meanwhile, but for the time that it is [under
/// way](under_way).
struct Job {
    inode: Arc<Inode>,
    runs: Arc<Runs>,
    /// The file's size when the runs were taken: nothing below it is unflushed once they are on disk.
    size: u64,
    /// Compressing was tried in vain; the inode is marked so that it is not tried again.
    incompressible: bool,
    /// Behind the last byte whose extents are in the tree.
    done_to: u64,
    /// Bytes of new extents that are in the tree, which count as placed until the promise for them is
    /// settled.
    placed_bytes: u64,
}

/// A contiguous part of a job's bytes.
#[derive(Clone, Copy, Debug)]
struct Part {
    job: usize,
    range: ByteRange,
    /// Nothing of the job comes after it.
    last: bool,
}

/// Writes out the data of every file that has some, so that a commit makes them durable.
///
/// # Errors
/// The gravest that writing met; every file is tried.
pub fn flush_all(filesystem: &Filesystem) -> Result<()> {
    let files = filesystem.shared().write_back.files();
    flush_groups(&files, |group| flush_files(filesystem, group))
}

/// Has files flushed, some of one subvolume at a time, in the order in which locks of several are taken: that
/// of their ids.
///
/// # Errors
/// The gravest ([`FsError::graver`]); every file is tried, but for a host that is full: there the others
/// would find no room either.
fn flush_groups(files: &[Arc<Inode>], mut flush: impl FnMut(&[&Arc<Inode>]) -> Result<()>) -> Result<()> {
    let mut result = Ok(());
    for group in groups(files) {
        let mut group: Vec<&Arc<Inode>> = group.iter().collect();
        group.sort_by_key(|inode| inode.id());
        group.dedup_by_key(|inode| inode.id());
        for group in group.chunk_by(|left, right| left.id().root == right.id().root) {
            let flushed = flush(group);
            let is_vain = flushed.as_ref().is_err_and(FsError::is_host_full);
            result = FsError::graver(result, flushed);
            if is_vain {
                return result;
            }
        }
    }
    result
}

/// Splits files into those that are flushed together: neighbours in the list.
fn groups(files: &[Arc<Inode>]) -> impl Iterator<Item = &[Arc<Inode>]> {
    let mut rest = files;
    std::iter::from_fn(move || {
        let mut bytes = 0;
        let fits = |inode: &&Arc<Inode>| {
            bytes += inode.data.unflushed().dirty.bytes();
            bytes <= GROUP_BYTES
        };
        let count = rest.iter().take(FILES_IN_GROUP).take_while(fits).count().max(1);
        let (group, behind) = rest.split_at_checked(count)?;
        rest = behind;
        Some(group)
    })
}

/// As [`flush_all`] for the committer, who must not wait for a file whose extents somebody is changing,
/// because that may be waiting for the commit: such files are left out.
///
/// # Errors
/// As [`flush_all`].
pub(crate) fn flush_idle(filesystem: &Filesystem) -> Result<()> {
    let mut result = under_way::finish_idle(filesystem);
    for inode in filesystem.shared().write_back.files() {
        if let Some(_extents) = ordered::try_lock_settled(filesystem, &inode) {
            let flushed = flush_locked(filesystem, &inode);
            result = FsError::graver(result, flushed);
        }
    }
    result
}

/// Writes out a file's data, so that a commit makes them durable.
///
/// # Errors
/// What writing met; the data stay in memory then.
pub fn flush(filesystem: &Filesystem, inode: &Arc<Inode>) -> Result<()> {
    flush_files(filesystem, &[inode])
}

/// Writes out the data of every file of a subvolume: before a snapshot of it.
///
/// # Errors
/// As [`flush_all`].
pub fn flush_subvolume(filesystem: &Filesystem, root: crate::RootId) -> Result<()> {
    let files: Vec<Arc<Inode>> = filesystem.shared().write_back.files();
    let files: Vec<Arc<Inode>> = files.into_iter().filter(|inode| inode.id().root == root).collect();
    flush_groups(&files, |group| flush_files(filesystem, group))
}

/// Writes out a file that is closed after its content was dropped: who replaces a file so expects the new
/// content to be there after a crash. (Linux: `BTRFS_INODE_FLUSH_ON_CLOSE`.)
///
/// # Errors
/// As [`flush`].
pub fn flush_replaced(filesystem: &Filesystem, inode: &Arc<Inode>) -> Result<()> {
    let replaced = std::mem::take(&mut inode.data.unflushed().replaced);
    if replaced { flush(filesystem, inode) } else { Ok(()) }
}

/// Brings the unflushed bytes of the file system back under their limit.
pub(crate) fn relieve(filesystem: &Filesystem) -> Result<()> {
    let write_back = &filesystem.shared().write_back;
    let mut files = write_back.files();
    files.sort_by_cached_key(|inode| inode.data.unflushed().dirty_since);
    for group in groups(&files) {
        // Well below, so that the next write does not come here again.
        if write_back.is_under_half() {
            break;
        }
        flush_groups(group, |group| flush_files(filesystem, group))?;
    }
    Ok(())
}

/// Flushes files of one subvolume.
fn flush_files(filesystem: &Filesystem, group: &[&Arc<Inode>]) -> Result<()> {
    let _locks: Vec<_> = group.iter().map(|inode| lock_settled(filesystem, inode)).collect();
    Flight::take(filesystem, group).run()
}

/// [`flush`] for who holds the file's extents locked.
pub(crate) fn flush_locked(filesystem: &Filesystem, inode: &Arc<Inode>) -> Result<()> {
    Flight::take(filesystem, &[inode]).run()
}

/// Jobs under way. However that ends, by a panic too, each is finished: bytes that were left as being written
/// would never be again, and every later flush would call the file clean.
struct Flight<'a> {
    filesystem: &'a Filesystem,
    jobs: Vec<Job>,
}

impl<'a> Flight<'a> {
    /// Takes what is dirty of files whose extents are locked.
    fn take(filesystem: &'a Filesystem, files: &[&Arc<Inode>]) -> Self {
        Self { filesystem, jobs: files.iter().filter_map(|inode| take(filesystem, inode)).collect() }
    }

    fn run(mut self) -> Result<()> {
        let step_bytes = steps::step_bytes(self.filesystem, &self.jobs);
        let step = self.start(step_bytes)?;
        self.complete(step)
    }

    /// Flushes all but the last of its batches of about so many bytes, which is on its way to the devices
    /// still.
    fn start(&mut self, step_bytes: u64) -> Result<Option<Step>> {
        if self.jobs.is_empty() {
            return Ok(None);
        }
        let metrics = &self.filesystem.shared().write_back.metrics;
        metrics.flushes.increment();
        let _timer = metrics.flush_time.time();
        let batches = steps::batches(&self.jobs, step_bytes);
        let started = steps::flush(self.filesystem, &mut self.jobs, batches);
        started.or_else(|error| self.finish().and(Err(error)))
    }

    /// Enters what was on its way, and forgets what is in the tree then.
    fn complete(mut self, step: Option<Step>) -> Result<()> {
        let result = steps::finish(self.filesystem, &mut self.jobs, step);
        result.and(self.finish())
    }

    fn finish(&mut self) -> Result<()> {
        let jobs = std::mem::take(&mut self.jobs);
        jobs.iter().map(|job| finish(self.filesystem, job)).fold(Ok(()), Result::and)
    }
}

impl Drop for Flight<'_> {
    fn drop(&mut self) {
        if let Err(error) = self.finish() {
            tracing::error!(%error, "a flush that was broken off can't be finished");
        }
    }
}

/// Joins a transaction for data whose space is promised: where there is no room for metadata any more, the
/// reserve is drawn on, because what was accepted from a caller must not be lost.
fn begin(filesystem: &Filesystem, changes: Charge) -> Result<Handle<'_>> {
    Ok(filesystem.engine().begin(Reservation::accepted(0).and(changes).of(ChangeKind::Flush))?)
}

/// Takes what is dirty of a file.
fn take(filesystem: &Filesystem, inode: &Arc<Inode>) -> Option<Job> {
    // Both at once: bytes behind a size that was read before they came would be on disk with nobody to grow
    // the file.
    let state = inode.state.lock();
    let mut unflushed = inode.data.unflushed();
    let size = state.item.size_bytes;
    if unflushed.dirty.is_empty() || state.deleted {
        drop((unflushed, state));
        filesystem.shared().write_back.remove_if_clean(inode);
        return None;
    }
    let runs = Arc::new(std::mem::take(&mut unflushed.dirty));
    unflushed.dirty_since = None;
    unflushed.is_held = false;
    debug_assert!(
        unflushed.promised.bytes >= runs.bytes()
            || state.item.flags.has_any(InodeFlags::NODATACOW | InodeFlags::PREALLOC),
        "{}: of {} dirty bytes {} have a promise",
        inode.id(),
        runs.bytes(),
        unflushed.promised.bytes
    );
    unflushed.writing_promised = std::mem::take(&mut unflushed.promised);
    unflushed.writing = Some(Arc::clone(&runs));
    Some(Job { inode: Arc::clone(inode), runs, size, incompressible: false, done_to: 0, placed_bytes: 0 })
}

/// Flushes a batch, in smaller ones where there is no room for all of it at once: what a transaction may take
/// is reckoned for the worst case, which halves with the batch. The smallest is tried again after a commit,
/// which settles what others are reckoned to take, too.
fn flush_in_parts(filesystem: &Filesystem, jobs: &mut [Job], batch: &[Part]) -> Result<()> {
    match flush_batch(filesystem, jobs, batch) {
        Err(error) if error.refusal() == Some(Refusal::NoSpace) => match halves(batch) {
            Some((first, second)) => {
                flush_in_parts(filesystem, jobs, &first)?;
                flush_in_parts(filesystem, jobs, &second)
            }
            None => {
                filesystem.engine().commit()?;
                flush_sectors(filesystem, jobs, batch)
            }
        },
        other => other,
    }
}

/// Flushes a single part, in halves down to a sector where there is no room for all of it: even extents that
/// compress worse are better than bytes that are lost.
fn flush_sectors(filesystem: &Filesystem, jobs: &mut [Job], batch: &[Part]) -> Result<()> {
    match (flush_batch(filesystem, jobs, batch), batch) {
        (Err(error), [part]) if error.refusal() == Some(Refusal::NoSpace) => {
            let Some((first, second)) = halves_at(*part, u64::from(filesystem.sector_size())) else {
                return Err(error);
            };
            flush_sectors(filesystem, jobs, &[first])?;
            filesystem.engine().commit()?;
            flush_sectors(filesystem, jobs, &[second])
        }
        (flushed, _) => flushed,
    }
}

/// Splits a batch; none where it is a single part of the least length.
fn halves(batch: &[Part]) -> Option<(Vec<Part>, Vec<Part>)> {
    if let [part] = batch {
        return halves_at(*part, LEAST_PART_BYTES).map(|(first, second)| (vec![first], vec![second]));
    }
    let (first, second) = batch.split_at(batch.len() / 2);
    Some((first.to_vec(), second.to_vec()))
}

/// Splits a part about its middle, at a multiple of `unit`; none where there is no such place inside it.
fn halves_at(part: Part, unit: u64) -> Option<(Part, Part)> {
    let range = part.range;
    let middle = (range.start() + range.length_bytes() / 2).next_multiple_of(unit);
    let (first, second) = (ByteRange::new(range.start(), middle)?, ByteRange::new(middle, range.end())?);
    let is_split = !first.is_empty() && !second.is_empty();
    is_split.then_some((Part { range: first, last: false, ..part }, Part { range: second, ..part }))
}

/// The contiguous parts of all jobs in order, none larger than a batch.
fn parts(jobs: &[Job]) -> Vec<Part> {
    let mut parts: Vec<Part> = Vec::new();
    for (number, job) in jobs.iter().enumerate() {
        let first = parts.len();
        for (start, run) in job.runs.iter() {
            let Some(range) = ByteRange::with_length(start, run.len() as u64) else { continue };
            let before = parts[first..].last_mut().filter(|before| {
                before.range.end() == start
                    && before.range.length_bytes() + range.length_bytes() <= BATCH_BYTES
            });
            match before {
                Some(before) => {
                    before.range = ByteRange::new(before.range.start(), range.end()).unwrap_or(range);
                }
                None => parts.push(Part { job: number, range, last: false }),
            }
        }
        if let Some(last) = parts[first..].last_mut() {
            last.last = true;
        }
    }
    parts
}

fn flush_batch(filesystem: &Filesystem, jobs: &mut [Job], batch: &[Part]) -> Result<()> {
    loop {
        let plan = plan::plan(filesystem, jobs, batch)?;
        let stored = store::store(filesystem, jobs, plan)?;
        match enter_batch(filesystem, jobs, batch, stored)? {
            Entered::Done => return Ok(()),
            // The plan to come finds the space shared, so this goes on only as long as new preallocated space
            // comes.
            Entered::Overtaken => filesystem.shared().write_back.metrics.overtaken.increment(),
        }
    }
}

/// Enters a batch that is on the devices.
fn enter_batch(
    filesystem: &Filesystem,
    jobs: &mut [Job],
    batch: &[Part],
    stored: Vec<Stored>,
) -> Result<Entered> {
    let placed: Vec<(usize, u64)> = stored.iter().map(|piece| (piece.job, piece.new_bytes())).collect();
    let entered = enter::enter(filesystem, jobs, batch, stored)?;
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

/// Forgets what is in the tree now, and gives the rest back to the dirty bytes.
fn finish(filesystem: &Filesystem, job: &Job) -> Result<()> {
    let write_back = &filesystem.shared().write_back;
    let data = &job.inode.data;
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
            settled = PromisedData::written(promised.bytes.min(job.placed_bytes), 0);
            let mut left = promised;
            left -= settled;
            unflushed.promised += left;
            unflushed.is_held = true;
            unflushed.dirty_since.get_or_insert_with(|| filesystem.engine().clock().monotonic());
        } else {
            settled = promised;
        }
        write_back.account_change(before, unflushed.bytes());
        clear_states(data, &unflushed, &parts(std::slice::from_ref(job)))
    };
    filesystem.engine().settle_data_promise(settled, job.placed_bytes);
    write_back.remove_if_clean(&job.inode);
    cleared
}

/// Clears the states of what is not in memory any more.
fn clear_states(data: &FileData, unflushed: &Unflushed, parts: &[Part]) -> Result<()> {
    let Some(states) = data.states_if_any() else { return Ok(()) };
    for clean in parts.iter().flat_map(|part| unflushed.gaps(part.range)) {
        states.clear(clean, DELALLOC).map_err(FsError::State)?;
    }
    Ok(())
}
