//! Subvolumes: their state in memory, and the operations on them.

mod being_received;
mod change;
mod create;
pub(crate) mod default;
pub(crate) mod delete;
mod list;
pub(crate) mod place;
mod received_change;
mod view;

pub use being_received::BeingReceived;
pub use list::SubvolumeInformation;
pub use view::Subvolumes;

use core::fmt;
use std::collections::BTreeMap;

use vlinder_base::sync::atomic::{AtomicBool, Ordering};
use vlinder_base::sync::{Arc, Mutex};
use vlinder_data::{ChangedRanges, Drops, FileTree};
use vlinder_forest::OpenTree;
use vlinder_format::{ItemType, Key, ObjectId, Place, RootId};
use vlinder_transaction::Engine;

use crate::fsync_log::Journal;
use crate::{Refusal, Result};

/// A subvolume in memory.
pub struct Subvolume {
    /// What its files share.
    files: Arc<FileTree>,
    /// What changed since the last commit, for fsyncs; none where these commit instead.
    journal: Option<Arc<Journal>>,
    /// The number that the next inode gets: one more than the highest so far, so that none is used twice
    /// while mounted.
    next_inode: Mutex<Option<u64>>,
    /// The directories that hold names whose subvolumes are not there, as far as they were looked up.
    absent: Mutex<BTreeMap<RootId, ObjectId>>,
    /// A stream is being made into it.
    is_being_received: AtomicBool,
}

impl fmt::Debug for Subvolume {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "subvolume {}", self.id())
    }
}

impl Subvolume {
    pub(crate) fn new(engine: &Arc<Engine>, tree: Arc<OpenTree>, has_log: bool, drops: Drops) -> Self {
        let journal: Option<Arc<Journal>> = has_log.then(Arc::default);
        let changed = journal.clone().map(|journal| -> Arc<dyn ChangedRanges> { journal });
        Self {
            files: Arc::new(FileTree::new(engine, tree, changed, drops)),
            journal,
            next_inode: Mutex::new(None),
            absent: Mutex::default(),
            is_being_received: AtomicBool::new(false),
        }
    }

    /// Its number.
    #[must_use]
    pub fn id(&self) -> RootId {
        self.tree().id()
    }

    /// What its files share.
    pub(crate) fn files(&self) -> &Arc<FileTree> {
        &self.files
    }

    /// Its tree.
    #[must_use]
    pub fn tree(&self) -> &Arc<OpenTree> {
        self.files.tree()
    }

    pub(crate) fn journal(&self) -> Option<&Arc<Journal>> {
        self.journal.as_ref()
    }

    /// Counts what its files drop.
    pub(crate) fn drops(&self) -> &Drops {
        self.files.drops()
    }

    /// Notes in which of its directories the name of a subvolume lies that is not there.
    pub(crate) fn note_absent(&self, absent: RootId, directory: ObjectId) {
        self.absent.lock().insert(absent, directory);
    }

    /// The directory that [`note_absent`](Self::note_absent) was told.
    pub(crate) fn place_of_absent(&self, absent: RootId) -> Option<ObjectId> {
        self.absent.lock().get(&absent).copied()
    }

    /// Whether it takes no changes.
    #[must_use]
    pub fn is_read_only(&self) -> bool {
        self.tree().item().is_read_only()
    }

    /// Whether it was deleted since it came into memory.
    #[must_use]
    pub fn is_deleted(&self) -> bool {
        self.files.is_deleted()
    }

    pub(crate) fn mark_deleted(&self) {
        self.files.mark_deleted();
    }

    /// Whether a stream is being made into it: then nobody else is to see what it holds, lest they keep what
    /// the next command changes.
    #[must_use]
    pub fn is_being_received(&self) -> bool {
        self.is_being_received.load(Ordering::Acquire)
    }

    /// A number for a new inode.
    pub(crate) fn allocate_inode_number(&self, engine: &Engine) -> Result<ObjectId> {
        let mut next = self.next_inode.lock();
        let number = match *next {
            Some(number) => number,
            None => self.highest_inode_number(engine)?.saturating_add(1),
        };
        if number > ObjectId::LAST_FREE.0 {
            return Err(Refusal::NoSpace.into());
        }
        *next = Some(number + 1);
        Ok(ObjectId(number))
    }

    /// The highest object id of an inode in the tree. Every inode but one that never had a name has an item
    /// in the tree itself, and those without a name have their orphan item, so nothing pending can be missed
    /// that could come back.
    fn highest_inode_number(&self, engine: &Engine) -> Result<u64> {
        let last = Key::new(ObjectId::LAST_FREE, ItemType(u8::MAX), u64::MAX);
        let found = engine.forest().trees().floor(self.tree().root(), &last)?;
        Ok(found.map_or(0, |position| position.key().objectid.0).max(ObjectId::FIRST_FREE.0))
    }
}

/// A place in a subvolume's tree, for errors.
pub(crate) fn place_in_tree(subvolume: &Subvolume, key: Key) -> Place {
    Place { tree: Some(subvolume.id()), key: Some(key), ..Place::default() }
}
