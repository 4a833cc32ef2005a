//! The requests about open files.

use std::borrow::Cow;

use rustix::io::Errno;
use vlinder_base::sync::Arc;
use vlinder_fs::data::{Allocate, Seek};
use vlinder_fs::{FileChange, FileType, Filesystem, FsError, Inode, InodeFlags, Standing};

use super::MountService;
use super::convert::errno;
use super::handles::{FileAccess, OpenFile};
use super::unplaced::graver;
use crate::transport::{
    Deferred, FilePosition, HandleNumber, Opened, Reply, Requester, SeekFor, WriteOrigin,
};

const O_ACCMODE: i32 = 0o3;
const O_RDONLY: i32 = 0;
const O_WRONLY: i32 = 1;
const O_TRUNC: i32 = 0o1000;
const O_APPEND: i32 = 0o2000;

const FALLOC_FL_KEEP_SIZE: i32 = 0x01;
const FALLOC_FL_PUNCH_HOLE: i32 = 0x02;
const FALLOC_FL_ZERO_RANGE: i32 = 0x10;

impl MountService {
    /// Opens a file. The kernel has judged the access, and with the writeback cache reads and writes through
    /// handles of either kind, so all that is asked here is whether the file is still there and takes
    /// changes.
    pub(super) fn open_file(&self, inode: &Arc<Inode>, flags: i32) -> Reply<Opened> {
        let writes = flags & O_ACCMODE != O_RDONLY || flags & O_TRUNC != 0;
        if writes {
            self.filesystem.check_writable(inode.subvolume()).map_err(|error| errno(&error))?;
            let file_flags = inode.flags();
            let appends = flags & O_APPEND != 0;
            if file_flags.has(InodeFlags::IMMUTABLE) || (file_flags.has(InodeFlags::APPEND) && !appends) {
                return Err(Errno::PERM);
            }
        }
        self.hold(inode, FileAccess { reads: flags & O_ACCMODE != O_WRONLY, writes })
    }

    /// As [`open_file`](Self::open_file), for a file that was made for this.
    pub(super) fn open_new_file(&self, inode: &Arc<Inode>, flags: i32) -> Reply<Opened> {
        let access = flags & O_ACCMODE;
        self.hold(inode, FileAccess { reads: access != O_WRONLY, writes: access != O_RDONLY })
    }

    fn hold(&self, inode: &Arc<Inode>, access: FileAccess) -> Reply<Opened> {
        let open = self.filesystem.hold(inode).map_err(|error| errno(&error))?;
        let direct = access.writes && self.goes_past_the_cache(inode);
        let handle = self.handles.insert_file(open, access, self.told_at_opening());
        if access.writes {
            self.note_opened(inode);
        }
        Ok(Opened { handle, direct })
    }

    pub(super) fn read_file(&self, handle: HandleNumber, offset: u64, target: &mut [u8]) -> Reply<usize> {
        let file = self.handles.file(handle)?;
        let inode = file.open.inode();
        let turn = self.turn_with_unplaced();
        let length = file.open.read(&file.cache, offset, target).map_err(|error| errno(&error))?;
        let length = self.read_unplaced(inode.id(), offset, target, length);
        drop(turn);
        if file.reads {
            self.filesystem.note_access(inode);
        }
        Ok(length)
    }

    /// Writes; gives whether the file has to be durable before that is answered.
    fn write_file(
        &self,
        requester: Requester,
        handle: HandleNumber,
        offset: u64,
        data: &[u8],
        origin: WriteOrigin,
    ) -> Reply<bool> {
        let file = self.handles.file(handle)?;
        let inode = file.open.inode();
        if !origin.past_cache {
            self.kept_pages.note_use(inode.id());
        }
        let caller = Self::writer(requester, inode, origin);
        let open = vlinder_fs::WriteOrigin::OpenFile { keeps_times: false };
        let filesystem = &self.filesystem;
        let turn = self.turn_with_unplaced();
        let written = if origin.cache {
            // Without the writeback cache only mapped bytes come so, and the kernel keeps no times for them.
            let mapped = vlinder_fs::WriteOrigin::Mapped;
            let cached = if self.writeback { vlinder_fs::WriteOrigin::WriteBack } else { mapped };
            filesystem.write_file(&caller, inode, offset, Cow::Borrowed(data), cached)
        } else if origin.direct {
            filesystem.write_file_direct(&caller, inode, &[(offset, data)], open)
        } else {
            filesystem.write_file(&caller, inode, offset, Cow::Borrowed(data), open)
        };
        if written.is_ok() {
            if origin.cache {
                self.blocks.note_come(inode);
            }
            self.drop_unplaced(inode.id(), offset, offset.saturating_add(data.len() as u64));
        }
        drop(turn);
        self.changed(inode, written)?;
        if origin.cache && !self.writeback {
            self.attributes_changed(inode.id());
        }
        // After writes to its cache the kernel asks for fsync by itself; it does not where files bypass that,
        // and of what chattr(1) made synchronous it does not know.
        Ok((origin.synchronous && !origin.cache) || is_synchronous(inode))
    }

