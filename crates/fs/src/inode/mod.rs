//! An inode in memory, its locks, and how its item gets to disk.

pub(crate) mod cache;
pub(crate) mod items;
pub(crate) mod permission_cache;
mod placeholder;
pub(crate) mod table;

use core::fmt;

use vlinder_base::sync::atomic::{AtomicBool, Ordering};
use vlinder_base::sync::{Arc, Mutex, MutexGuard, RwLock};
use vlinder_data::{FileData, FileNode, InodeId, InodeState};
use vlinder_format::inode::{FileType, InodeFlags, InodeItem, Timestamp};
use vlinder_format::{Generation, ObjectId};
use vlinder_transaction::Handle;

use self::permission_cache::PermissionCache;
use crate::Result;
use crate::subvolume::Subvolume;

/// An inode in memory. One `Arc` for each [`InodeId`] at a time.
pub struct Inode {
    id: InodeId,
    subvolume: Arc<Subvolume>,
    file_type: FileType,
    /// Held by each operation, as Linux holds `i_rwsem`: shared by look-ups, reads and writes of whole
    /// sectors inside the file, exclusively by whatever else changes names, data or attributes.
    pub operation: RwLock<()>,
    /// What its data know of it.
    node: Arc<FileNode>,
    /// What is remembered for its permissions. It is locked last, also under the state.
    permissions: Mutex<PermissionCache>,
    /// Somebody asked for it since the cache looked for something to forget.
    used: AtomicBool,
}

impl fmt::Debug for Inode {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(&self.id, formatter)
    }
}

impl Inode {
    pub(crate) fn new(subvolume: Arc<Subvolume>, id: InodeId, file_type: FileType, item: InodeItem) -> Self {
        let node = Arc::new(FileNode::new(Arc::clone(subvolume.files()), id, item));
        Self {
            id,
            node,
            subvolume,
            file_type,
            operation: RwLock::new(()),
            permissions: Mutex::default(),
            used: AtomicBool::new(false),
        }
    }

    /// Which inode.
    #[must_use]
    pub fn id(&self) -> InodeId {
        self.id
    }

    /// The file as its data see it.
    pub(crate) fn node(&self) -> &Arc<FileNode> {
        &self.node
    }

    /// What changes, locked; see the head of the crate for when it may be held.
    pub fn state(&self) -> MutexGuard<'_, InodeState> {
        self.node.state()
    }

    /// What is remembered for its permissions, locked. What changes it together with the state locks the
    /// state first.
    pub(crate) fn permissions(&self) -> MutexGuard<'_, PermissionCache> {
        self.permissions.lock()
    }

    /// What is in memory of the file's data.
    #[must_use]
    pub fn data(&self) -> &FileData {
        self.node.data()
    }

    /// Its number.
    #[must_use]
    pub fn number(&self) -> ObjectId {
        self.id.number
    }

    /// Its subvolume.
    #[must_use]
    pub fn subvolume(&self) -> &Arc<Subvolume> {
        &self.subvolume
    }

    /// Its type, which never changes.
    #[must_use]
    pub fn file_type(&self) -> FileType {
        self.file_type
    }

    /// Whether it is a directory.
    #[must_use]
    pub fn is_directory(&self) -> bool {
        self.file_type == FileType::Directory
    }

    /// Whether it stands for a nested subvolume that is not there: an empty directory that keeps no changes.
    #[must_use]
    pub fn is_placeholder(&self) -> bool {
        self.id.absent.is_some()
    }

    /// The size that readers see.
    #[must_use]
    pub fn size(&self) -> u64 {
        self.state().item.size_bytes
    }

    /// Whether it is open.
    pub(crate) fn is_open(&self) -> bool {
        self.state().opens > 0
    }

    /// The flags.
    #[must_use]
    pub fn flags(&self) -> InodeFlags {
        self.state().item.flags
    }

    /// Whether the file has a set-id bit.
    #[must_use]
    pub fn has_set_id(&self) -> bool {
        !self.is_directory() && self.state().item.mode.permissions() & 0o6000 != 0
    }

    /// The size that readers see, and the flags.
    #[must_use]
    pub fn size_and_flags(&self) -> (u64, InodeFlags) {
        let state = self.state();
        (state.item.size_bytes, state.item.flags)
    }

    /// Makes sure of room for the inode's item where it will lie: a copy of a leaf that a snapshot shares
    /// adds a reference for each extent there. To be called before anything changes by each handle that
    /// [puts](Self::put) the item and does not [count it among its
    /// changes](crate::changes::Changes::touch_inode).
    ///
    /// # Errors
    /// No space; what reading met.
    pub(crate) fn charge_item(&self, handle: &mut Handle<'_>) -> Result<()> {
        Ok(self.node.charge_item(handle)?)
    }

    /// Gives the inode's item, as `state` has it, to a transaction: the last step of each operation that
    /// changes it. Sets `transid` as Linux does at each update of an inode. An inode that is gone stays so.
    pub fn put(&self, handle: &mut Handle<'_>, state: &mut InodeState) {
        self.node.put(handle, state);
    }

    pub(crate) fn note_use(&self) {
        // Most are marked already, and a line that is only read stays in every core's cache.
        if !self.used.load(Ordering::Relaxed) {
            self.used.store(true, Ordering::Relaxed);
        }
    }

    pub(crate) fn take_use(&self) -> bool {
        self.used.load(Ordering::Relaxed) && self.used.swap(false, Ordering::Relaxed)
    }
}

/// The item of a new inode.
pub(crate) fn new_item(generation: Generation, template: InodeItem, now: Timestamp) -> InodeItem {
    InodeItem {
        generation,
        transaction: generation,
        access_time: now,
        change_time: now,
        modification_time: now,
        birth_time: now,
        ..template
    }
}
