//! Ordered extents: what direct writes brought to the devices, before its items are in the tree.
//!
//! Who writes directly waits for the devices and no longer. An item costs a descent and a changed leaf
//! wherever in the file it lies, so those of thousands of writes are entered together, in the order of the
//! file, by one of the writers, while the others go on storing. Until then the bytes stay in memory for
//! readers, and the promise of their space is kept. Extents are entered in the order in which their bytes
//! were taken, all that there are at once: the size on disk never passes over bytes that are missing. (Linux:
//! `btrfs_ordered_extent`.)

use vlinder_base::sync::{Arc, MutexGuard};
use vlinder_format::inode::InodeFlags;
use vlinder_transaction::PromisedData;

use super::enter::Entered;
use super::store::Stored;
use super::{BATCH_BYTES, Flight, Job, clear_states, enter, parts, plan, store, under_way};
use crate::data::file_data::ExtentsGuard;
use crate::data::runs::Runs;
use crate::inode::Inode;
use crate::{Filesystem, Refusal, Result};

/// So many extents are worth a transaction, or [`BATCH_BYTES`]. Twice as much makes the writers wait for
/// whoever enters.
const MANY_EXTENTS: usize = 4096;

/// What is on the devices of a file while no item refers to it.
#[derive(Debug, Default)]
pub(crate) struct Ordered {
    /// The newest bytes.
    pub(crate) runs: Runs,
    /// As they were taken: a later one lies over an earlier one.
    stored: Vec<Stored>,
    /// Bytes that were taken, those that were written over since among them: their space is taken too.
    taken_bytes: u64,
    /// Space that is promised to all of it.
    promised: PromisedData,
    /// The file's size when the last of it was taken.
    size: u64,
    /// Compressing some of it was tried in vain.
    incompressible: bool,
}

impl Ordered {
    fn is_worth_entering(&self) -> bool {
        self.stored.len() >= MANY_EXTENTS || self.taken_bytes >= BATCH_BYTES
    }

    fn is_crowded(&self) -> bool {
        self.stored.len() >= 2 * MANY_EXTENTS || self.taken_bytes >= 2 * BATCH_BYTES
    }
}

/// Brings a file's dirty bytes to the devices.
///
/// # Errors
/// What the devices and trees met; the data stay in memory then, where the next flush tries again.
pub(crate) fn store_dirty(filesystem: &Filesystem, inode: &Arc<Inode>) -> Result<()> {
    let ordered = {
        let _storing = lock_storing(filesystem, inode);
        Flight::take(filesystem, &[inode]).order()
    };
    match ordered {
        Ok(true) => enter_many(filesystem, inode),
        Ok(false) => super::flush(filesystem, inode),
        // A flush makes room, and takes what there is in parts.
        Err(error) if error.refusal() == Some(Refusal::NoSpace) => super::flush(filesystem, inode),
        Err(error) => Err(error),
    }
}

/// Keeps others from taking the file's dirty bytes. None of it is under way.
fn lock_storing<'a>(filesystem: &Filesystem, inode: &'a Inode) -> MutexGuard<'a, ()> {
    loop {
        let guard = inode.data.lock_storing();
        if !under_way::is_under_way(inode) {
            return guard;
        }
        drop(guard);
        under_way::settle(filesystem);
    }
}

/// Keeps others from changing the file's items and from taking its dirty bytes. Nothing is ordered: what
/// can't be entered is dirty again, so that whoever flushes meets the error.
pub(crate) fn lock_settled<'a>(filesystem: &Filesystem, inode: &'a Arc<Inode>) -> ExtentsGuard<'a> {
    loop {
        let guard = inode.data.lock_extents();
        if !under_way::is_under_way(inode) {
            settle(filesystem, inode);
            return guard;
        }
        drop(guard);
        under_way::settle(filesystem);
    }
}

/// As [`lock_settled`], if nobody holds any of it, and none of it is under way.
pub(super) fn try_lock_settled<'a>(
    filesystem: &Filesystem,
    inode: &'a Arc<Inode>,
) -> Option<ExtentsGuard<'a>> {
    let guard = inode.data.try_lock_extents().filter(|_| !under_way::is_under_way(inode))?;
    settle(filesystem, inode);
    Some(guard)
}

fn settle(filesystem: &Filesystem, inode: &Arc<Inode>) {
    let entering = Entering::take(filesystem, inode, Storing::Stopped);
    if let Some(Err(error)) = entering.map(Entering::run) {
        tracing::debug!(%error, inode = %inode.id(), "extents that can't be entered are written again");
    }
}

/// Enters what is ordered of a file if it is much, or all memory is filling up.
fn enter_many(filesystem: &Filesystem, inode: &Arc<Inode>) -> Result<()> {
    let is_due = || {
        let crowded = filesystem.shared().write_back.is_crowded();
        let unflushed = inode.data.unflushed();
        (crowded || unflushed.ordered.is_worth_entering(), crowded || unflushed.ordered.is_crowded())
    };
    let (due, crowded) = is_due();
    if !due {
        return Ok(());
    }
    let _items = match inode.data.try_lock_items() {
        Some(items) => items,
        None if crowded => inode.data.lock_items(),
        // Whoever has it may be entering; others come soon.
        None => return Ok(()),
    };
    if !is_due().0 {
        return Ok(());
    }
    Entering::take(filesystem, inode, Storing::GoesOn).map_or(Ok(()), Entering::run)
}

