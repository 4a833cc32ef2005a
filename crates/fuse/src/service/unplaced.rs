//! Bytes that the kernel handed over and that found no room.
//!
//! The kernel takes bytes that are mapped into memory without asking, and a write that was let in may be
//! longer than what is free. It forgets what the server refuses: the page is clean then, and once it leaves
//! memory its bytes are gone. So they are kept here, within `dirty=`. The refusal is told all the same, by
//! msync, fsync or close.
//!
//! Invariants:
//! 1. Readers get these bytes in place of what the file system has ([`UnplacedBytes::read_over`]).
//! 2. They are older than everything that the file system takes afterwards: what is written, cut or
//!    preallocated where they lie drops them ([`UnplacedBytes::drop_range`]).
//! 3. They are tried again when their file is to be made durable or is written to, at intervals, and at the
//!    end. A file that has some is not durable ([`UnplacedBytes::place`]).
//! 4. Retrying changes nothing newer: while bytes are held, requests that read or change files exclude the
//!    retry ([`UnplacedBytes::turn`]). A request that began while there were none is not excluded: bytes that
//!    came meanwhile are as new as the request. A page that comes again comes after its refusal was answered.
//! 5. Bytes behind the end of a file are dropped when its last writer closes it
//!    ([`UnplacedBytes::drop_refused_writes`]): they came from write(2), and the last close told the writer.
//!    Inside the file they may be mapped bytes, and stay.
//! 6. There are at most as many as `dirty=` says ([`UnplacedBytes::keep`]).

use std::collections::{BTreeMap, HashMap};

use rustix::io::Errno;
use vlinder_base::sync::atomic::{AtomicU64, Ordering};
use vlinder_base::sync::{Arc, Mutex, RwLock, RwLockReadGuard};
use vlinder_control::Unplaced;
use vlinder_fs::{Caller, Filesystem, Inode, InodeId, Standing, WriteOrigin};

use super::convert::errno;
use crate::transport::Reply;

/// The unplaced bytes of all files.
pub(super) struct UnplacedBytes {
    filesystem: Filesystem,
    /// As many may be kept.
    most_bytes: u64,
    /// How many there are.
    bytes: AtomicU64,
    files: Mutex<HashMap<InodeId, UnplacedFile>>,
    /// Held alone while bytes are tried again.
    turns: RwLock<()>,
    /// Files with refused bytes that neither a close nor a sync of the whole file system has reported yet.
    untold: Mutex<HashMap<InodeId, Untold>>,
    /// How many of them were too many to be kept, ever.
    lost_bytes: AtomicU64,
}

/// What was not told of a file yet.
#[derive(Clone, Copy, Default)]
struct Untold {
    /// Some bytes were too many to be kept.
    is_lost: bool,
    /// Some bytes could not be written for another reason, and the kernel has dropped them.
    failure: Option<Errno>,
    /// Some bytes lay inside the file and may be mapped ones. A mapping may outlive the close of its file,
    /// and no call of the program's own tells what became of bytes that come after that.
    may_be_mapped: bool,
}

/// Those of one file: parts that do not overlap, by their offsets.
struct UnplacedFile {
    inode: Arc<Inode>,
    parts: BTreeMap<u64, Vec<u8>>,
}

impl UnplacedFile {
    /// Takes a range out; returns how many bytes went.
    fn remove(&mut self, start: u64, end: u64) -> u64 {
        let mut removed = 0;
        while let Some((&at, _)) = self.parts.range(..end).next_back() {
            let Some(mut part) = self.parts.remove(&at) else { break };
            let part_end = at + part.len() as u64;
            if part_end <= start {
                self.parts.insert(at, part);
                break;
            }
            removed += part_end.min(end) - at.max(start);
            if part_end > end {
                self.parts.insert(end, part.split_off(usize::try_from(end - at).unwrap_or(part.len())));
            }
            if at < start {
                part.truncate(usize::try_from(start - at).unwrap_or(0));
                self.parts.insert(at, part);
            }
        }
        removed
    }

    fn end(&self) -> u64 {
        self.parts.last_key_value().map_or(0, |(at, part)| at + part.len() as u64)
    }
}

