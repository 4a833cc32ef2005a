//! What the data of all files of one file system share: the engine, unflushed data, limits.

use vlinder_base::sync::Arc;
use vlinder_transaction::{ChangeKind, Charge, Engine, Handle, Reservation};

use super::dirty_nodes::{DirtyNodes, ListChange};
use super::file_node::FileNode;
use super::held::Budget;
use super::room_attempts::Attempts;
use super::write_back::WriteBack;
use crate::Result;
use crate::background_wake::Background;
use crate::inode::InodeState;
use crate::options::{CompressOption, OpenOptions};

/// The options of a file system that say how data are read and stored.
#[derive(Clone, Copy, Debug)]
pub(super) struct DataOptions {
    /// How new data are compressed where the file does not say so itself.
    pub(super) compress: Option<CompressOption>,
    /// The most bytes that a file has which lies in its tree.
    pub(super) max_inline_bytes: u64,
    /// The file system was opened to be read alone.
    pub(super) read_only: bool,
    /// What is read is not compared with its checksums.
    pub(super) ignores_data_checksums: bool,
}

/// The file data of a file system.
pub(crate) struct FileStore {
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
    pub(crate) fn new(engine: Arc<Engine>, options: &OpenOptions) -> Self {
        Self {
            engine,
            options: DataOptions {
                compress: options.compress,
                max_inline_bytes: options.max_inline_bytes,
                read_only: options.read_only,
                ignores_data_checksums: options.rescue.ignores_data_checksums,
            },
            write_back: WriteBack::new(options),
            read_ahead: Budget::default(),
            dirty: DirtyNodes::default(),
            attempts: Attempts::default(),
            background: Arc::default(),
        }
    }

    pub(crate) fn engine(&self) -> &Arc<Engine> {
        &self.engine
    }

    pub(super) fn options(&self) -> &DataOptions {
        &self.options
    }

    /// Whether the file system as a whole takes no changes.
    pub(crate) fn is_read_only(&self) -> bool {
        self.options.read_only || self.engine.read_only_reason().is_some()
    }

    /// Bytes of a sector: the unit of data.
    pub(crate) fn sector_size(&self) -> u32 {
        self.engine.sector_size()
    }

    /// Unflushed data.
    pub(crate) fn write_back(&self) -> &WriteBack {
        &self.write_back
    }

    pub(super) fn read_ahead(&self) -> &Budget {
        &self.read_ahead
    }

    /// Files whose inode items the next commit has to take.
    pub(crate) fn dirty(&self) -> &DirtyNodes {
        &self.dirty
    }

    /// What the last attempt to make room left behind.
    pub(crate) fn attempts(&self) -> &Attempts {
        &self.attempts
    }

    /// What the thread in the background waits for.
    pub(crate) fn background(&self) -> &Arc<Background> {
        &self.background
    }

    /// Joins a transaction for data whose space is promised: where there is no room for metadata any more,
    /// the reserve is drawn on, because what was accepted from a caller must not be lost.
    pub(super) fn begin_flush(&self, changes: Charge) -> Result<Handle<'_>> {
        Ok(self.engine.begin(Reservation::accepted(0).and(changes).of(ChangeKind::Flush))?)
    }

    /// Notes that a file's inode item changed without a transaction: the next commit takes it.
    pub(crate) fn mark_dirty(&self, node: &Arc<FileNode>, state: &mut InodeState) {
        if !state.dirty {
            state.dirty = true;
            let ListChange { added, dropped } = self.dirty.add(node);
            self.engine.awaited_items().add(added);
            self.engine.awaited_items().release(dropped);
        }
    }
}
