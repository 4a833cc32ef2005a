//! What the files of one subvolume share: their tree, and what their changes are told to.

use core::fmt;

use vlinder_base::sync::atomic::{AtomicBool, Ordering};
use vlinder_base::sync::{Arc, Weak};
use vlinder_forest::OpenTree;
use vlinder_transaction::{Engine, Handle};

use crate::changed_ranges::ChangedRanges;
use crate::drops::Drops;

/// The tree of a subvolume in memory, as its files know it.
pub struct FileTree {
    engine: Weak<Engine>,
    tree: Arc<OpenTree>,
    deleted: AtomicBool,
    /// What is told of changes, for fsyncs; none where these commit instead.
    changed: Option<Arc<dyn ChangedRanges>>,
    drops: Drops,
}

impl fmt::Debug for FileTree {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "files of tree {}", self.tree.id())
    }
}

impl FileTree {
    /// The tree of a subvolume. `changed` is told which ranges of files change, `drops` counts the references
    /// that go.
    #[must_use]
    pub fn new(
        engine: &Arc<Engine>,
        tree: Arc<OpenTree>,
        changed: Option<Arc<dyn ChangedRanges>>,
        drops: Drops,
    ) -> Self {
        Self { engine: Arc::downgrade(engine), tree, deleted: AtomicBool::new(false), changed, drops }
    }

    /// The tree in which the items of its files lie.
    #[must_use]
    pub fn tree(&self) -> &Arc<OpenTree> {
        &self.tree
    }

    /// What is told which ranges of its files changed.
    pub(crate) fn changed_ranges(&self) -> Option<&dyn ChangedRanges> {
        self.changed.as_deref()
    }

    /// Counts what its files drop.
    pub fn drops(&self) -> &Drops {
        &self.drops
    }

    /// Whether the subvolume was deleted since it came into memory.
    pub fn is_deleted(&self) -> bool {
        self.deleted.load(Ordering::Acquire)
    }

    /// The subvolume was deleted.
    pub fn mark_deleted(&self) {
        self.deleted.store(true, Ordering::Release);
    }

    /// An inode changed: the root item tells about when and in which transaction, as Linux keeps it.
    pub(crate) fn note_change(&self, handle: &Handle<'_>) {
        let (generation, time) = (handle.generation(), handle.time_about());
        self.tree.change_item(|item| {
            let extension = item.extension_mut();
            extension.change_transaction = generation;
            extension.change_time = time;
        });
    }
}

impl Drop for FileTree {
    /// The blocks of a deleted subvolume may go when the last file that knows it has left memory.
    fn drop(&mut self) {
        if self.is_deleted()
            && let Some(engine) = self.engine.upgrade()
        {
            engine.dead_trees().add(Arc::clone(&self.tree));
        }
    }
}
