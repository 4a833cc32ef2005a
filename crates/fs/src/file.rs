//! Reading and writing files as callers do: with the locks that takes, and what it does to times and set-id
//! bits.

use std::borrow::Cow;

use vlinder_base::sync::Arc;
use vlinder_data::{Allocate, EncodedBytes, FileStore, MappedExtent, OpenCache, Seek};
use vlinder_extent_state::ByteRange;
use vlinder_format::inode::{FileType, InodeFlags};
use vlinder_transaction::Engine;

use crate::access_time::AccessTimeRule;
use crate::dedupe::{require_dedupable, require_dedupe_right, with_both_alone};
use crate::inode::Inode;
use crate::maintenance::Maintenance;
use crate::missing_codec::refuse_without_codec;
use crate::open::{OpenInode, OpenMode, Opener};
use crate::options::OpenOptions;
use crate::permission::Rights;
use crate::privileges::kill_privileges;
use crate::room::with_room;
use crate::stamp::{now, recently};
use crate::write_lock::lock_for_write;
use crate::write_origin::{ContentTimes, WriteOrigin};
use crate::{Access, Caller, Refusal, Result};

/// What a change of a file's data did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FileChange {
    /// So many bytes were written, allocated or copied.
    pub length_bytes: u64,
    /// Set-id bits went: a front end that remembers the mode has to ask again.
    pub mode_changed: bool,
}

/// The content of files.
#[derive(Clone, Copy)]
pub struct FileContent<'a> {
    rights: &'a Rights,
    opener: Opener<'a>,
    access_times: &'a AccessTimeRule,
    maintenance: &'a Maintenance,
    options: &'a OpenOptions,
}

impl<'a> FileContent<'a> {
    pub(crate) fn new(
        rights: &'a Rights,
        opener: Opener<'a>,
        access_times: &'a AccessTimeRule,
        maintenance: &'a Maintenance,
        options: &'a OpenOptions,
    ) -> Self {
        Self { rights, opener, access_times, maintenance, options }
    }

    pub(crate) fn engine(self) -> &'a Engine {
        self.opener.inodes().store().engine()
    }

    pub(crate) fn store(self) -> &'a Arc<FileStore> {
        self.opener.inodes().store()
    }

    pub(crate) fn rights(self) -> &'a Rights {
        self.rights
    }

    pub(crate) fn maintenance(self) -> &'a Maintenance {
        self.maintenance
    }
}