impl Flight<'_> {
    /// Stores the one file that was taken, and leaves its extents ordered; false where that is not for direct
    /// writes to do: bytes that go into the tree or to where the file has space, and more than one batch of
    /// them.
    fn order(mut self) -> Result<bool> {
        let Some(job) = self.jobs.first() else { return Ok(true) };
        let in_place = job.inode.flags().has_any(InodeFlags::NODATACOW | InodeFlags::PREALLOC);
        if in_place || job.runs.bytes() > BATCH_BYTES {
            return Ok(false);
        }
        let metrics = &self.filesystem.shared().write_back.metrics;
        metrics.flushes.increment();
        let _timer = metrics.flush_time.time();
        let batch = parts(&self.jobs);
        let plan = plan::plan(self.filesystem, &mut self.jobs, &batch)?;
        if !plan.pieces.iter().all(|piece| piece.form.is_new_extent()) {
            return Ok(false);
        }
        let stored = store::store(self.filesystem, &self.jobs, plan)?;
        if let Some(job) = self.jobs.pop() {
            put_in_order(self.filesystem, job, stored);
        }
        Ok(true)
    }
}

/// What was being written is ordered from now on.
fn put_in_order(filesystem: &Filesystem, job: Job, stored: Vec<Stored>) {
    let Job { inode, runs, size, incompressible, .. } = job;
    let mut unflushed = inode.data.unflushed();
    let before = unflushed.bytes();
    unflushed.writing = None;
    let promised = std::mem::take(&mut unflushed.writing_promised);
    let ordered = &mut unflushed.ordered;
    ordered.taken_bytes += runs.bytes();
    ordered.runs.put_above(Arc::unwrap_or_clone(runs));
    ordered.stored.extend(stored);
    ordered.promised += promised;
    ordered.size = size;
    ordered.incompressible |= incompressible;
    filesystem.shared().write_back.account_change(before, unflushed.bytes());
}

/// Whether a file's dirty bytes may be taken while its ordered extents are entered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Storing {
    GoesOn,
    /// The storing lock is held.
    Stopped,
}

/// Ordered extents on their way into the tree, with the file's items locked. If they do not get there, by a
/// panic too, they and all that was ordered behind them are dirty again.
struct Entering<'a> {
    filesystem: &'a Filesystem,
    job: Job,
    stored: Vec<Stored>,
    promised: PromisedData,
    storing: Storing,
    entered: bool,
}

impl<'a> Entering<'a> {
    fn take(filesystem: &'a Filesystem, inode: &'a Arc<Inode>, storing: Storing) -> Option<Self> {
        let mut unflushed = inode.data.unflushed();
        if unflushed.ordered.stored.is_empty() {
            return None;
        }
        let Ordered { runs, stored, promised, size, incompressible, .. } =
            std::mem::take(&mut unflushed.ordered);
        let runs = Arc::new(runs);
        unflushed.entering = Some(Arc::clone(&runs));
        let placed_bytes = stored.iter().map(Stored::new_bytes).sum();
        let inode = Arc::clone(inode);
        let job = Job { inode, runs, size, incompressible, done_to: 0, placed_bytes };
        Some(Self { filesystem, job, stored, promised, storing, entered: false })
    }

    fn run(mut self) -> Result<()> {
        let stored = std::mem::take(&mut self.stored);
        let jobs = std::slice::from_ref(&self.job);
        let ranges = parts(jobs);
        let entered = enter::enter(self.filesystem, jobs, &ranges, stored)?;
        assert_eq!(entered, Entered::Done, "what is ordered is in new extents");
        self.entered = true;
        let data = &self.job.inode.data;
        let cleared = {
            let mut unflushed = data.unflushed();
            let before = unflushed.bytes();
            unflushed.entering = None;
            self.filesystem.shared().write_back.account_change(before, unflushed.bytes());
            clear_states(data, &unflushed, &ranges)
        };
        self.filesystem.engine().settle_data_promise(self.promised, self.job.placed_bytes);
        self.filesystem.shared().write_back.remove_if_clean(&self.job.inode);
        cleared
    }

    /// All that is ordered is dirty again. Nobody is storing.
    fn give_back(&self) {
        let newer = {
            let mut unflushed = self.job.inode.data.unflushed();
            let before = unflushed.bytes();
            unflushed.entering = None;
            let newer = std::mem::take(&mut unflushed.ordered);
            unflushed.dirty.put_below(&newer.runs);
            unflushed.dirty.put_below(&self.job.runs);
            unflushed.promised += newer.promised;
            unflushed.promised += self.promised;
            unflushed.dirty_since.get_or_insert_with(|| self.filesystem.engine().clock().monotonic());
            self.filesystem.shared().write_back.account_change(before, unflushed.bytes());
            newer
        };
        store::release(self.filesystem, &newer.stored);
    }
}

impl Drop for Entering<'_> {
    fn drop(&mut self) {
        if !self.entered {
            let _storing = (self.storing == Storing::GoesOn).then(|| self.job.inode.data.lock_storing());
            self.give_back();
        }
    }
}