    /// As [`write_file`](Self::write_file), which is tried again where there may be room soon. Bytes that
    /// find no room though the kernel has taken them are kept.
    pub(super) fn write_or_keep(
        &self,
        requester: Requester,
        handle: HandleNumber,
        offset: u64,
        data: &[u8],
        origin: WriteOrigin,
    ) -> Reply<()> {
        // As the kernel had it when the program wrote, as far as is known here: afterwards the bytes lie
        // inside the file.
        let watched = if origin.cache && self.is_gate_shut() { self.handles.file(handle).ok() } else { None };
        let size_before = watched.as_ref().map(|file| file.open.inode().size());
        let written = self.with_room(|| self.write_file(requester, handle, offset, data, origin));
        let is_refused = origin.cache && matches!(written, Err(Errno::NOSPC | Errno::DQUOT));
        if let Some(file) = watched.or_else(|| is_refused.then(|| self.handles.file(handle).ok()).flatten()) {
            let inode = file.open.inode();
            // What was refused has left the size as it was.
            let size = size_before.unwrap_or_else(|| inode.size());
            if is_refused {
                self.keep_unplaced(inode, size, offset, data);
            }
            self.note_unasked(inode.id(), size, offset, data.len() as u64);
        }
        if let Err(failure) = &written
            && origin.cache
            && !is_refused
            && !self.filesystem.is_read_only()
            && let Ok(file) = self.handles.file(handle)
        {
            self.note_lost(file.open.inode(), offset, *failure);
        }
        self.note_taken(data.len() as u64, &written);
        // What is stored and can't be made durable is neither refused nor lost.
        if written? { self.sync_file(handle) } else { Ok(()) }
    }

    /// Answers a write past the page cache when the kernel keeps no older pages of the range. Those of a
    /// write that failed go too: it may have changed a part.
    pub(super) fn answer_past_cache(
        &self,
        handle: HandleNumber,
        range: (u64, u64),
        written: Reply<()>,
        answer: Deferred<()>,
    ) {
        let Ok(file) = self.handles.file(handle) else { return answer(written) };
        let id = file.open.inode().id();
        let Some(due) = self.kept_pages.due(id) else { return answer(written) };
        // Before the transport is there the kernel has no pages.
        let Some(notifier) = self.notifier.get() else { return answer(written) };
        let (kept, notifier, node) = (Arc::clone(&self.kept_pages), Arc::clone(notifier), self.node(id));
        self.aside.run(Box::new(move || {
            let drop_pages = |offset, length| notifier.invalidate_range(node, offset, length);
            match kept.carry_out(id, due, range, drop_pages) {
                Ok(()) => answer(written),
                Err(error) => {
                    tracing::warn!(%error, "the kernel could not be made to drop pages after a direct write");
                    answer(Err(Errno::IO));
                }
            }
        }));
    }

    /// A request of the page cache is about to be answered.
    pub(super) fn note_page_use(&self, handle: HandleNumber) {
        if let Ok(file) = self.handles.file(handle) {
            self.kept_pages.note_use(file.open.inode().id());
        }
    }

    /// The last user of an open file is gone.
    pub(super) fn close(&self, handle: HandleNumber) {
        let file = self.has_unplaced().then(|| self.handles.file(handle).ok()).flatten();
        let Some(id) = self.handles.remove(handle) else { return };
        let has_writers = self.handles.is_written(id);
        if !has_writers {
            self.kept_pages.forget(id);
        }
        if !self.writeback {
            return;
        }
        self.known.note_close(self.node(id));
        self.show_change_time(id);
        if !has_writers {
            self.forget_writer(id);
            self.note_writer_told(id);
            if let Some(file) = file.filter(|file| file.writes) {
                self.drop_refused_writes(file.open.inode());
            }
        }
    }

    pub(super) fn sync_file(&self, handle: HandleNumber) -> Reply<()> {
        let file = self.handles.file(handle)?;
        self.sync_inode(file.open.inode())
    }

    /// Makes a file or directory durable, names included. On what an error made read-only that is an error;
    /// on what was opened so there is nothing to do.
    pub(super) fn sync_inode(&self, inode: &Arc<Inode>) -> Reply<()> {
        if self.filesystem.options().read_only {
            return Ok(());
        }
        let placed = self.with_room(|| self.place(inode.id()));
        let synced = self.filesystem.sync_inode(inode);
        self.tell_blocks(inode.id());
        match synced {
            Err(_) if Standing::of(&self.filesystem).is_read_only_by_nature() => Ok(()),
            // Linux says EIO of a file system that was stopped by an error.
            synced => graver(placed, synced.map_err(|error| errno(&error)))
                .map_err(|errno| if errno == Errno::ROFS { Errno::IO } else { errno }),
        }
    }

