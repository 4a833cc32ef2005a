//! Locking a file whose ordered extents are entered first: what is on the devices gets its items before
//! the items change in another way.

use vlinder_base::sync::Arc;
use vlinder_transaction::ReservedData;

use super::deferred;
use super::enter::{self, Entered};
use super::file_flush::{FileFlush, parts};
use super::run::clear_states;
use crate::Result;
use crate::file_data::ExtentsGuard;
use crate::file_node::FileNode;
use crate::file_store::FileStore;
use crate::ordered_extents::Ordered;
use crate::written_extent::{WrittenExtent, release};

/// Keeps others from changing the file's items and from taking its dirty bytes. Nothing is ordered: what
/// can't be entered is dirty again, so that the next flush meets the error.
pub fn lock_settled<'a>(store: &FileStore, node: &'a Arc<FileNode>) -> ExtentsGuard<'a> {
    loop {
        let guard = node.data().lock_extents();
        if !deferred::is_under_way(node) {
            settle(store, node);
            return guard;
        }
        drop(guard);
        deferred::settle(store);
    }
}

/// As [`lock_settled`], if nobody holds any of it, and none of it is under way.
pub(super) fn try_lock_settled<'a>(store: &FileStore, node: &'a Arc<FileNode>) -> Option<ExtentsGuard<'a>> {
    let guard = node.data().try_lock_extents().filter(|_| !deferred::is_under_way(node))?;
    settle(store, node);
    Some(guard)
}

fn settle(store: &FileStore, node: &Arc<FileNode>) {
    let entering = Entering::take(store, node, WriterPolicy::Stopped);
    if let Some(Err(error)) = entering.map(Entering::run) {
        tracing::debug!(%error, inode = %node.id(), "extents that can't be entered are written again");
    }
}

/// Whether a file's dirty bytes may be taken while its ordered extents are entered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum WriterPolicy {
    GoesOn,
    /// The storing lock is held.
    Stopped,
}

/// Ordered extents on their way into the tree, with the file's items locked. If they do not get there, by a
/// panic too, they and all that was ordered behind them are dirty again.
pub(super) struct Entering<'a> {
    store: &'a FileStore,
    job: FileFlush,
    stored: Vec<WrittenExtent>,
    promised: ReservedData,
    storing: WriterPolicy,
    entered: bool,
}

impl<'a> Entering<'a> {
    pub(super) fn take(store: &'a FileStore, node: &'a Arc<FileNode>, storing: WriterPolicy) -> Option<Self> {
        let mut unflushed = node.data().unflushed();
        if unflushed.ordered.stored.is_empty() {
            return None;
        }
        let Ordered { runs, stored, promised, size, incompressible, .. } =
            std::mem::take(&mut unflushed.ordered);
        let runs = Arc::new(runs);
        unflushed.entering = Some(Arc::clone(&runs));
        let placed_bytes = stored.iter().map(WrittenExtent::new_bytes).sum();
        let node = Arc::clone(node);
        let job = FileFlush { node, runs, size, incompressible, done_to: 0, placed_bytes };
        Some(Self { store, job, stored, promised, storing, entered: false })
    }

    pub(super) fn run(mut self) -> Result<()> {
        let stored = std::mem::take(&mut self.stored);
        let jobs = std::slice::from_ref(&self.job);
        let ranges = parts(jobs);
        let entered = enter::enter(self.store, jobs, &ranges, stored)?;
        assert_eq!(entered, Entered::Done, "what is ordered is in new extents");
        self.entered = true;
        let data = self.job.node.data();
        let cleared = {
            let mut unflushed = data.unflushed();
            let before = unflushed.bytes();
            unflushed.entering = None;
            self.store.write_back().account_change(before, unflushed.bytes());
            clear_states(data, &unflushed, &ranges)
        };
        self.store.engine().reservations().unreserve_data(self.promised, self.job.placed_bytes);
        self.store.write_back().remove_if_clean(&self.job.node);
        cleared
    }

    /// All that is ordered is dirty again. Nobody is storing.
    fn give_back(&self) {
        let newer = {
            let mut unflushed = self.job.node.data().unflushed();
            let before = unflushed.bytes();
            unflushed.entering = None;
            let newer = std::mem::take(&mut unflushed.ordered);
            unflushed.dirty.put_below(&newer.runs);
            unflushed.dirty.put_below(&self.job.runs);
            unflushed.promised += newer.promised;
            unflushed.promised += self.promised;
            unflushed.dirty_since.get_or_insert_with(|| self.store.engine().clock().monotonic());
            self.store.write_back().account_change(before, unflushed.bytes());
            newer
        };
        release(self.store.engine(), &newer.stored);
    }
}

impl Drop for Entering<'_> {
    fn drop(&mut self) {
        if !self.entered {
            let _storing =
                (self.storing == WriterPolicy::GoesOn).then(|| self.job.node.data().lock_storing());
            self.give_back();
        }
    }
}
