//! Ordered extents: what direct writes brought to the devices, before its items are in the tree.
//!
//! A direct writer waits for the devices and no longer. An item costs a descent and a changed leaf
//! wherever in the file it lies, so those of thousands of writes are entered together, in the order of the
//! file, by one of the writers, while the others go on storing. Until then the bytes stay in memory for
//! readers, and the promise of their space is kept. Extents are entered in the order in which their bytes
//! were taken, all that there are at once: the size on disk never passes over bytes that are missing. (Linux:
//! `btrfs_ordered_extent`.)

use vlinder_base::sync::{Arc, MutexGuard};
use vlinder_format::inode::InodeFlags;

use super::file_flush::{FileFlush, MAX_BATCH_BYTES, parts};
use super::run::FlushRun;
use super::settled::{Entering, WriterPolicy};
use super::{deferred, files, plan, write_out};
use crate::file_node::FileNode;
use crate::file_store::FileStore;
use crate::ordered_extents::Ordered;
use crate::written_extent::WrittenExtent;
use crate::{Result, SpaceFailure};

/// So many extents are worth a transaction, or [`MAX_BATCH_BYTES`]. Twice as much makes the writers wait for
/// the one that enters.
const MANY_EXTENTS: usize = 4096;

/// Whether it is worth a transaction to enter it.
fn is_worth_entering(ordered: &Ordered) -> bool {
    ordered.stored.len() >= MANY_EXTENTS || ordered.taken_bytes >= MAX_BATCH_BYTES
}

/// Whether writers have to wait until it is entered.
fn is_crowded(ordered: &Ordered) -> bool {
    ordered.stored.len() >= 2 * MANY_EXTENTS || ordered.taken_bytes >= 2 * MAX_BATCH_BYTES
}

/// Brings a file's dirty bytes to the devices.
///
/// # Errors
/// What the devices and trees met; the data stay in memory then, where the next flush tries again.
pub fn store_dirty(store: &FileStore, node: &Arc<FileNode>) -> Result<()> {
    let ordered = {
        let _storing = lock_storing(store, node);
        FlushRun::take(store, &[node]).order()
    };
    match ordered {
        Ok(true) => enter_many(store, node),
        Ok(false) => files::flush(store, node),
        // A flush makes room, and takes what there is in parts.
        Err(error) if error.is_no_space() => files::flush(store, node),
        Err(error) => Err(error),
    }
}

/// Keeps others from taking the file's dirty bytes. None of it is under way.
pub(super) fn lock_storing<'a>(store: &FileStore, node: &'a FileNode) -> MutexGuard<'a, ()> {
    loop {
        let guard = node.data().lock_storing();
        if !deferred::is_under_way(node) {
            return guard;
        }
        drop(guard);
        deferred::settle(store);
    }
}

/// Enters what is ordered of a file if it is much, or all memory is filling up.
pub(super) fn enter_many(store: &FileStore, node: &Arc<FileNode>) -> Result<()> {
    let is_due = || {
        let crowded = store.write_back().is_crowded();
        let unflushed = node.data().unflushed();
        (crowded || is_worth_entering(&unflushed.ordered), crowded || is_crowded(&unflushed.ordered))
    };
    let (due, crowded) = is_due();
    if !due {
        return Ok(());
    }
    let _items = match node.data().try_lock_items() {
        Some(items) => items,
        None if crowded => node.data().lock_items(),
        // The holder may be entering; other writers come soon.
        None => return Ok(()),
    };
    if !is_due().0 {
        return Ok(());
    }
    Entering::take(store, node, WriterPolicy::GoesOn).map_or(Ok(()), Entering::run)
}

impl FlushRun<'_> {
    /// Stores the one file that was taken, and leaves its extents ordered; false where that is not for direct
    /// writes to do: bytes that go into the tree or to where the file has space, and more than one batch of
    /// them.
    fn order(mut self) -> Result<bool> {
        let Some(job) = self.jobs.first() else { return Ok(true) };
        let in_place = job.node.flags().has_any(InodeFlags::NODATACOW | InodeFlags::PREALLOC);
        if in_place || job.runs.bytes() > MAX_BATCH_BYTES {
            return Ok(false);
        }
        let metrics = &self.store.write_back().metrics;
        metrics.flushes.increment();
        let _timer = metrics.flush_time.time();
        let batch = parts(&self.jobs);
        let plan = plan::plan(self.store, &mut self.jobs, &batch)?;
        if !plan.pieces.iter().all(|piece| piece.form.is_new_extent()) {
            return Ok(false);
        }
        let stored = write_out::write_out(self.store, &self.jobs, plan)?;
        if let Some(job) = self.jobs.pop() {
            put_in_order(self.store, job, stored);
        }
        Ok(true)
    }
}

/// What was being written is ordered from now on.
pub(super) fn put_in_order(store: &FileStore, job: FileFlush, stored: Vec<WrittenExtent>) {
    let FileFlush { node, runs, size, incompressible, .. } = job;
    let mut unflushed = node.data().unflushed();
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
    store.write_back().account_change(before, unflushed.bytes());
}
