//! Answers requests about open files.

use rustix::io::Errno;
use vlinder_base::sync::Arc;
use vlinder_fs::Filesystem;
use vlinder_fs::data::Seek;

use super::convert::{errno, judged};
use super::durability::Durability;
use super::gate::Gate;
use super::handles::OpenFile;
use super::kept_pages::KeptPages;
use super::mounted::Mounted;
use super::opening::OpenFiles;
use super::parts::Parts;
use super::ranges::RangeChanges;
use super::shown::Shown;
use super::unplaced::UnplacedBytes;
use super::writing::Writing;
use crate::transport::{
    Deferred, Entry, FilePosition, FileService, HandleNumber, NodeNumber, Notifier, Opened, Reply, Requester,
    SeekFor, WriteOrigin,
};

/// Open files and their data.
pub struct Files {
    mounted: Arc<Mounted>,
    shown: Arc<Shown>,
    gate: Arc<Gate>,
    unplaced: Arc<UnplacedBytes>,
    kept_pages: Arc<KeptPages>,
    durability: Arc<Durability>,
    open_files: OpenFiles,
    writing: Writing,
    ranges: RangeChanges,
}

impl Files {
    /// Made of these parts.
    pub(super) fn new(parts: &Parts) -> Self {
        Self {
            mounted: parts.mounted.clone(),
            shown: parts.shown.clone(),
            gate: parts.gate.clone(),
            unplaced: parts.unplaced.clone(),
            kept_pages: parts.kept_pages.clone(),
            durability: parts.durability.clone(),
            open_files: OpenFiles::new(parts),
            writing: Writing::new(parts),
            ranges: RangeChanges::new(parts),
        }
    }
}

impl FileService for Files {
    fn open(&self, _requester: Requester, node: NodeNumber, flags: i32) -> Reply<Opened> {
        let inode = self.mounted.inode(node)?;
        self.open_files.open(&inode, flags)
    }

    fn create(
        &self,
        requester: Requester,
        parent: NodeNumber,
        name: &[u8],
        mode: u32,
        umask: u32,
        flags: i32,
    ) -> Reply<(Entry, Opened)> {
        let (caller, directory) = (judged(requester, umask), self.mounted.inode(parent)?);
        let inode = self.mounted.with_room(|| {
            let made =
                self.mounted.filesystem().names().create_file(&caller, &directory, name, mode & 0o7777);
            made.map_err(|error| errno(&error))
        })?;
        let opened = self.open_files.open_new(&inode, flags)?;
        self.gate.shut_after_reply(&inode);
        Ok((self.shown.entry(&inode, parent), opened))
    }

    fn read(&self, handle: HandleNumber, offset: u64, target: &mut [u8]) -> Reply<usize> {
        let file = self.mounted.handles().file(handle)?;
        let inode = file.open.inode();
        let turn = self.unplaced.turn();
        let length = file.open.read(&file.cache, offset, target).map_err(|error| errno(&error))?;
        let length = self.unplaced.read_over(inode.id(), offset, target, length);
        drop(turn);
        if file.reads {
            self.mounted.filesystem().attributes().note_access(inode);
        }
        Ok(length)
    }

    fn write(
        &self,
        requester: Requester,
        handle: HandleNumber,
        offset: u64,
        data: &[u8],
        origin: WriteOrigin,
    ) -> Reply<()> {
        self.writing.write_or_keep(requester, handle, offset, data, origin)
    }

    fn write_past_cache(
        &self,
        requester: Requester,
        handle: HandleNumber,
        offset: u64,
        data: &[u8],
        origin: WriteOrigin,
        answer: Deferred<()>,
    ) {
        let written = self.writing.write_or_keep(requester, handle, offset, data, origin);
        self.writing.answer_past_cache(handle, (offset, data.len() as u64), written, answer);
    }

    fn note_page_read(&self, handle: HandleNumber) {
        if let Ok(file) = self.mounted.handles().file(handle) {
            self.kept_pages.note_use(file.open.inode().id());
        }
    }

    fn release(&self, handle: HandleNumber) {
        self.open_files.close(handle);
    }

    fn sync(&self, handle: HandleNumber) -> Reply<()> {
        self.durability.sync_file(handle)
    }

    fn allocate(
        &self,
        requester: Requester,
        handle: HandleNumber,
        offset: u64,
        length: u64,
        mode: i32,
    ) -> Reply<()> {
        let allocated =
            self.mounted.with_room(|| self.ranges.allocate(requester, handle, offset, length, mode));
        self.gate.note_taken(length, &allocated);
        allocated
    }

    /// Where the kernel may have written pages that it has not handed over, it has to hand them over first:
    /// else data would be taken for holes. A thread that answers nothing waits for that, since the threads
    /// that answer take what the kernel hands over.
    fn seek(&self, handle: HandleNumber, offset: u64, what: SeekFor, answer: Deferred<u64>) {
        let file = match self.mounted.handles().file(handle) {
            Ok(file) => file,
            Err(errno) => return answer(Err(errno)),
        };
        let id = file.open.inode().id();
        let (mounted, filesystem) = (&self.mounted, self.mounted.filesystem());
        let may_be_dirty =
            |_: &&Arc<dyn Notifier>| mounted.has_writeback() && mounted.handles().is_written(id);
        let Some(notifier) = mounted.kernel().notifier().filter(may_be_dirty) else {
            return answer(seek(filesystem, &file, offset, what));
        };
        let (notifier, filesystem, node) = (Arc::clone(notifier), filesystem.clone(), mounted.node(id));
        mounted.kernel().run(Box::new(move || {
            if let Err(error) = notifier.invalidate_data(node, offset) {
                tracing::warn!(%error, "the kernel could not be made to write before a seek");
                return answer(Err(Errno::IO));
            }
            answer(seek(&filesystem, &file, offset, what));
        }));
    }

    fn copy_range(
        &self,
        requester: Requester,
        from: FilePosition,
        to: FilePosition,
        length: u64,
    ) -> Reply<u64> {
        let copied = self.ranges.copy(requester, from, to, length);
        self.gate.note_taken(*copied.as_ref().unwrap_or(&0), &copied);
        copied
    }
}

fn seek(filesystem: &Filesystem, file: &OpenFile, offset: u64, what: SeekFor) -> Reply<u64> {
    let what = match what {
        SeekFor::Data => Seek::Data,
        SeekFor::Hole => Seek::Hole,
    };
    filesystem.files().seek(file.open.inode(), &file.cache, offset, what).map_err(|error| errno(&error))
}
