//! Pages that the kernel keeps of files that are written past its cache.
//!
//! After a synchronous direct write the kernel drops the pages that it keeps of the range. After an
//! asynchronous one (libaio, io_uring) it does not (`fuse_direct_IO` leaves it to
//! `generic_file_direct_write`, which returns before the write is done), so buffered readers would see the
//! old bytes for ever. So the server has the kernel drop the range before it answers a direct write. Dropping
//! waits for pages that are being read, so a thread that answers nothing does it.
//!
//! Files that are read and written past the cache alone should not pay for that: after [`MAX_DROPS`] direct
//! writes without a request of the page cache, all pages of the file are dropped, and later direct writes are
//! answered at once until the page cache asks again.
//!
//! The invariant: *a file is `bare` only while the kernel keeps no page of it that is older than the last
//! answered direct write.* (1) A file is not bare at its first direct write. (2) It becomes bare after all
//! its pages were dropped, if no request of the page cache came since before that. The drop waits for pages
//! whose request came earlier. (3) A request of the page cache ends that before it reads the file, and a
//! direct write looks after it changed the file: either the write finds the file not bare, or the request
//! finds the new bytes.

use std::collections::HashMap;
use std::io;

use vlinder_base::sync::Mutex;
use vlinder_base::sync::atomic::{AtomicUsize, Ordering};
use vlinder_fs::InodeId;

/// Direct writes in a row after which the whole file is dropped.
const MAX_DROPS: u32 = 32;

/// The files with direct writes that are open for writing.
#[derive(Default)]
pub(super) struct KeptPages {
    files: Mutex<HashMap<InodeId, File>>,
    /// How many, for a look without the lock.
    count: AtomicUsize,
}

#[derive(Default)]
struct File {
    /// Requests of the page cache.
    uses: u64,
    /// Ranges dropped since the last of them.
    drops: u32,
    bare: bool,
}

/// What the kernel has to drop before a direct write is answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Drop {
    /// The range of the write.
    Range,
    /// All of the file, which had so many requests of the page cache then.
    All { uses: u64 },
}

impl KeptPages {
    /// The page cache reads or writes a file: to be said before that is done.
    pub(super) fn note_use(&self, id: InodeId) {
        if self.count.load(Ordering::SeqCst) == 0 {
            return;
        }
        if let Some(file) = self.files.lock().get_mut(&id) {
            file.uses += 1;
            file.drops = 0;
            file.bare = false;
        }
    }

    /// What has to be dropped now that a direct write has changed a file.
    pub(super) fn due(&self, id: InodeId) -> Option<Drop> {
        let mut files = self.files.lock();
        let file = files.entry(id).or_default();
        let due = if file.bare {
            None
        } else if file.drops >= MAX_DROPS {
            Some(Drop::All { uses: file.uses })
        } else {
            file.drops += 1;
            Some(Drop::Range)
        };
        self.count.store(files.len(), Ordering::SeqCst);
        due
    }

    /// Drops by means of a function that takes offset and length, 0 for all behind the offset.
    pub(super) fn carry_out(
        &self,
        id: InodeId,
        due: Drop,
        range: (u64, u64),
        drop_pages: impl FnOnce(u64, u64) -> io::Result<()>,
    ) -> io::Result<()> {
        let Drop::All { uses } = due else { return drop_pages(range.0, range.1) };
        drop_pages(0, 0)?;
        if let Some(file) = self.files.lock().get_mut(&id)
            && file.uses == uses
        {
            file.bare = true;
        }
        Ok(())
    }

    /// The last writer of a file closed it.
    pub(super) fn forget(&self, id: InodeId) {
        if self.count.load(Ordering::SeqCst) == 0 {
            return;
        }
        let mut files = self.files.lock();
        files.remove(&id);
        self.count.store(files.len(), Ordering::SeqCst);
    }
}

#[cfg(test)]
mod tests {
    use vlinder_fs::{ObjectId, RootId};

    use super::*;

    const FILE: InodeId = InodeId::new(RootId::FS_TREE, ObjectId(257));

    /// Direct writes until the whole file is to be dropped.
    fn to_the_whole(kept: &KeptPages) -> Drop {
        for _ in 0..MAX_DROPS {
            assert_eq!(kept.due(FILE), Some(Drop::Range));
        }
        kept.due(FILE).unwrap()
    }

    #[test]
    fn a_file_without_pages_is_answered_until_the_cache_asks() {
        let kept = KeptPages::default();
        let whole = to_the_whole(&kept);
        assert_eq!(whole, Drop::All { uses: 0 });
        kept.carry_out(FILE, whole, (4096, 4096), |offset, length| {
            assert_eq!((offset, length), (0, 0));
            assert_eq!(kept.due(FILE), Some(whole), "until it is done other writes drop, too");
            Ok(())
        })
        .unwrap();
        assert_eq!(kept.due(FILE), None);
        kept.note_use(FILE);
        assert_eq!(kept.due(FILE), Some(Drop::Range));
        kept.forget(FILE);
        assert_eq!(kept.due(FILE), Some(Drop::Range), "a file is not trusted at its first write");
    }

    #[test]
    fn a_request_while_pages_are_dropped_keeps_the_file_watched() {
        let kept = KeptPages::default();
        let whole = to_the_whole(&kept);
        kept.carry_out(FILE, whole, (0, 4096), |_, _| {
            kept.note_use(FILE);
            Ok(())
        })
        .unwrap();
        assert_eq!(kept.due(FILE), Some(Drop::Range));
        let broken = kept.carry_out(FILE, Drop::Range, (0, 1), |_, _| Err(io::ErrorKind::BrokenPipe.into()));
        assert!(broken.is_err());
    }
}
