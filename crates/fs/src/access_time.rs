//! When reading moves the access time.

use vlinder_base::sync::Arc;
use vlinder_base::sync::atomic::{AtomicBool, Ordering};
use vlinder_data::FileStore;
use vlinder_format::inode::InodeFlags;

use crate::inode::Inode;
use crate::options::{AccessTimes, OpenOptions};
use crate::permission::Rights;
use crate::stamp::now;

/// An access time this old is renewed even without a change (`relatime`).
const DAY_SECONDS: i64 = 24 * 60 * 60;

/// What the options say of access times.
pub(crate) struct AccessTimeRule {
    times: AccessTimes,
    /// Those of directories move too.
    of_directories: bool,
    /// Reading changes nothing, whatever the options say.
    held: AtomicBool,
}

impl AccessTimeRule {
    pub(crate) fn new(options: &OpenOptions) -> Self {
        let held = AtomicBool::new(false);
        Self { times: options.access_times, of_directories: options.directory_access_times, held }
    }

    /// Whether all stay as they are.
    pub(crate) fn hold(&self, hold: bool) {
        self.held.store(hold, Ordering::Release);
    }

    /// A file was read, or a directory listed: its access time follows the options. The change waits for the
    /// commit.
    pub(crate) fn note_access(&self, store: &FileStore, rights: &Rights, inode: &Arc<Inode>) {
        let times = self.times;
        if times == AccessTimes::Never
            || (inode.is_directory() && !self.of_directories)
            || inode.is_placeholder()
            || self.held.load(Ordering::Acquire)
            || rights.check_writable(inode.subvolume()).is_err()
        {
            return;
        }
        let recently = store.engine().clock().recently();
        let mut state = inode.state();
        let item = &state.item;
        let is_due = times == AccessTimes::Strict
            || item.access_time <= item.modification_time
            || item.access_time <= item.change_time
            || recently.seconds.saturating_sub(item.access_time.seconds) >= DAY_SECONDS;
        if item.flags.has(InodeFlags::NOATIME) || state.deleted || !is_due {
            return;
        }
        // As in Linux, a full file system keeps its access times: reading must not fail, nor take what a
        // commit needs.
        if !state.dirty && !store.engine().awaited_items().has_room() {
            return;
        }
        state.item.access_time = now(store.engine());
        store.mark_dirty(inode.node(), &mut state);
    }
}
