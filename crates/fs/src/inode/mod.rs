//! An inode in memory, its locks, and how its item gets to disk.

pub(crate) mod cache;
pub(crate) mod dirty;
pub(crate) mod load;
mod placeholder;

use core::fmt;

use vlinder_base::sync::atomic::{AtomicBool, Ordering};
use vlinder_base::sync::{Arc, Mutex, RwLock};
use vlinder_format::directory::DirectoryIndex;
use vlinder_format::inode::{FileType, InodeFlags, InodeItem, Timestamp};
use vlinder_format::{Generation, ObjectId, RootId};
use vlinder_transaction::Handle;

use crate::Result;
use crate::attributes::Attributes;
use crate::data::FileData;
use crate::subvolume::Subvolume;

/// Which file: a subvolume and the number of an inode in it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct InodeId {
    /// The subvolume.
    pub root: RootId,
    /// The inode number; a subvolume's root directory is 256.
    pub number: ObjectId,
    /// The subvolume that is not there, for what its name shows in a snapshot of its parent. All of these
    /// have the number [`ObjectId::EMPTY_SUBVOLUME_DIRECTORY`]; this tells those of one snapshot apart.
    pub absent: Option<RootId>,
}

impl InodeId {
    /// A file of a subvolume.
    #[must_use]
    pub const fn new(root: RootId, number: ObjectId) -> Self {
        Self { root, number, absent: None }
    }

    /// What stands in a subvolume for another, `absent`, whose name is there without it.
    #[must_use]
    pub const fn placeholder(root: RootId, absent: RootId) -> Self {
        Self { root, number: ObjectId::EMPTY_SUBVOLUME_DIRECTORY, absent: Some(absent) }
    }

    /// The root directory of a subvolume.
    #[must_use]
    pub const fn root_of(root: RootId) -> Self {
        Self::new(root, ObjectId::FIRST_FREE)
    }

    /// Whether this is the root directory of a subvolume.
    #[must_use]
    pub fn is_subvolume_root(self) -> bool {
        self.number == ObjectId::FIRST_FREE
    }
}

impl fmt::Display for InodeId {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "inode {} of subvolume {}", self.number, self.root)
    }
}

/// Longer than bytes stay in the kernel's cache (`dirty_expire_interval` and `dirty_writeback_interval`: 35
/// seconds).
const LONGEST_DIRTY_SECONDS: i64 = 60;

/// What changes about an inode, under [`Inode::state`].
#[derive(Debug)]
pub struct InodeState {
    /// The inode item as memory has it: `size_bytes` of a regular file is the size that readers see.
    pub item: InodeItem,
    /// The size that the item on disk gets: of a regular file up to where the data are written (Linux's
    /// `disk_i_size`), else equal to `item.size_bytes`.
    pub disk_size: u64,
    /// The item differs from what a transaction was given; the commit asks for it through the participant.
    pub dirty: bool,
    /// The index that the next name of this directory gets; none until it was looked up.
    pub next_index: Option<DirectoryIndex>,
    /// How often the inode is open.
    pub opens: u32,
    /// An orphan item says that the inode has no names and awaits deletion.
    pub orphan: bool,
    /// It was made without a name, and may get its first one; what lost its last name may not.
    pub linkable: bool,
    /// The inode is gone; only handles to this value remain.
    pub deleted: bool,
    /// When a cache that keeps the file's times handed them over last.
    pub(crate) times_came: Option<Timestamp>,
    /// The value of `btrfs.compression`, as far as it was read.
    pub(crate) compression: Option<crate::property::CompressionProperty>,
    /// It is known that there are no file capabilities.
    pub(crate) no_capability: bool,
    /// The ACLs, as far as they were read.
    pub(crate) acl: crate::permission::AclCache,
}

