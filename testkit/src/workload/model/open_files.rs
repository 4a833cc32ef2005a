//! Which files are open.

use std::collections::BTreeMap;

use rustix::io::Errno;

use super::node::FileId;
use crate::workload::operation::OpenSlot;

/// Open files by slot.
#[derive(Clone, Debug, Default)]
pub(super) struct OpenFiles(BTreeMap<OpenSlot, FileId>);

impl OpenFiles {
    pub(super) fn file(&self, slot: OpenSlot) -> Option<FileId> {
        self.0.get(&slot).copied()
    }

    /// Refuses a slot in which something is open.
    pub(super) fn check_free(&self, slot: OpenSlot) -> Result<(), Errno> {
        if self.0.contains_key(&slot) { Err(Errno::MFILE) } else { Ok(()) }
    }

    /// Refuses a slot in which nothing is open; gives the file.
    pub(super) fn check_open(&self, slot: OpenSlot) -> Result<FileId, Errno> {
        self.file(slot).ok_or(Errno::BADF)
    }

    /// Whether a file is open in any slot.
    pub(super) fn holds(&self, file: FileId) -> bool {
        self.0.values().any(|open| *open == file)
    }

    pub(super) fn insert(&mut self, slot: OpenSlot, file: FileId) {
        self.0.insert(slot, file);
    }

    pub(super) fn remove(&mut self, slot: OpenSlot) -> Option<FileId> {
        self.0.remove(&slot)
    }

    pub(super) fn slots(&self) -> Vec<OpenSlot> {
        self.0.keys().copied().collect()
    }
}