impl FileContent<'_> {
    /// Opens a file for the file system's own purposes or for a caller that was judged already.
    ///
    /// # Errors
    /// [`Refusal::NotFound`] where the file is gone.
    pub fn hold(&self, inode: &Arc<Inode>) -> Result<OpenInode> {
        self.opener.hold(inode)
    }

    /// Opens a file. The caller truncates (through `set_attributes`) where that was asked for.
    ///
    /// # Errors
    /// Those of permissions; [`Refusal::NotFound`] where the file is gone, [`Refusal::IsADirectory`] for
    /// writing one.
    pub fn open(&self, caller: &Caller, inode: &Arc<Inode>, mode: OpenMode) -> Result<OpenInode> {
        let writes = mode.write || mode.append || mode.truncate;
        match inode.file_type() {
            FileType::SymbolicLink => return Err(Refusal::SymbolicLinkLoop.into()),
            FileType::Directory if writes => return Err(Refusal::IsADirectory.into()),
            _ => {}
        }
        let mut access = Access::default();
        if mode.read {
            access = access.with(Access::READ);
        }
        if writes {
            access = access.with(Access::WRITE);
        }
        self.rights().access(caller, inode, access)?;
        if inode.flags().has(InodeFlags::APPEND) && ((writes && !mode.append) || mode.truncate) {
            return Err(Refusal::NotPermitted.into());
        }
        self.opener.hold(inode)
    }

    /// Reads from an offset into `target`; gives how many bytes, fewer only at the end of the file.
    ///
    /// # Errors
    /// [`Refusal::IsADirectory`], [`Refusal::InvalidArgument`] for what has no data; what reading met.
    pub fn read_at(
        &self,
        inode: &Arc<Inode>,
        cache: &OpenCache,
        offset: u64,
        target: &mut [u8],
    ) -> Result<usize> {
        require_regular(inode)?;
        let count = {
            let _operation = inode.operation.read();
            vlinder_data::read(self.store(), inode.node(), cache, offset, target)?
        };
        self.access_times.note_access(self.store(), self.rights, inode);
        Ok(count)
    }

    /// Writes at an offset, as [`write_file`](Self::write_file) for a caller without an open file.
    ///
    /// # Errors
    /// As there.
    pub fn write_at(
        &self,
        caller: &Caller,
        inode: &Arc<Inode>,
        offset: u64,
        data: Cow<'_, [u8]>,
    ) -> Result<()> {
        self.write_file(caller, inode, offset, data, WriteOrigin::Caller).map(drop)
    }

    /// Writes at the end; gives the offset where the bytes came to lie.
    ///
    /// # Errors
    /// As [`write_file`](Self::write_file).
    pub fn append(&self, caller: &Caller, inode: &Arc<Inode>, data: Cow<'_, [u8]>) -> Result<u64> {
        self.maintenance().check_host_room()?;
        let _operation = inode.operation.write();
        let offset = inode.size();
        self.write_locked(caller, inode, offset, data, WriteOrigin::Caller)?;
        Ok(offset)
    }

    /// Writes at an offset. The bytes are in memory when this returns, with the space for them promised;
    /// set-id bits and file capabilities go unless the caller may keep them, and the times are the present,
    /// as far as `origin` leaves that to the file system.
    ///
    /// # Errors
    /// [`Refusal::NoSpace`], [`Refusal::FileTooLarge`], [`Refusal::ReadOnly`]; [`Refusal::NotPermitted`] for
    /// overwriting a file that can only grow. Set-id bits may have gone even so.
    pub fn write_file(
        &self,
        caller: &Caller,
        inode: &Arc<Inode>,
        offset: u64,
        data: Cow<'_, [u8]>,
        origin: WriteOrigin,
    ) -> Result<FileChange> {
        if !origin.is_write_back() {
            self.maintenance().check_host_room()?;
        }
        let _operation =
            lock_for_write(self.store(), self.rights, caller, inode, &[(offset, data.as_ref())], origin)?;
        self.write_locked(caller, inode, offset, data, origin)
    }

    /// Writes bytes that come compressed, and keeps that form where the file may have compressed extents. The
    /// caller has seen that both forms are the same.
    ///
    /// # Errors
    /// As [`write_file`](Self::write_file).
    pub fn write_encoded(
        &self,
        caller: &Caller,
        inode: &Arc<Inode>,
        bytes: &EncodedBytes<'_>,
        origin: WriteOrigin,
    ) -> Result<FileChange> {
        self.maintenance().check_host_room()?;
        let _operation = inode.operation.write();
        self.check_write(inode, bytes.offset, origin)?;
        let mode_changed = self.begin_change(caller, inode, origin)?;
        let _noting = self.store().background().noting();
        vlinder_data::write_encoded(self.store(), inode.node(), bytes)?;
        Ok(FileChange { length_bytes: bytes.plain.len() as u64, mode_changed })
    }

    /// [`write_file`](Self::write_file) for who holds what [`lock_for_write`] gives.
    pub(crate) fn write_locked(
        &self,
        caller: &Caller,
        inode: &Arc<Inode>,
        offset: u64,
        data: Cow<'_, [u8]>,
        origin: WriteOrigin,
    ) -> Result<FileChange> {
        self.check_write(inode, offset, origin)?;
        if data.is_empty() {
            return Ok(FileChange::default());
        }
        let mode_changed = self.begin_change(caller, inode, origin)?;
        let length_bytes = data.len() as u64;
        let _noting = self.store().background().noting();
        vlinder_data::write(self.store(), inode.node(), offset, data)?;
        Ok(FileChange { length_bytes, mode_changed })
    }

    /// [`write_locked`](Self::write_locked) for whole sectors inside the file, all parts at once: for who
    /// [shares the lock](crate::write_lock::WriteGuard::is_shared).
    pub(crate) fn write_inside_locked(
        &self,
        caller: &Caller,
        inode: &Arc<Inode>,
        parts: &[(u64, &[u8])],
        origin: WriteOrigin,
    ) -> Result<FileChange> {
        let Some(first) = parts.iter().map(|(offset, _)| *offset).min() else {
            return Ok(FileChange::default());
        };
        // All lie before the end of the file, which is what the check asks of an offset.
        self.check_write(inode, first, origin)?;
        let length_bytes = parts.iter().map(|(_, data)| data.len() as u64).sum();
        if length_bytes == 0 {
            return Ok(FileChange::default());
        }
        let mode_changed = self.begin_change(caller, inode, origin)?;
        let _noting = self.store().background().noting();
        vlinder_data::write_inside(self.store(), inode.node(), parts)?;
        Ok(FileChange { length_bytes, mode_changed })
    }

    /// Refuses a write at an offset where nothing may change, and where the file's flags forbid it.
    fn check_write(&self, inode: &Inode, offset: u64, origin: WriteOrigin) -> Result<()> {
        let refusing = match origin {
            WriteOrigin::Caller | WriteOrigin::Stream if offset < inode.size() => {
                InodeFlags::IMMUTABLE.with(InodeFlags::APPEND)
            }
            WriteOrigin::Caller | WriteOrigin::Stream => InodeFlags::IMMUTABLE,
            // Linux asks when a file is opened, and not again.
            _ => InodeFlags::NONE,
        };
        self.check_change(inode, refusing)?;
        refuse_without_codec(self.store(), self.options, inode, offset)
    }

    /// Refuses the change of a file's data where nothing may change, and where the file has one of these
    /// flags.
    fn check_change(&self, inode: &Inode, refusing: InodeFlags) -> Result<()> {
        require_regular(inode)?;
        self.rights().check_file_writable(inode)?;
        let (deleted, flags) = {
            let state = inode.state();
            (state.deleted, state.item.flags)
        };
        if deleted {
            return Err(Refusal::Stale.into());
        }
        if flags.has_any(refusing) {
            return Err(Refusal::NotPermitted.into());
        }
        Ok(())
    }

    /// What a change of a file's data does besides, before it, as on Linux; gives whether the mode changed.
    /// The caller holds the operation lock and has checked that the change may be.
    fn begin_change(&self, caller: &Caller, inode: &Arc<Inode>, origin: WriteOrigin) -> Result<bool> {
        let mode_changed =
            !origin.keeps_privileges() && kill_privileges(self.store(), self.rights(), caller, inode)?;
        let mut state = inode.state();
        let moved = match origin.times() {
            ContentTimes::Move => {
                state.note_content_change(now(self.engine()));
                true
            }
            ContentTimes::Stay => false,
            ContentTimes::ComeLater => state.note_late_content(recently(self.engine())),
        };
        if moved {
            self.store().mark_dirty(inode.node(), &mut state);
        }
        Ok(mode_changed)
    }

    /// Preallocates, punches a hole or zeroes a range, as fallocate(2).
    ///
    /// # Errors
    /// As [`write_file`](Self::write_file); [`Refusal::NotPermitted`] for an immutable file, and for what
    /// takes data from one that can only grow.
    pub fn allocate_file(
        &self,
        caller: &Caller,
        inode: &Arc<Inode>,
        what: Allocate,
        offset: u64,
        length: u64,
        origin: WriteOrigin,
    ) -> Result<FileChange> {
        let _operation = inode.operation.write();
        let refusing = match what {
            Allocate::Reserve { .. } => InodeFlags::IMMUTABLE,
            Allocate::PunchHole | Allocate::ZeroRange { .. } => {
                InodeFlags::IMMUTABLE.with(InodeFlags::APPEND)
            }
        };
        self.check_change(inode, refusing)?;
        // Linux looks first, too (`find_first_non_hole` in `btrfs_punch_hole`, fs/btrfs/file.c): a hole in a
        // hole moves no times and takes no privileges.
        if what == Allocate::PunchHole && vlinder_data::is_hole(self.store(), inode.node(), offset, length)? {
            return Ok(FileChange { length_bytes: length, mode_changed: false });
        }
        let mode_changed = self.begin_change(caller, inode, origin)?;
        let _noting = self.store().background().noting();
        with_room(self.engine(), || {
            Ok(vlinder_data::allocate(self.store(), inode.node(), what, offset, length)?)
        })?;
        Ok(FileChange { length_bytes: length, mode_changed })
    }

    /// The next data or hole from an offset on, as lseek(2) with SEEK_DATA and SEEK_HOLE.
    ///
    /// # Errors
    /// [`Refusal::NoSuchOffset`] past the end, or where only a hole follows.
    pub fn seek(&self, inode: &Arc<Inode>, cache: &OpenCache, offset: u64, what: Seek) -> Result<u64> {
        require_regular(inode)?;
        let _operation = inode.operation.read();
        Ok(vlinder_data::seek(self.store(), inode.node(), cache, offset, what)?)
    }

    /// Where the bytes of a range of a file lie: what FS_IOC_FIEMAP tells, in order, at most `limit` runs.
    ///
    /// # Errors
    /// Where it is no file; what reading the trees met.
    pub fn extent_map(
        &self,
        inode: &Arc<Inode>,
        cache: &OpenCache,
        range: ByteRange,
        limit: usize,
    ) -> Result<Vec<MappedExtent>> {
        require_regular(inode)?;
        let _operation = inode.operation.read();
        Ok(vlinder_data::extent_map(self.store(), inode.node(), cache, range, limit)?)
    }

    /// Copies a range between files of this file system, sharing extents where it can.
    ///
    /// # Errors
    /// As reading the one and writing the other; [`Refusal::NotPermitted`] for an immutable target.
    pub fn copy_file_range(
        &self,
        caller: &Caller,
        source: (&Arc<Inode>, u64),
        target: (&Arc<Inode>, u64),
        length: u64,
        origin: WriteOrigin,
    ) -> Result<FileChange> {
        with_two(source.0, target.0, || {
            require_regular(source.0)?;
            self.check_change(target.0, refusing_copies(origin))?;
            let mode_changed =
                length > 0 && source.1 < source.0.size() && self.begin_change(caller, target.0, origin)?;
            let _noting = self.store().background().noting();
            let copy = || {
                Ok(vlinder_data::copy_range(
                    self.store(),
                    source.0.node(),
                    source.1,
                    target.0.node(),
                    target.1,
                    length,
                )?)
            };
            let copied = with_room(self.engine(), copy)?;
            Ok(FileChange { length_bytes: copied, mode_changed })
        })
    }

    /// Makes a range of one file share the extents of another's (FICLONERANGE); a length of 0 is "up to the
    /// end".
    ///
    /// # Errors
    /// [`Refusal::InvalidArgument`] where borders are not aligned; as copying.
    pub fn clone_range(
        &self,
        caller: &Caller,
        source: (&Arc<Inode>, u64),
        target: (&Arc<Inode>, u64),
        length: u64,
        origin: WriteOrigin,
    ) -> Result<()> {
        with_two(source.0, target.0, || {
            require_regular(source.0)?;
            self.check_change(target.0, refusing_copies(origin))?;
            self.begin_change(caller, target.0, origin)?;
            let _noting = self.store().background().noting();
            let left = source.0.size().saturating_sub(source.1);
            let length = if length == 0 { left } else { length };
            with_room(self.engine(), || {
                Ok(vlinder_data::clone_range(
                    self.store(),
                    source.0.node(),
                    source.1,
                    target.0.node(),
                    target.1,
                    length,
                )?)
            })
        })
    }

    /// Makes a range of one file share the extents of another's if both show the same bytes
    /// (FIDEDUPERANGE); gives whether they do. Content and times stay as they are, and a read-only snapshot
    /// may be the target.
    ///
    /// # Errors
    /// [`Refusal::InvalidArgument`] where a border is not aligned or behind the end of a file, where ranges
    /// of one file overlap, or where only one of the files has checksums; [`Refusal::NotPermitted`] for a
    /// caller who may not write the target, does not own it and is no administrator, and for an immutable
    /// target; [`Refusal::AccessDenied`] for one who may not read the source; [`Refusal::ReadOnly`] where the
    /// whole file system is; what reading and the trees met.
    pub fn dedupe_range(
        &self,
        caller: &Caller,
        source: (&Arc<Inode>, u64),
        target: (&Arc<Inode>, u64),
        length: u64,
    ) -> Result<bool> {
        if self.store().is_read_only() {
            return Err(Refusal::ReadOnly.into());
        }
        require_regular(source.0)?;
        require_regular(target.0)?;
        self.rights().access(caller, source.0, Access::READ)?;
        require_dedupe_right(self.rights(), caller, target.0)?;
        with_both_alone(source.0, target.0, || {
            require_dedupable(target.0)?;
            let _noting = self.store().background().noting();
            with_room(self.engine(), || {
                Ok(vlinder_data::dedupe_range(
                    self.store(),
                    source.0.node(),
                    source.1,
                    target.0.node(),
                    target.1,
                    length,
                )?)
            })
        })
    }
}

/// Runs work with two files locked, in the order of their ids.
pub(crate) fn with_two<T>(
    source: &Arc<Inode>,
    target: &Arc<Inode>,
    work: impl FnOnce() -> Result<T>,
) -> Result<T> {
    if Arc::ptr_eq(source, target) {
        let _operation = target.operation.write();
        return work();
    }
    if source.id() < target.id() {
        let (_first, _second) = (source.operation.read(), target.operation.write());
        return work();
    }
    let (_first, _second) = (target.operation.write(), source.operation.read());
    work()
}

/// The flags of a target that refuse a copy: other than for a write, Linux asks for the one also when the
/// file is open.
fn refusing_copies(origin: WriteOrigin) -> InodeFlags {
    match origin {
        WriteOrigin::Caller | WriteOrigin::Stream => InodeFlags::IMMUTABLE.with(InodeFlags::APPEND),
        _ => InodeFlags::IMMUTABLE,
    }
}

fn require_regular(inode: &Inode) -> Result<()> {
    match inode.file_type() {
        FileType::Regular => Ok(()),
        FileType::Directory => Err(Refusal::IsADirectory.into()),
        _ => Err(Refusal::InvalidArgument.into()),
    }
}
