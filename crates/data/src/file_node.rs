//! A file as its data see it: which one, the tree of its items, its inode item with sizes and flags, and what
//! of its data is in memory.

use core::fmt;

use vlinder_base::sync::{Arc, Mutex, MutexGuard};
use vlinder_forest::OpenTree;
use vlinder_format::ObjectId;
use vlinder_format::inode::{InodeFlags, InodeItem};
use vlinder_transaction::Handle;

use crate::Result;
use crate::file_data::FileData;
use crate::file_tree::FileTree;
use crate::ids::InodeId;
use crate::inode_state::InodeState;

/// A file in memory without its names. One `Arc` for each [`InodeId`] at a time.
pub struct FileNode {
    id: InodeId,
    files: Arc<FileTree>,
    /// See the head of the crate for when it may be held.
    state: Mutex<InodeState>,
    data: FileData,
}

impl fmt::Debug for FileNode {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(&self.id, formatter)
    }
}

impl FileNode {
    /// A file with this inode item, of which nothing is in memory yet.
    #[must_use]
    pub fn new(files: Arc<FileTree>, id: InodeId, item: InodeItem) -> Self {
        Self { id, files, state: Mutex::new(InodeState::new(item)), data: FileData::new() }
    }

    /// Which file.
    pub(crate) fn id(&self) -> InodeId {
        self.id
    }

    /// The number of its inode.
    pub(crate) fn number(&self) -> ObjectId {
        self.id.number
    }

    /// What the files of its subvolume share.
    pub(crate) fn files(&self) -> &FileTree {
        &self.files
    }

    /// The tree in which its items lie.
    pub(crate) fn tree(&self) -> &Arc<OpenTree> {
        self.files.tree()
    }

    /// What is in memory of its data.
    pub fn data(&self) -> &FileData {
        &self.data
    }

    /// What changes about it, locked.
    pub fn state(&self) -> MutexGuard<'_, InodeState> {
        self.state.lock()
    }

    /// As [`state`](Self::state), if nobody has it locked.
    pub(crate) fn try_state(&self) -> Option<MutexGuard<'_, InodeState>> {
        self.state.try_lock()
    }

    /// The size that readers see.
    pub(crate) fn size(&self) -> u64 {
        self.state.lock().item.size_bytes
    }

    /// The flags.
    pub(crate) fn flags(&self) -> InodeFlags {
        self.state.lock().item.flags
    }

    /// The size that readers see, and the flags.
    pub(crate) fn size_and_flags(&self) -> (u64, InodeFlags) {
        let state = self.state.lock();
        (state.item.size_bytes, state.item.flags)
    }

    /// Makes sure of room for the inode's item where it will lie: a copy of a leaf that a snapshot shares
    /// adds a reference for each extent there. To be called before anything changes by each handle that
    /// [puts](Self::put) the item and does not count it among its changes.
    ///
    /// # Errors
    /// No space; what reading met.
    pub fn charge_item(&self, handle: &mut Handle<'_>) -> Result<()> {
        Ok(handle.charge_pending(self.tree(), &[InodeItem::key(self.number())])?)
    }

    /// Gives the inode's item, as `state` has it, to a transaction: the last step of each operation that
    /// changes it. Sets `transid` as Linux does at each update of an inode. An inode that is gone stays so.
    pub fn put(&self, handle: &mut Handle<'_>, state: &mut InodeState) {
        state.dirty = false;
        if state.deleted {
            return;
        }
        state.item.transaction = handle.generation();
        self.files.note_change(handle);
        handle.put_pending(self.tree(), InodeItem::key(self.number()), state.encode());
    }
}
