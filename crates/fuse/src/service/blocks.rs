//! Keeps the count of blocks true that the kernel shows of files that are open for writing.
//!
//! With the writeback cache the kernel keeps the count that the server told last, and drops it only when the
//! file is closed (`fuse_flush`, fs/fuse/file.c). A count of 0 is dangerous: tar takes such a file for one
//! hole and stores none of its bytes.
//!
//! Invariants, and the function that keeps each:
//! 1. While a file is open for writing the kernel may have bytes that the server does not know of, so a count
//!    of 0 is told as one sector ([`Blocks::shown_bytes`]).
//! 2. When bytes came from the kernel's cache and changed the count, the kernel is told: at fsync before that
//!    is answered, and otherwise at the next look of the keeper ([`Blocks::tell`], [`Blocks::tell_all`]). A
//!    count that is as it was told last is not told again: each telling costs two questions of the next
//!    write.

use std::collections::HashMap;

use vlinder_base::sync::{Arc, Mutex};
use vlinder_fs::{Attributes, FileType, Inode, InodeId};

use super::mounted::Mounted;

/// The counts of blocks of a mount's files.
pub(super) struct Blocks {
    mounted: Arc<Mounted>,
    counts: Counts,
}

impl Blocks {
    /// Of files of which no bytes came yet.
    pub(super) fn new(mounted: Arc<Mounted>) -> Self {
        Self { mounted, counts: Counts::default() }
    }

    /// Bytes of a file came from the kernel's cache.
    pub(super) fn note_come(&self, inode: &Arc<Inode>) {
        self.counts.note_come(inode);
    }

    /// A file is not open for writing any more.
    pub(super) fn forget(&self, id: InodeId) {
        self.counts.forget(id);
    }

    /// The bytes that a file's blocks are shown as, in attributes that the kernel is about to be told.
    pub(super) fn told_bytes(&self, attributes: &Attributes) -> u64 {
        if attributes.file_type != FileType::Regular || !self.mounted.has_writeback() {
            return attributes.allocated_bytes;
        }
        let bytes = self.shown_bytes(attributes);
        self.counts.note_told(attributes.id, bytes);
        bytes
    }

    fn shown_bytes(&self, attributes: &Attributes) -> u64 {
        let bytes = attributes.allocated_bytes;
        if bytes == 0 && self.mounted.handles().is_written(attributes.id) {
            attributes.block_size.into()
        } else {
            bytes
        }
    }

    /// What the kernel is to know of a file's blocks; none where learning that takes reading items.
    fn bytes_now(&self, inode: &Inode) -> Option<u64> {
        let filesystem = self.mounted.filesystem();
        let is_cheap = !filesystem.attributes().has_unflushed(inode);
        is_cheap.then(|| self.shown_bytes(&filesystem.attributes().of(inode)))
    }

    /// Before an fsync of a file is answered, and when its bytes are stored.
    pub(super) fn tell(&self, id: InodeId) {
        if self.counts.take_changed(id, |inode| self.bytes_now(inode)) {
            self.mounted.attributes_changed(id);
        }
    }

    /// At intervals, while files are open for writing. The kernel has seen the close of the other files.
    pub(super) fn tell_all(&self) {
        self.counts.noted().into_iter().for_each(|id| self.tell(id));
    }
}

/// Files of which bytes came from the kernel's cache while they are open for writing.
#[derive(Default)]
struct Counts(Mutex<HashMap<InodeId, Count>>);

/// What the kernel knows of a file's blocks.
struct Count {
    inode: Arc<Inode>,
    /// It may have another count than the file.
    may_differ: bool,
    /// The bytes that it was told last; none if that was before bytes came.
    told_bytes: Option<u64>,
}

impl Counts {
    /// Bytes of a file came from the kernel's cache.
    fn note_come(&self, inode: &Arc<Inode>) {
        let mut counts = self.0.lock();
        let count = || Count { inode: Arc::clone(inode), may_differ: true, told_bytes: None };
        counts.entry(inode.id()).or_insert_with(count).may_differ = true;
    }

    /// The kernel is told a count. It may have changed since it was looked up.
    fn note_told(&self, id: InodeId, bytes: u64) {
        if let Some(count) = self.0.lock().get_mut(&id) {
            count.may_differ |= count.told_bytes != Some(bytes);
            count.told_bytes = Some(bytes);
        }
    }

    /// A file is not open for writing any more.
    fn forget(&self, id: InodeId) {
        self.0.lock().remove(&id);
    }

    /// Whether the kernel may have another count of a file than `now` gives, or `now` does not know. What
    /// changes from here on is noted anew.
    fn take_changed(&self, id: InodeId, now: impl Fn(&Inode) -> Option<u64>) -> bool {
        let noted = {
            let mut counts = self.0.lock();
            let count = counts.get_mut(&id);
            count.and_then(|count| std::mem::take(&mut count.may_differ).then(|| Arc::clone(&count.inode)))
        };
        let Some(inode) = noted else { return false };
        let bytes = now(&inode);
        let told = self.0.lock().get(&id).and_then(|count| count.told_bytes);
        bytes.is_none() || bytes != told
    }

    /// The files of which the kernel may have another count.
    fn noted(&self) -> Vec<InodeId> {
        self.0.lock().iter().filter(|(_, count)| count.may_differ).map(|(id, _)| *id).collect()
    }
}

#[cfg(test)]
mod tests {
    use vlinder_fs::{Caller, Filesystem, OpenOptions};
    use vlinder_testkit::{Scratch, golden};

    use super::*;

    fn file() -> (Scratch, Arc<Inode>) {
        let scratch = Scratch::new("blocks");
        let image = scratch.join("image");
        golden::unpack("empty", &image).unwrap();
        let filesystem = Filesystem::open(&[image], OpenOptions::default()).unwrap();
        let root = filesystem.root().unwrap();
        (scratch, filesystem.names().create_file(&Caller::superuser(), &root, b"file", 0o644).unwrap())
    }

    #[test]
    fn the_kernel_is_told_of_a_count_that_changed_alone() {
        let (_scratch, inode) = file();
        let (counts, id) = (Counts::default(), inode.id());
        counts.note_told(id, 4096);
        assert!(!counts.take_changed(id, |_| Some(4096)), "no bytes came");
        counts.note_come(&inode);
        assert_eq!(counts.noted(), [id]);
        assert!(counts.take_changed(id, |_| Some(4096)), "what it knows is not known");
        assert!(!counts.take_changed(id, |_| panic!("no bytes came")) && counts.noted().is_empty());
        counts.note_told(id, 4096);
        for (bytes, is_told) in [(Some(4096), false), (Some(8192), true), (None, true)] {
            counts.note_come(&inode);
            assert_eq!(counts.take_changed(id, |_| bytes), is_told, "{bytes:?}");
        }
        counts.note_come(&inode);
        counts.forget(id);
        assert!(!counts.take_changed(id, |_| None));
    }

    #[test]
    fn an_answer_that_is_older_than_the_last_telling_is_made_up_for() {
        let (_scratch, inode) = file();
        let (counts, id) = (Counts::default(), inode.id());
        counts.note_come(&inode);
        counts.note_told(id, 8192);
        assert!(!counts.take_changed(id, |_| Some(8192)));
        // A slow answer brings what was true before.
        counts.note_told(id, 4096);
        assert!(counts.take_changed(id, |_| Some(8192)));
    }
}
