//! What the data of all files of one file system share: the engine, unflushed data, limits.

use vlinder_base::metrics::Registry;
use vlinder_base::sync::Arc;
use vlinder_transaction::{ChangeKind, Charge, Engine, Handle, Reservation};

use crate::Result;
use crate::background_wake::Background;
use crate::data_options::DataOptions;
use crate::dirty_nodes::{DirtyNodes, ListChange};
use crate::drops::Drops;
use crate::file_node::FileNode;
use crate::held::Budget;
use crate::inode_state::InodeState;
use crate::room_attempts::Attempts;
use crate::write_back::WriteBack;

/// The file data of a file system.
pub struct FileStore {
    engine: Arc<Engine>,
    options: DataOptions,
    write_back: WriteBack,
    /// What open files may hold of data that were read ahead.
    read_ahead: Budget,
    /// Files whose inode items changed outside a transaction.
    dirty: DirtyNodes,
    attempts: Attempts,
    /// What the thread in the background waits for.
    background: Arc<Background>,
}

impl FileStore {
    /// Nothing is in memory yet. Counters go into `registry`.
    #[must_use]
    pub fn new(engine: Arc<Engine>, options: DataOptions, registry: &Registry) -> Self {
        Self {
            engine,
            options,
            write_back: WriteBack::new(&options, registry),
            read_ahead: Budget::default(),
            dirty: DirtyNodes::default(),
            attempts: Attempts::default(),
            background: Arc::default(),
        }
    }

    /// The engine in whose transactions data change.
    #[must_use]
    pub fn engine(&self) -> &Arc<Engine> {
        &self.engine
    }

    pub(crate) fn options(&self) -> &DataOptions {
        &self.options
    }

    /// Whether the file system as a whole takes no changes.
    pub fn is_read_only(&self) -> bool {
        self.options.read_only || self.engine.read_only_reason().is_some()
    }

    /// Bytes of a sector: the unit of data.
    pub fn sector_size(&self) -> u32 {
        self.engine.sector_size()
    }

    /// Unflushed data.
    pub(crate) fn write_back(&self) -> &WriteBack {
        &self.write_back
    }

    pub(crate) fn read_ahead(&self) -> &Budget {
        &self.read_ahead
    }

    /// Files whose inode items the next commit has to take.
    pub(crate) fn dirty(&self) -> &DirtyNodes {
        &self.dirty
    }

    /// The counter of what is dropped by changes, which each [`FileTree`](crate::FileTree) shares.
    #[must_use]
    pub fn drops(&self) -> &Drops {
        self.attempts.drops()
    }

    /// Bytes in memory that no extent holds yet.
    #[must_use]
    pub fn unflushed_bytes(&self) -> u64 {
        self.write_back.bytes()
    }

    /// Bytes that were accepted and could not be stored when that was tried last.
    #[must_use]
    pub fn held_bytes(&self) -> u64 {
        self.write_back.files().iter().map(|node| node.data().unflushed().held_bytes()).sum()
    }

    /// What the last attempt to make room left behind.
    pub(crate) fn attempts(&self) -> &Attempts {
        &self.attempts
    }

    /// What the thread in the background waits for.
    pub fn background(&self) -> &Arc<Background> {
        &self.background
    }

    /// Joins a transaction for data whose space is promised: where there is no room for metadata any more,
    /// the reserve is drawn on, because what was accepted from a caller must not be lost.
    pub(crate) fn begin_flush(&self, changes: Charge) -> Result<Handle<'_>> {
        Ok(self.engine.begin(Reservation::accepted(0).and(changes).of(ChangeKind::Flush))?)
    }

    /// Notes that a file's inode item changed without a transaction: the next commit takes it.
    pub fn mark_dirty(&self, node: &Arc<FileNode>, state: &mut InodeState) {
        if !state.dirty {
            state.dirty = true;
            let ListChange { added, dropped } = self.dirty.add(node);
            self.engine.awaited_items().add(added);
            self.engine.awaited_items().release(dropped);
        }
    }
}