/// An inode in memory. One `Arc` for each [`InodeId`] at a time.
pub struct Inode {
    id: InodeId,
    subvolume: Arc<Subvolume>,
    file_type: FileType,
    /// Held by each operation, as Linux holds `i_rwsem`: shared by look-ups, reads and writes of whole
    /// sectors inside the file, exclusively by whatever else changes names, data or attributes.
    pub operation: RwLock<()>,
    /// What changes; see the head of the crate for when it may be held.
    pub state: Mutex<InodeState>,
    /// What is in memory of the file's data.
    pub data: FileData,
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
        Self {
            id,
            subvolume,
            file_type,
            operation: RwLock::new(()),
            state: Mutex::new(InodeState::new(item)),
            data: FileData::new(),
            used: AtomicBool::new(false),
        }
    }

    /// Which inode.
    #[must_use]
    pub fn id(&self) -> InodeId {
        self.id
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
        self.state.lock().item.size_bytes
    }

    /// Whether it is open.
    pub(crate) fn is_open(&self) -> bool {
        self.state.lock().opens > 0
    }

    /// The flags.
    #[must_use]
    pub fn flags(&self) -> InodeFlags {
        self.state.lock().item.flags
    }

    /// Whether the file has a set-id bit.
    #[must_use]
    pub fn has_set_id(&self) -> bool {
        !self.is_directory() && self.state.lock().item.mode.permissions() & 0o6000 != 0
    }

    /// The size that readers see, and the flags.
    #[must_use]
    pub fn size_and_flags(&self) -> (u64, InodeFlags) {
        let state = self.state.lock();
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
        Ok(handle.charge_pending(self.subvolume.tree(), &[InodeItem::key(self.number())])?)
    }

    /// Gives the inode's item, as `state` has it, to a transaction: the last step of each operation that
    /// changes it. Sets `transid` as Linux does at each update of an inode. An inode that is gone stays so.
    pub fn put(&self, handle: &mut Handle<'_>, state: &mut InodeState) {
        state.dirty = false;
        if state.deleted {
            return;
        }
        state.item.transaction = handle.generation();
        self.subvolume.note_change(handle);
        handle.put_pending(self.subvolume.tree(), InodeItem::key(self.number()), state.encode());
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

impl InodeState {
    fn new(item: InodeItem) -> Self {
        Self {
            item,
            disk_size: item.size_bytes,
            dirty: false,
            next_index: None,
            opens: 0,
            orphan: false,
            linkable: false,
            deleted: false,
            times_came: None,
            compression: None,
            no_capability: false,
            acl: Default::default(),
        }
    }

    /// Sets the size in memory and on disk: for anything but a write that is not on disk yet.
    pub fn set_size(&mut self, size_bytes: u64) {
        self.item.size_bytes = size_bytes;
        self.disk_size = size_bytes;
    }

    /// The inode changed at a time: sets its ctime and counts the change (`i_version`), as Linux does
    /// together.
    pub(crate) fn note_change(&mut self, time: Timestamp) {
        self.item.change_time = time;
        self.item.sequence = self.item.sequence.wrapping_add(1);
    }

    /// A cache handed over bytes that were written before `now`, and hands over when by itself. Where that is
    /// lost (a power cut comes between, or a signal ends the kernel's request, which it does not repeat), new
    /// bytes would lie under an old time for good; so an old time becomes that of the bytes' coming. One of
    /// the [last minute](LONGEST_DIRTY_SECONDS) stays: bytes and their time overtake each other, and of bytes
    /// written within the tick of the file's last change no time comes. Whether the times moved.
    pub(crate) fn note_late_content(&mut self, now: Timestamp) -> bool {
        let item = &mut self.item;
        let is_new = |time: Timestamp| now.seconds.saturating_sub(time.seconds) < LONGEST_DIRTY_SECONDS;
        let is_late = !is_new(item.modification_time) && !self.times_came.is_some_and(is_new);
        if is_late {
            item.modification_time = now;
            item.change_time = item.change_time.max(now);
        }
        is_late
    }

    /// The file's data or a directory's names changed at a time: as [`note_change`](Self::note_change), and
    /// its mtime.
    pub(crate) fn note_content_change(&mut self, time: Timestamp) {
        self.item.modification_time = time;
        self.note_change(time);
    }

    /// The bytes of the inode item, with the size that belongs on disk.
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        let mut item = self.item;
        item.size_bytes = self.disk_size;
        item.encode().to_vec()
    }

    pub(crate) fn attributes(&self, inode: &Inode, sector_size: u32, unwritten_bytes: u64) -> Attributes {
        let item = &self.item;
        let sector = u64::from(sector_size.max(1));
        let whole = |bytes: u64| bytes.checked_next_multiple_of(sector).unwrap_or(bytes);
        Attributes {
            id: inode.id,
            generation: item.generation,
            file_type: inode.file_type,
            mode: item.mode,
            user: item.user,
            group: item.group,
            link_count: item.link_count,
            size_bytes: item.size_bytes,
            allocated_bytes: whole(item.allocated_bytes).saturating_add(whole(unwritten_bytes)),
            block_size: sector_size,
            device_number: item.device_number,
            access_time: item.access_time,
            modification_time: item.modification_time,
            change_time: item.change_time,
            birth_time: item.birth_time,
            flags: item.flags,
            sequence: item.sequence,
        }
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

#[cfg(test)]
mod tests {
    use super::*;

    fn at(seconds: i64) -> Timestamp {
        Timestamp { seconds, nanoseconds: 0 }
    }

    #[test]
    fn an_old_time_moves_with_late_bytes_and_a_new_one_waits_for_the_cache() {
        let late = |modified, came, now| {
            let mut state =
                InodeState::new(InodeItem { modification_time: at(modified), ..InodeItem::default() });
            state.times_came = came;
            let moved = state.note_late_content(at(now));
            assert_eq!(moved, state.item.modification_time != at(modified));
            state.item.modification_time
        };
        assert_eq!(late(1000, None, 1059), at(1000));
        assert_eq!(late(1000, None, 1060), at(1060));
        assert_eq!(late(1000, Some(at(4000)), 4059), at(1000), "a user set an old time");
        assert_eq!(late(1000, Some(at(4000)), 4060), at(4060));
        assert_eq!(late(9000, None, 1060), at(9000), "a time in the future");
    }
}
