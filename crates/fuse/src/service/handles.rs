//! Open files and directories by the numbers that the kernel was given.
//!
//! Invariants, and the function that keeps each:
//! 1. A number is given once in the life of a mount ([`Handles::insert_file`],
//!    [`Handles::insert_directory`]).
//! 2. A file is among the written ones from before its handle has a number ([`Handles::insert_file`]) until
//!    its last handle for writing was removed ([`Handles::remove`]).
//! 3. Nothing is closed with a lock held: a close may delete the file ([`Handles::remove`],
//!    [`Handles::clear`]).

use std::collections::HashMap;

use rustix::io::Errno;
use vlinder_base::sync::atomic::{AtomicU64, Ordering};
use vlinder_base::sync::{Arc, Mutex, RwLock};
use vlinder_fs::data::OpenCache;
use vlinder_fs::{InodeId, OpenDirectory, OpenInode};

use super::gate::Told;
use crate::transport::{HandleNumber, Reply};

/// An open file.
pub(super) struct OpenFile {
    pub(super) open: OpenInode,
    /// It was opened for writing: the kernel may have dirty pages of it.
    pub(super) writes: bool,
    /// It was opened for reading. Where it was not, the kernel still reads pages of which a write changes a
    /// part.
    pub(super) reads: bool,
    /// The kernel's cache is passed by.
    pub(super) past_cache: bool,
    pub(super) cache: OpenCache,
    /// The refused bytes of which write(2) told.
    pub(super) told: Told,
}

/// What a file is opened for.
#[derive(Clone, Copy)]
pub(super) struct FileAccess {
    pub(super) reads: bool,
    pub(super) writes: bool,
    /// Whether the kernel's cache is passed by.
    pub(super) past_cache: bool,
}

/// An open directory.
pub(super) struct Listing {
    pub(super) open: OpenDirectory,
    /// The kernel asked for names: until then a listing shows what is made.
    pub(super) was_read: bool,
    /// The last answer said that there are no more names, though there are some that were made since the
    /// listing began.
    pub(super) ended_early: bool,
}

#[derive(Clone)]
enum Handle {
    File(Arc<OpenFile>),
    Directory(Arc<Mutex<Listing>>),
}

/// All that is open.
#[derive(Default)]
pub(super) struct Handles {
    open: RwLock<HashMap<u64, Handle>>,
    last: AtomicU64,
    /// How many handles of a file are open for writing.
    writers: Mutex<HashMap<InodeId, u32>>,
}

impl Handles {
    fn insert(&self, handle: Handle) -> HandleNumber {
        let number = self.last.fetch_add(1, Ordering::Relaxed) + 1;
        self.open.write().insert(number, handle);
        HandleNumber(number)
    }

    pub(super) fn insert_file(&self, open: OpenInode, access: FileAccess, told: Told) -> HandleNumber {
        if access.writes {
            *self.writers.lock().entry(open.inode().id()).or_default() += 1;
        }
        let FileAccess { reads, writes, past_cache } = access;
        let file = OpenFile { open, writes, reads, past_cache, cache: OpenCache::new(), told };
        self.insert(Handle::File(Arc::new(file)))
    }

    pub(super) fn insert_directory(&self, open: OpenDirectory) -> HandleNumber {
        self.insert(Handle::Directory(Arc::new(Mutex::new(Listing {
            open,
            was_read: false,
            ended_early: false,
        }))))
    }

    pub(super) fn file(&self, number: HandleNumber) -> Reply<Arc<OpenFile>> {
        match self.open.read().get(&number.0) {
            Some(Handle::File(file)) => Ok(Arc::clone(file)),
            _ => Err(Errno::BADF),
        }
    }

    pub(super) fn directory(&self, number: HandleNumber) -> Reply<Arc<Mutex<Listing>>> {
        match self.open.read().get(&number.0) {
            Some(Handle::Directory(directory)) => Ok(Arc::clone(directory)),
            _ => Err(Errno::BADF),
        }
    }

    /// Closes; returns the file, unless it is a directory. A file whose last user this was is dropped after
    /// the locks are released.
    pub(super) fn remove(&self, number: HandleNumber) -> Option<InodeId> {
        let removed = self.open.write().remove(&number.0);
        let Some(Handle::File(file)) = &removed else { return None };
        let id = file.open.inode().id();
        if file.writes {
            let mut writers = self.writers.lock();
            if let Some(count) = writers.get_mut(&id) {
                *count -= 1;
                if *count == 0 {
                    writers.remove(&id);
                }
            }
        }
        Some(id)
    }

    /// Whether a file is open for writing.
    pub(super) fn is_written(&self, id: InodeId) -> bool {
        self.writers.lock().contains_key(&id)
    }

    /// Whether any file is.
    pub(super) fn has_writers(&self) -> bool {
        !self.writers.lock().is_empty()
    }

    /// The files that are open for writing.
    pub(super) fn written(&self) -> Vec<InodeId> {
        self.writers.lock().keys().copied().collect()
    }

    /// Closes all: the kernel is gone.
    pub(super) fn clear(&self) {
        let all = std::mem::take(&mut *self.open.write());
        self.writers.lock().clear();
        drop(all);
    }
}