impl UnplacedBytes {
    /// None yet; at most so many are kept.
    pub(super) fn new(filesystem: Filesystem, most_bytes: u64) -> Self {
        Self {
            filesystem,
            most_bytes,
            bytes: AtomicU64::new(0),
            files: Mutex::default(),
            turns: RwLock::default(),
            untold: Mutex::default(),
            lost_bytes: AtomicU64::new(0),
        }
    }

    /// Whether there are none.
    pub(super) fn is_empty(&self) -> bool {
        self.bytes.load(Ordering::Relaxed) == 0
    }

    /// To be held while a file is read or changed; nothing while there are no bytes.
    pub(super) fn turn(&self) -> Option<RwLockReadGuard<'_, ()>> {
        (!self.is_empty()).then(|| self.turns.read())
    }

    /// Keeps bytes from the kernel's cache that found no room in a file that had this size before; false
    /// where there are too many already, and these are lost.
    pub(super) fn keep(&self, inode: &Arc<Inode>, size_before: u64, offset: u64, data: &[u8]) -> bool {
        // An empty part would be tried for ever: storing it removes nothing.
        if data.is_empty() {
            return true;
        }
        let mut files = self.files.lock();
        let length = data.len() as u64;
        let empty = || UnplacedFile { inode: Arc::clone(inode), parts: BTreeMap::new() };
        let file = files.entry(inode.id()).or_insert_with(empty);
        let removed = file.remove(offset, offset.saturating_add(length));
        let bytes = self.bytes.fetch_sub(removed, Ordering::Relaxed) - removed;
        let fits = bytes.saturating_add(length) <= self.most_bytes;
        if fits {
            file.parts.insert(offset, data.to_vec());
            if self.bytes.fetch_add(length, Ordering::Relaxed) == 0 && length > 0 {
                tracing::warn!(
                    "bytes from the kernel's cache find no room; they are held in memory and tried again"
                );
            }
        } else {
            if self.lost_bytes.fetch_add(length, Ordering::Relaxed) == 0 {
                tracing::error!(
                    "more bytes from the kernel's cache find no room than may be held; some are lost"
                );
            }
            if file.parts.is_empty() {
                files.remove(&inode.id());
            }
        }
        drop(files);
        let mut untold = self.untold.lock();
        let untold = untold.entry(inode.id()).or_default();
        untold.is_lost |= !fits;
        untold.may_be_mapped |= offset < size_before;
        fits
    }

    /// The file system has newer bytes of a range, or none are wanted there any more. Returns how many bytes
    /// went.
    pub(super) fn drop_range(&self, id: InodeId, start: u64, end: u64) -> u64 {
        if self.is_empty() {
            return 0;
        }
        let mut files = self.files.lock();
        let Some(file) = files.get_mut(&id) else { return 0 };
        let removed = file.remove(start, end);
        if file.parts.is_empty() {
            files.remove(&id);
        }
        if removed > 0 && self.bytes.fetch_sub(removed, Ordering::Relaxed) == removed {
            tracing::info!("no bytes from the kernel's cache wait for room any more");
        }
        removed
    }

    /// Puts a file's bytes over `target`, whose first byte is at `offset` and of which `length` bytes were
    /// read; returns how many there are then.
    pub(super) fn read_over(&self, id: InodeId, offset: u64, target: &mut [u8], length: usize) -> usize {
        if self.is_empty() {
            return length;
        }
        let files = self.files.lock();
        let Some(file) = files.get(&id) else { return length };
        let end = offset.saturating_add(target.len() as u64);
        let whole = usize::try_from(file.end().clamp(offset, end) - offset).unwrap_or(length).max(length);
        target[length..whole].fill(0);
        for (&at, part) in file.parts.range(..end) {
            let (from, to) = (at.max(offset), (at + part.len() as u64).min(end));
            if from < to {
                let place = |position: u64, base: u64| usize::try_from(position - base).unwrap_or(0);
                let bytes = &part[place(from, at)..place(to, at)];
                target[place(from, offset)..place(to, offset)].copy_from_slice(bytes);
            }
        }
        whole
    }

    /// The offset behind the last of a file's bytes; 0 if it has none.
    pub(super) fn end(&self, id: InodeId) -> u64 {
        if self.is_empty() { 0 } else { self.files.lock().get(&id).map_or(0, UnplacedFile::end) }
    }

    /// A file's first part.
    fn first(&self, id: InodeId) -> Option<(Arc<Inode>, u64, Vec<u8>)> {
        let files = self.files.lock();
        let file = files.get(&id)?;
        let (at, part) = file.parts.first_key_value()?;
        Some((Arc::clone(&file.inode), *at, part.clone()))
    }

    /// What a sync of the whole file system says after bytes were tried again with that result. It tells once
    /// that there is no room, since fsync and close of the file tell that too. It tells any other failure
    /// each time, since no other call tells of it. Bytes that have found their place are not told of.
    fn tell_sync(&self, placed: Reply<()>) -> Reply<()> {
        if placed.is_err_and(|errno| errno != Errno::NOSPC) {
            return placed;
        }
        let untold = std::mem::take(&mut *self.untold.lock());
        if let Some(failure) = untold.values().find_map(|untold| untold.failure) {
            return Err(failure);
        }
        let files = self.files.lock();
        let lacks = |(id, untold): (&InodeId, &Untold)| untold.is_lost || files.contains_key(id);
        if untold.iter().any(lacks) { Err(Errno::NOSPC) } else { Ok(()) }
    }

    /// Bytes of a file that had this size could not be written, and are lost.
    fn note_failure(&self, id: InodeId, size_before: u64, offset: u64, failure: Errno) {
        let mut untold = self.untold.lock();
        let untold = untold.entry(id).or_default();
        untold.failure = Some(failure);
        untold.may_be_mapped |= offset < size_before;
    }

    /// A file that was open for writing is closed: by now the kernel has told its writer, at fsync or close,
    /// of all that came by write(2).
    pub(super) fn note_writer_told(&self, id: InodeId) {
        let mut untold = self.untold.lock();
        if untold.get(&id).is_some_and(|untold| !untold.may_be_mapped) {
            untold.remove(&id);
        }
    }

    /// Bytes from the kernel's cache could not be written, which has nothing to do with room.
    pub(super) fn note_lost(&self, inode: &Inode, offset: u64, failure: Errno) {
        tracing::error!(inode = %inode.id(), offset, error = %failure, "bytes from the kernel's cache could not be written and are lost");
        self.note_failure(inode.id(), inode.size(), offset, failure);
    }

    /// Tries again to find room for a file's bytes.
    ///
    /// # Errors
    /// `ENOSPC` where there is none still; what else writing met.
    pub(super) fn place(&self, id: InodeId) -> Reply<()> {
        if self.is_empty() {
            return Ok(());
        }
        let _turn = self.turns.write();
        while let Some((inode, offset, part)) = self.first(id) {
            let end = offset + part.len() as u64;
            let caller = Caller::superuser();
            let origin = WriteOrigin::WriteBackAgain;
            match self.filesystem.files().write_file(&caller, &inode, offset, part.into(), origin) {
                Ok(_) => self.drop_range(id, offset, end),
                // The file is gone, and they with it.
                Err(error) if error.errno() == Errno::STALE => self.drop_range(id, 0, u64::MAX),
                Err(error) => return Err(errno(&error)),
            };
        }
        Ok(())
    }

    /// As [`place`](Self::place) for all files; the first error, but any other before `ENOSPC`.
    pub(super) fn place_all(&self) -> Reply<()> {
        self.files().into_iter().map(|id| self.place(id)).fold(Ok(()), graver)
    }

    /// As [`place_all`](Self::place_all) for a sync of the whole file system, which is told once of what
    /// finds no room.
    ///
    /// # Errors
    /// `ENOSPC`; what else writing met, each time.
    pub(super) fn place_for_sync(&self) -> Reply<()> {
        // Where the host was full, what waits before them has to go there first; whether that fails the
        // commit tells.
        if !self.is_empty()
            && Standing::of(&self.filesystem).is_host_full()
            && let Err(error) = self.filesystem.sync()
        {
            tracing::debug!(%error, "the host has no space still");
        }
        self.tell_sync(self.place_all())
    }

    /// The last writer closed a file: refused bytes behind its end are dropped, as if they had never been
    /// written. Whether there were any: then the kernel has too large a size.
    pub(super) fn drop_refused_writes(&self, inode: &Inode) -> bool {
        // A host that is full may have space again: nothing that was accepted goes meanwhile.
        let is_kept = Standing::of(&self.filesystem).is_host_full();
        !is_kept && self.drop_range(inode.id(), inode.size(), u64::MAX) > 0
    }

    /// How many there are, and how many were lost.
    pub(super) fn counts(&self) -> Unplaced {
        Unplaced {
            held_bytes: self.bytes.load(Ordering::Relaxed),
            lost_bytes: self.lost_bytes.load(Ordering::Relaxed),
        }
    }

    fn files(&self) -> Vec<InodeId> {
        if self.is_empty() { Vec::new() } else { self.files.lock().keys().copied().collect() }
    }
}

