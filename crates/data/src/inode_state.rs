//! What changes about an inode, and the rules of its times and sizes.

use vlinder_format::directory::DirectoryIndex;
use vlinder_format::inode::{InodeItem, Timestamp};

use crate::compression_property::CompressionProperty;

/// Longer than bytes stay in the kernel's cache (`dirty_expire_interval` and `dirty_writeback_interval`: 35
/// seconds).
const LONGEST_DIRTY_SECONDS: i64 = 60;

/// What changes about an inode, under [`FileNode::state`](crate::FileNode::state).
///
/// It is one struct under one lock, with what only names need in it too ([`next_index`](Self::next_index),
/// [`opens`](Self::opens), [`orphan`](Self::orphan), [`linkable`](Self::linkable)): whether an inode may
/// leave memory, or be deleted, depends on both halves as they are at one moment.
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
    pub times_came: Option<Timestamp>,
    /// The value of `btrfs.compression`, as far as it was read.
    pub compression: Option<CompressionProperty>,
}

impl InodeState {
    pub(crate) fn new(item: InodeItem) -> Self {
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
        }
    }

    /// Sets the size in memory and on disk: for anything but a write that is not on disk yet.
    pub fn set_size(&mut self, size_bytes: u64) {
        self.item.size_bytes = size_bytes;
        self.disk_size = size_bytes;
    }

    /// The inode changed at a time: sets its ctime and counts the change (`i_version`), as Linux does
    /// together.
    pub fn note_change(&mut self, time: Timestamp) {
        self.item.change_time = time;
        self.item.sequence = self.item.sequence.wrapping_add(1);
    }

    /// A cache handed over bytes that were written before `now`, and hands over when by itself. Where that is
    /// lost (a power cut comes between, or a signal ends the kernel's request, which it does not repeat), new
    /// bytes would lie under an old time for good; so an old time becomes that of the bytes' coming. One of
    /// the [last minute](LONGEST_DIRTY_SECONDS) stays: bytes and their time overtake each other, and of bytes
    /// written within the tick of the file's last change no time comes. Whether the times moved.
    pub fn note_late_content(&mut self, now: Timestamp) -> bool {
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
    pub fn note_content_change(&mut self, time: Timestamp) {
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

    /// The compression that new data get from now on, with the flags that go with it.
    pub fn set_compression(&mut self, property: CompressionProperty) {
        self.item.flags = property.flags(self.item.flags);
        self.compression = Some(property);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(seconds: i64) -> Timestamp {
        Timestamp { seconds, nanoseconds: 0 }
    }

    #[test]
    fn an_old_time_moves_with_late_bytes_and_a_new_one_waits() {
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