    pub(super) fn allocate_range(
        &self,
        requester: Requester,
        handle: HandleNumber,
        offset: u64,
        length: u64,
        mode: i32,
    ) -> Reply<()> {
        let what = match mode {
            0 => Allocate::Reserve { keep_size: false },
            FALLOC_FL_KEEP_SIZE => Allocate::Reserve { keep_size: true },
            mode if mode == FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE => Allocate::PunchHole,
            FALLOC_FL_ZERO_RANGE => Allocate::ZeroRange { keep_size: false },
            mode if mode == FALLOC_FL_ZERO_RANGE | FALLOC_FL_KEEP_SIZE => {
                Allocate::ZeroRange { keep_size: true }
            }
            _ => return Err(Errno::OPNOTSUPP),
        };
        let file = self.handles.file(handle)?;
        let inode = file.open.inode();
        let origin = self.origin_of_change();
        // A range that is preallocated must not hide older bytes that find their place later.
        let placed = self.place(inode.id());
        let turn = self.turn_with_unplaced();
        let caller = self.changer(requester, inode);
        let allocated = self.filesystem.allocate_file(&caller, inode, what, offset, length, origin);
        if allocated.is_ok() && placed.is_err() && !matches!(what, Allocate::Reserve { .. }) {
            self.drop_unplaced(inode.id(), offset, offset.saturating_add(length));
        }
        drop(turn);
        self.changed(inode, allocated).map(drop)
    }

    /// Where the kernel may have written pages that it has not handed over, it has to first, or data would be
    /// taken for holes. That takes other threads than those that take what it hands over.
    pub(super) fn seek_file(&self, handle: HandleNumber, offset: u64, what: SeekFor, answer: Deferred<u64>) {
        let file = match self.handles.file(handle) {
            Ok(file) => file,
            Err(errno) => return answer(Err(errno)),
        };
        let id = file.open.inode().id();
        let notifier = self.notifier.get().filter(|_| self.writeback && self.handles.is_written(id));
        let Some(notifier) = notifier else { return answer(seek(&self.filesystem, &file, offset, what)) };
        let (notifier, filesystem, node) = (Arc::clone(notifier), self.filesystem.clone(), self.node(id));
        self.aside.run(Box::new(move || {
            if let Err(error) = notifier.invalidate_data(node, offset) {
                tracing::warn!(%error, "the kernel could not be made to write before a seek");
                return answer(Err(Errno::IO));
            }
            answer(seek(&filesystem, &file, offset, what));
        }));
    }

    pub(super) fn copy_file_range(
        &self,
        requester: Requester,
        from: FilePosition,
        to: FilePosition,
        length: u64,
    ) -> Reply<u64> {
        let (source, target) = (self.inode(from.node)?, self.inode(to.node)?);
        if source.file_type() != FileType::Regular || target.file_type() != FileType::Regular {
            return Err(Errno::INVAL);
        }
        let origin = self.origin_of_change();
        // What the source lacks can't be copied.
        self.place(source.id())?;
        let turn = self.turn_with_unplaced();
        let caller = self.changer(requester, &target);
        let copied = self.filesystem.copy_file_range(
            &caller,
            (&source, from.offset),
            (&target, to.offset),
            length,
            origin,
        );
        if let Ok(change) = &copied {
            self.drop_unplaced(target.id(), to.offset, to.offset.saturating_add(change.length_bytes));
        }
        drop(turn);
        self.changed(&target, copied)
    }

    /// Of what the kernel hands over at once. With the writeback cache it keeps the times itself.
    fn origin_of_change(&self) -> vlinder_fs::WriteOrigin {
        vlinder_fs::WriteOrigin::OpenFile { keeps_times: self.writeback }
    }

    /// How many bytes a change concerned. The kernel hears where set-id bits went, or may have before the
    /// change failed.
    fn changed(&self, inode: &Inode, change: Result<FileChange, FsError>) -> Reply<u64> {
        if change.as_ref().map_or(true, |change| change.mode_changed) {
            self.attributes_changed(inode.id());
        }
        change.map(|change| change.length_bytes).map_err(|error| errno(&error))
    }
}

/// Whether every write to a file is to be durable at once (`chattr +S`).
pub(super) fn is_synchronous(inode: &Inode) -> bool {
    inode.flags().has(InodeFlags::SYNC)
}

fn seek(filesystem: &Filesystem, file: &OpenFile, offset: u64, what: SeekFor) -> Reply<u64> {
    let what = match what {
        SeekFor::Data => Seek::Data,
        SeekFor::Hole => Seek::Hole,
    };
    filesystem.seek(file.open.inode(), &file.cache, offset, what).map_err(|error| errno(&error))
}