/// Of two results the one to be told: that there is no room hides no other failure.
pub(super) fn graver(first: Reply<()>, second: Reply<()>) -> Reply<()> {
    if first.is_err_and(|errno| errno != Errno::NOSPC) || second.is_ok() { first } else { second }
}

#[cfg(test)]
mod tests {
    use vlinder_fs::OpenOptions;
    use vlinder_testkit::{Scratch, golden};

    use super::*;

    fn file() -> (Scratch, Filesystem, Arc<Inode>) {
        let scratch = Scratch::new("unplaced");
        let image = scratch.join("image");
        golden::unpack("empty", &image).unwrap();
        let filesystem = Filesystem::open(&[image], OpenOptions::default()).unwrap();
        let root = filesystem.root().unwrap();
        let inode = filesystem.names().create_file(&Caller::superuser(), &root, b"file", 0o644).unwrap();
        (scratch, filesystem, inode)
    }

    fn read(unplaced: &UnplacedBytes, id: InodeId, offset: u64, on_disk: &[u8], room: usize) -> Vec<u8> {
        let mut target = vec![0xee; room];
        target[..on_disk.len()].copy_from_slice(on_disk);
        let length = unplaced.read_over(id, offset, &mut target, on_disk.len());
        target.truncate(length);
        target
    }

    #[test]
    fn readers_get_the_newest_bytes_and_zeros_between() {
        let (_scratch, filesystem, inode) = file();
        let (unplaced, id) = (UnplacedBytes::new(filesystem.clone(), 100), inode.id());
        assert!(unplaced.keep(&inode, 0, 10, &[1; 10]));
        assert!(unplaced.keep(&inode, 0, 14, &[2; 2]));
        assert!(unplaced.keep(&inode, 0, 30, &[3; 4]));
        let seen = read(&unplaced, id, 8, &[9; 4], 100);
        let expected: Vec<u8> =
            [vec![9; 2], vec![1; 4], vec![2; 2], vec![1; 4], vec![0; 10], vec![3; 4]].concat();
        assert_eq!(seen, expected);
        assert_eq!(unplaced.end(id), 34);
        assert_eq!(read(&unplaced, id, 12, &[], 3), [1, 1, 2]);
        assert_eq!(read(&unplaced, id, 40, &[], 3), Vec::<u8>::new());
    }

    #[test]
    fn a_sync_hears_of_no_room_once_and_of_others_each_time() {
        let (_scratch, filesystem, inode) = file();
        let unplaced = UnplacedBytes::new(filesystem.clone(), 100);
        assert!(unplaced.keep(&inode, 0, 0, &[1; 20]));
        for failure in [Errno::IO, Errno::ROFS, Errno::IO] {
            assert_eq!(unplaced.tell_sync(Err(failure)), Err(failure));
        }
        assert_eq!(unplaced.tell_sync(Err(Errno::NOSPC)), Err(Errno::NOSPC));
        assert_eq!(unplaced.tell_sync(Err(Errno::NOSPC)), Ok(()));
        assert_eq!(unplaced.tell_sync(Err(Errno::IO)), Err(Errno::IO));
    }

    #[test]
    fn a_sync_hears_once_of_what_is_lost_and_not_of_what_was_placed() {
        let (_scratch, filesystem, inode) = file();
        let root = filesystem.root().unwrap();
        let other = filesystem.names().create_file(&Caller::superuser(), &root, b"other", 0o644).unwrap();
        let unplaced = UnplacedBytes::new(filesystem.clone(), 100);
        let close = |inode: &Arc<Inode>| unplaced.note_writer_told(inode.id());
        // The closed file's writer was told that bytes are lost, and the other's found their place.
        assert!(!unplaced.keep(&inode, 0, 0, &[1; 101]));
        close(&inode);
        assert!(unplaced.keep(&other, 0, 0, &[1; 20]));
        unplaced.drop_range(other.id(), 0, 20);
        assert_eq!(unplaced.tell_sync(Ok(())), Ok(()));
        // Others are held still, and of these the writer was told.
        assert!(unplaced.keep(&inode, 0, 0, &[1; 20]));
        close(&inode);
        assert!(unplaced.keep(&other, 0, 0, &[1; 20]));
        unplaced.drop_range(other.id(), 0, 20);
        assert_eq!(unplaced.tell_sync(Err(Errno::NOSPC)), Ok(()));
        assert!(!unplaced.keep(&other, 0, 0, &[1; 101]));
        assert_eq!(unplaced.tell_sync(Ok(())), Err(Errno::NOSPC));
        assert_eq!(unplaced.tell_sync(Ok(())), Ok(()));
    }

    #[test]
    fn a_close_has_not_told_of_bytes_that_may_have_been_mapped() {
        let (_scratch, filesystem, inode) = file();
        let (unplaced, size) = (UnplacedBytes::new(filesystem.clone(), 100), 20);
        // Behind the end it was write(2), inside the file it may have been a mapping that outlived the close.
        for (offset, told) in [(20, Ok(())), (19, Err(Errno::NOSPC))] {
            assert!(unplaced.keep(&inode, size, offset, &[1; 20]));
            unplaced.note_writer_told(inode.id());
            assert_eq!(unplaced.tell_sync(Err(Errno::NOSPC)), told);
            assert_eq!(unplaced.tell_sync(Err(Errno::NOSPC)), Ok(()));
        }
        assert!(unplaced.keep(&inode, size, 0, &[1; 20]));
        unplaced.note_writer_told(inode.id());
        unplaced.drop_range(inode.id(), 0, u64::MAX);
        assert_eq!(unplaced.tell_sync(Ok(())), Ok(()), "they have found their place");
    }

    #[test]
    fn a_sync_hears_of_unwritten_bytes_unless_their_writer_did() {
        let (_scratch, filesystem, inode) = file();
        let unplaced = UnplacedBytes::new(filesystem.clone(), 100);
        unplaced.note_failure(inode.id(), 0, 0, Errno::IO);
        assert_eq!(unplaced.tell_sync(Ok(())), Err(Errno::IO));
        assert_eq!(unplaced.tell_sync(Ok(())), Ok(()));
        unplaced.note_failure(inode.id(), 0, 0, Errno::IO);
        unplaced.note_writer_told(inode.id());
        assert_eq!(unplaced.tell_sync(Ok(())), Ok(()));
    }

    #[test]
    fn no_room_hides_no_other_failure() {
        let results = [Ok(()), Err(Errno::NOSPC), Err(Errno::IO), Err(Errno::NOSPC), Ok(())];
        assert_eq!(results.into_iter().fold(Ok(()), graver), Err(Errno::IO));
        assert_eq!(results[..2].iter().copied().fold(Ok(()), graver), Err(Errno::NOSPC));
        assert_eq!([Ok(()), Ok(())].into_iter().fold(Ok(()), graver), Ok(()));
    }

    #[test]
    fn a_change_drops_just_its_range() {
        let (_scratch, filesystem, inode) = file();
        let (unplaced, id) = (UnplacedBytes::new(filesystem.clone(), 100), inode.id());
        assert!(unplaced.keep(&inode, 0, 0, &[1; 20]));
        unplaced.drop_range(id, 5, 8);
        assert_eq!(unplaced.bytes.load(Ordering::Relaxed), 17);
        assert_eq!(read(&unplaced, id, 0, &[7; 20], 20)[4..9], [1, 7, 7, 7, 1]);
        unplaced.drop_range(id, 10, u64::MAX);
        assert_eq!(unplaced.end(id), 10);
        unplaced.drop_range(id, 0, u64::MAX);
        assert!(unplaced.is_empty() && unplaced.files().is_empty());
    }

    #[test]
    fn no_more_is_kept_than_allowed_and_the_replaced_counts_not() {
        let (_scratch, filesystem, inode) = file();
        let unplaced = UnplacedBytes::new(filesystem.clone(), 100);
        assert!(unplaced.keep(&inode, 0, 0, &[1; 60]));
        assert!(unplaced.keep(&inode, 0, 0, &[2; 60]));
        assert!(!unplaced.keep(&inode, 0, 60, &[3; 41]));
        assert!(unplaced.keep(&inode, 0, 60, &[3; 40]));
        assert_eq!(unplaced.bytes.load(Ordering::Relaxed), 100);
    }
}
