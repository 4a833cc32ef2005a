//! Operations, carried out.

use std::borrow::Cow;
use std::collections::BTreeMap;

use rustix::io::Errno;
use vlinder_base::clock::{FixedClock, Timestamp as Moment};
use vlinder_base::random::SeededRandom;
use vlinder_base::sync::Arc;
use vlinder_device::Device;
use vlinder_fs::data::{self, Allocate, OpenCache, Seek};
use vlinder_fs::{
    AttributeMode, Caller, ContentTimes, DeviceNumber, FileType, Filesystem, FsError, GroupId, Inode,
    InodeFlags, InodeId, ObjectId, OpenInode, OpenMode, OpenOptions, RenameMode as FsRename, RootId,
    SetAttributes, SetTime, SubvolumeChoice, Timestamp, UserId, WriteOrigin,
};

use crate::workload::{
    AllocateMode, FileId, Model, NodeKind, OpenSlot, Operation, Outcome, Place, RenameMode, SetMode,
};

/// How the workload changes files.
const OPEN_FILE: WriteOrigin = WriteOrigin::OpenFile { times: ContentTimes::Move };

/// An open file system, the time that it believes in, and the files that the workload holds open.
pub struct Subject {
    /// The file system.
    pub filesystem: Filesystem,
    caller: Caller,
    clock: Arc<FixedClock>,
    open: BTreeMap<OpenSlot, OpenInode>,
    /// Of an open file that is now this file and now that one: what it remembers must never be shown when it
    /// is old.
    cache: OpenCache,
}

/// What carrying out met: a refusal, which the model judges, or something that must never happen.
pub enum Trouble {
    /// The operation was refused.
    Refused(Errno),
    /// The file system is wrong.
    Wrong(String),
}

impl From<FsError> for Trouble {
    fn from(error: FsError) -> Self {
        match error.errno() {
            Errno::IO => Trouble::Wrong(error.to_string()),
            errno => Trouble::Refused(errno),
        }
    }
}

type Done<T> = Result<T, Trouble>;

impl Subject {
    /// Opens the file system of a device, with the top-level subvolume as its root.
    ///
    /// # Errors
    /// What opening met.
    pub fn open(device: Arc<dyn Device>, options: &str, seed: u64, now: (i64, u32)) -> Result<Self, FsError> {
        Self::open_with(device, OpenOptions::parse(options)?, seed, now)
    }

    /// As [`open`](Self::open) with options that are no text (counters, memory).
    ///
    /// # Errors
    /// What opening met.
    pub fn open_with(
        device: Arc<dyn Device>,
        mut options: OpenOptions,
        seed: u64,
        now: (i64, u32),
    ) -> Result<Self, FsError> {
        let clock = Arc::new(FixedClock::new(Moment::new(now.0, now.1)));
        options.clock = Arc::clone(&clock) as _;
        options.random = Arc::new(SeededRandom::new(seed));
        options.subvolume = SubvolumeChoice::Number(RootId::FS_TREE);
        // Commits happen when the workload says so.
        options.background = false;
        let filesystem = Filesystem::open_devices(vec![device], options)?;
        let caller = Caller { umask: 0, ..Caller::superuser() };
        Ok(Subject { filesystem, caller, clock, open: BTreeMap::new(), cache: OpenCache::new() })
    }

    /// Moves the time.
    pub fn set_time(&self, now: (i64, u32)) {
        self.clock.set(Moment::new(now.0, now.1));
    }

    /// The user that asks.
    pub fn caller(&self) -> &Caller {
        &self.caller
    }

    /// Closes the files and the file system.
    ///
    /// # Errors
    /// What the last commit met.
    pub fn close(self) -> Result<(), FsError> {
        let Subject { filesystem, open, .. } = self;
        for (_, file) in open {
            file.close()?;
        }
        filesystem.close()
    }

    /// Everything becomes durable.
    ///
    /// # Errors
    /// What the commit met.
    pub fn commit(&self) -> Result<(), FsError> {
        self.filesystem.sync().map(drop)
    }

    /// The inode of the model's file.
    ///
    /// # Errors
    /// What reading it met.
    pub fn inode(&self, file: FileId) -> Result<Arc<Inode>, FsError> {
        self.filesystem.inode(InodeId::new(RootId(file.root), ObjectId(file.number)))
    }

    /// Carries an operation out. The model tells which files the tokens mean.
    ///
    /// # Errors
    /// Something that no operation may meet: damage, a device error, data that are not the model's.
    pub fn carry_out(&mut self, model: &Model, operation: &Operation) -> Result<Outcome, String> {
        match self.perform(model, operation) {
            Ok(made) => Ok(Ok(made)),
            Err(Trouble::Refused(errno)) => Ok(Err(errno)),
            Err(Trouble::Wrong(text)) => Err(text),
        }
    }

    fn at(&self, model: &Model, place: Place) -> Done<Arc<Inode>> {
        let file = model.file(place).ok_or(Trouble::Refused(Errno::NOENT))?;
        Ok(self.inode(file)?)
    }

    fn perform(&mut self, model: &Model, operation: &Operation) -> Done<Option<FileId>> {
        use Operation as O;
        match operation {
            O::CreateFile { .. }
            | O::CreateNode { .. }
            | O::CreateDirectory { .. }
            | O::CreateSymbolicLink { .. }
            | O::CreateTemporary { .. } => self.create(model, operation),
            O::Link { .. } | O::Unlink { .. } | O::RemoveDirectory { .. } | O::Rename { .. } => {
                self.change_names(model, operation)
            }
            O::Open { file, slot } => {
                let inode = self.at(model, *file)?;
                if inode.file_type() != FileType::Regular {
                    return Err(Trouble::Refused(Errno::INVAL));
                }
                if self.open.contains_key(slot) {
                    return Err(Trouble::Refused(Errno::MFILE));
                }
                let open = self.filesystem.files().open(
                    &self.caller,
                    &inode,
                    OpenMode { read: true, ..OpenMode::default() },
                )?;
                self.open.insert(*slot, open);
                Ok(None)
            }
            O::Close { slot } => {
                self.open.remove(slot).ok_or(Trouble::Refused(Errno::BADF))?.close()?;
                Ok(None)
            }
            O::SetAttribute { .. }
            | O::RemoveAttribute { .. }
            | O::SetPermissions { .. }
            | O::SetOwner { .. }
            | O::SetTimes { .. }
            | O::SetFlags { .. }
            | O::SetCompression { .. } => self.change_attributes(model, operation).map(|()| None),
            O::CreateSubvolume { .. }
            | O::Snapshot { .. }
            | O::DeleteSubvolume { .. }
            | O::SetDefault { .. }
            | O::SetReadOnly { .. } => self.change_subvolumes(model, operation),
            O::Clean => {
                self.filesystem.maintenance().finish_deletions()?;
                Ok(None)
            }
            O::Sync => {
                self.filesystem.sync()?;
                Ok(None)
            }
            // fdatasync is fsync here, as it is on a mount: a log that has the data has the rest,
            // too.
            O::Fsync { file, .. } => {
                let inode = self.at(model, *file)?;
                if !matches!(inode.file_type(), FileType::Regular | FileType::Directory) {
                    return Err(Trouble::Refused(Errno::INVAL));
                }
                self.filesystem.maintenance().sync_inode(&inode)?;
                Ok(None)
            }
            O::FsyncOpen { slot, .. } => {
                let open = self.open.get(slot).ok_or(Trouble::Refused(Errno::BADF))?;
                self.filesystem.maintenance().sync_inode(open.inode())?;
                Ok(None)
            }
            _ => self.change_data(model, operation).map(|()| None),
        }
    }

    fn create(&mut self, model: &Model, operation: &Operation) -> Done<Option<FileId>> {
        let (filesystem, caller) = (&self.filesystem, &self.caller);
        let made = match operation {
            Operation::CreateFile { directory, name, permissions, .. } => {
                filesystem.names().create_file(caller, &self.at(model, *directory)?, name, *permissions)?
            }
            Operation::CreateNode { directory, name, kind, device, permissions, .. } => {
                let file_type = match kind {
                    NodeKind::Socket => FileType::Socket,
                    NodeKind::Character => FileType::CharacterDevice,
                    NodeKind::Block => FileType::BlockDevice,
                    _ => FileType::Fifo,
                };
                let device = match kind {
                    NodeKind::Character | NodeKind::Block => DeviceNumber::new(device.0, device.1),
                    _ => DeviceNumber::new(0, 0),
                };
                let directory = self.at(model, *directory)?;
                filesystem.names().create_node(caller, &directory, name, file_type, *permissions, device)?
            }
            Operation::CreateDirectory { directory, name, permissions, .. } => filesystem
                .names()
                .create_directory(caller, &self.at(model, *directory)?, name, *permissions)?,
            Operation::CreateSymbolicLink { directory, name, target, .. } => {
                filesystem.names().create_symbolic_link(caller, &self.at(model, *directory)?, name, target)?
            }
            Operation::CreateTemporary { directory, permissions, slot, .. } => {
                if self.open.contains_key(slot) {
                    return Err(Trouble::Refused(Errno::MFILE));
                }
                let open = filesystem.names().create_temporary(
                    caller,
                    &self.at(model, *directory)?,
                    *permissions,
                )?;
                let inode = Arc::clone(open.inode());
                self.open.insert(*slot, open);
                inode
            }
            other => unreachable!("{other:?} creates nothing"),
        };
        Ok(Some(file_of(&made)))
    }

    fn change_names(&mut self, model: &Model, operation: &Operation) -> Done<Option<FileId>> {
        let (filesystem, caller) = (&self.filesystem, &self.caller);
        match operation {
            Operation::Link { file, directory, name } => {
                filesystem.names().link(
                    caller,
                    &self.at(model, *file)?,
                    &self.at(model, *directory)?,
                    name,
                )?;
            }
            Operation::Unlink { directory, name } => {
                filesystem.names().unlink(caller, &self.at(model, *directory)?, name)?
            }
            Operation::RemoveDirectory { directory, name } => {
                filesystem.names().remove_directory(caller, &self.at(model, *directory)?, name)?;
            }
            Operation::Rename { from, from_name, to, to_name, mode, .. } => {
                let (from, to) = (self.at(model, *from)?, self.at(model, *to)?);
                let how = match mode {
                    RenameMode::Replace => FsRename::Replace,
                    RenameMode::NoReplace => FsRename::NoReplace,
                    RenameMode::Exchange => FsRename::Exchange,
                    RenameMode::Whiteout => FsRename::Whiteout,
                };
                filesystem.names().rename(caller, &from, from_name, &to, to_name, how)?;
                if *mode == RenameMode::Whiteout {
                    let made = filesystem.names().lookup(caller, &from, from_name)?;
                    return Ok((made.file_type() == FileType::CharacterDevice).then(|| file_of(&made)));
                }
            }
            other => unreachable!("{other:?} changes no names"),
        }
        Ok(None)
    }

    fn change_attributes(&mut self, model: &Model, operation: &Operation) -> Done<()> {
        let (filesystem, caller) = (&self.filesystem, &self.caller);
        let set = |place, changes: SetAttributes| -> Done<()> {
            filesystem.attributes().set(caller, &self.at(model, place)?, &changes)?;
            Ok(())
        };
        let none = SetAttributes::default();
        match operation {
            Operation::SetAttribute { file, name, value, mode } => {
                let mode = match mode {
                    SetMode::Either => AttributeMode::Either,
                    SetMode::Create => AttributeMode::Create,
                    SetMode::Replace => AttributeMode::Replace,
                };
                filesystem.attributes().set_extended_attribute(
                    caller,
                    &self.at(model, *file)?,
                    name,
                    value,
                    mode,
                )?;
            }
            Operation::RemoveAttribute { file, name } => {
                filesystem.attributes().remove_extended_attribute(caller, &self.at(model, *file)?, name)?;
            }
            Operation::SetPermissions { file, permissions } => {
                set(*file, SetAttributes { permissions: Some(*permissions), ..none })?;
            }
            Operation::SetOwner { file, user, group } => {
                set(*file, SetAttributes { user: user.map(UserId), group: group.map(GroupId), ..none })?;
            }
            Operation::SetTimes { file, modified } => {
                let time = Timestamp { seconds: modified.0, nanoseconds: modified.1 };
                set(*file, SetAttributes { modification_time: Some(SetTime::At(time)), ..none })?;
            }
            Operation::SetFlags { file, set, clear } => {
                let inode = self.at(model, *file)?;
                let flags = inode.flags();
                filesystem.attributes().set_flags(caller, &inode, InodeFlags(flags.0 & !clear | set))?;
            }
            Operation::SetCompression { file, value } => {
                let inode = self.at(model, *file)?;
                let name = b"btrfs.compression";
                filesystem.attributes().set_extended_attribute(
                    caller,
                    &inode,
                    name,
                    value,
                    AttributeMode::Either,
                )?;
            }
            other => unreachable!("{other:?} changes no attributes"),
        }
        Ok(())
    }

    fn change_subvolumes(&mut self, model: &Model, operation: &Operation) -> Done<Option<FileId>> {
        let (filesystem, caller) = (&self.filesystem, &self.caller);
        let root = |token| model.root_of(token).map(RootId).ok_or(Trouble::Refused(Errno::NOENT));
        let made = match operation {
            Operation::CreateSubvolume { directory, name, .. } => {
                filesystem.subvolumes().create(caller, &self.at(model, *directory)?, name)?
            }
            Operation::Snapshot { source, directory, name, read_only, .. } => filesystem
                .subvolumes()
                .snapshot(caller, root(*source)?, &self.at(model, *directory)?, name, *read_only)?,
            Operation::DeleteSubvolume { directory, name } => {
                filesystem.subvolumes().delete(caller, &self.at(model, *directory)?, name)?;
                return Ok(None);
            }
            Operation::SetDefault { subvolume } => {
                filesystem.subvolumes().set_default(caller, root(*subvolume)?)?;
                return Ok(None);
            }
            Operation::SetReadOnly { subvolume, read_only } => {
                filesystem.subvolumes().set_read_only(caller, root(*subvolume)?, *read_only, false)?;
                return Ok(None);
            }
            other => unreachable!("{other:?} changes no subvolumes"),
        };
        Ok(Some(FileId { root: made.root.0, number: made.number.0 }))
    }

    fn change_data(&mut self, model: &Model, operation: &Operation) -> Done<()> {
        match operation {
            Operation::Write { file, offset, length, pattern, direct: true } => {
                let inode = self.writable(model, *file, false)?;
                let bytes = pattern.bytes(*offset, *length);
                self.filesystem.files().write_file_direct(
                    &self.caller,
                    &inode,
                    &[(*offset, &bytes)],
                    OPEN_FILE,
                )?;
                Ok(())
            }
            Operation::Write { file, offset, length, pattern, direct: false } => {
                let inode = self.writable(model, *file, false)?;
                self.write(&inode, Some(*offset), |at| pattern.bytes(at, *length))
            }
            Operation::Append { file, length, pattern } => {
                let inode = self.writable(model, *file, true)?;
                self.write(&inode, None, |at| pattern.bytes(at, *length))
            }
            Operation::WriteOpen { slot, offset, length, pattern } => {
                let inode = Arc::clone(self.open.get(slot).ok_or(Trouble::Refused(Errno::BADF))?.inode());
                if inode.flags().has_any(InodeFlags::IMMUTABLE | InodeFlags::APPEND) {
                    return Err(Trouble::Refused(Errno::PERM));
                }
                self.filesystem.rights().check_writable(inode.subvolume())?;
                self.write(&inode, Some(*offset), |at| pattern.bytes(at, *length))
            }
            Operation::Truncate { file, size } => {
                let inode = self.at(model, *file)?;
                let changes = SetAttributes { size: Some(*size), ..SetAttributes::default() };
                self.filesystem.attributes().set(&self.caller, &inode, &changes)?;
                Ok(())
            }
            Operation::Allocate { file, mode, offset, length } => {
                let extends = matches!(mode, AllocateMode::Extend | AllocateMode::KeepSize);
                let inode = self.writable(model, *file, extends)?;
                let what = match mode {
                    AllocateMode::Extend => Allocate::Reserve { keep_size: false },
                    AllocateMode::KeepSize => Allocate::Reserve { keep_size: true },
                    AllocateMode::PunchHole => Allocate::PunchHole,
                    AllocateMode::ZeroRange => Allocate::ZeroRange { keep_size: false },
                    AllocateMode::ZeroRangeKeepSize => Allocate::ZeroRange { keep_size: true },
                };
                self.filesystem.files().allocate_file(
                    &self.caller,
                    &inode,
                    what,
                    *offset,
                    *length,
                    OPEN_FILE,
                )?;
                Ok(())
            }
            Operation::CopyRange { source, source_offset, target, target_offset, length } => {
                self.copy_range(model, (*source, *source_offset), (*target, *target_offset), *length)
            }
            Operation::Seek { file } => self.seek(model, *file),
            Operation::Read { file, offset, length } => self.read(model, *file, *offset, *length),
            other => unreachable!("{other:?} changes no data"),
        }
    }

    /// A file that the caller may write.
    fn writable(&self, model: &Model, place: Place, append: bool) -> Done<Arc<Inode>> {
        let inode = self.at(model, place)?;
        if inode.file_type() != FileType::Regular {
            return Err(Trouble::Refused(Errno::INVAL));
        }
        let mode = OpenMode { write: true, append, ..OpenMode::default() };
        self.filesystem.rights().check_writable(inode.subvolume())?;
        drop(self.filesystem.files().open(&self.caller, &inode, mode)?);
        Ok(inode)
    }

    /// Writes what `bytes` makes of the offset, which is the end of the file without one.
    fn write(&self, inode: &Arc<Inode>, offset: Option<u64>, bytes: impl FnOnce(u64) -> Vec<u8>) -> Done<()> {
        let offset = offset.unwrap_or_else(|| inode.size());
        self.filesystem.files().write_file(
            &self.caller,
            inode,
            offset,
            Cow::Owned(bytes(offset)),
            OPEN_FILE,
        )?;
        Ok(())
    }

    fn copy_range(&self, model: &Model, source: (Place, u64), target: (Place, u64), length: u64) -> Done<()> {
        let from = self.at(model, source.0)?;
        if from.file_type() != FileType::Regular {
            return Err(Trouble::Refused(Errno::INVAL));
        }
        let to = self.writable(model, target.0, false)?;
        let is_same = Arc::ptr_eq(&from, &to);
        let count = length.min(from.size().saturating_sub(source.1));
        if is_same && source.1 < target.1 + count && target.1 < source.1 + count {
            return Err(Trouble::Refused(Errno::INVAL));
        }
        let (from, to) = ((&from, source.1), (&to, target.1));
        let copied =
            self.filesystem.files().copy_file_range(&self.caller, from, to, length, OPEN_FILE)?.length_bytes;
        if copied == count {
            return Ok(());
        }
        Err(Trouble::Wrong(format!("copy_range copied {copied} bytes of {count}")))
    }

    fn read(&self, model: &Model, place: Place, offset: u64, length: u64) -> Done<()> {
        let inode = self.at(model, place)?;
        if inode.file_type() != FileType::Regular {
            return Err(Trouble::Refused(Errno::INVAL));
        }
        let Some(node) = model.file(place).and_then(|file| model.node(file)) else { return Ok(()) };
        let mut bytes = vec![0xaa; length as usize];
        let count = {
            let _operation = inode.operation.read();
            data::read(&self.filesystem, &inode, &self.cache, offset, &mut bytes)?
        };
        let expected = length.min(node.content.size().saturating_sub(offset));
        bytes.truncate(count);
        if bytes != node.content.read(offset, expected) {
            return Err(Trouble::Wrong(format!(
                "reading {length} bytes at {offset} of {place:?} gives other bytes"
            )));
        }
        Ok(())
    }

    fn seek(&self, model: &Model, place: Place) -> Done<()> {
        let inode = self.at(model, place)?;
        if inode.file_type() != FileType::Regular {
            return Err(Trouble::Refused(Errno::INVAL));
        }
        let Some(file) = model.file(place) else { return Ok(()) };
        let mut at = 0;
        for (start, end) in self.data_ranges(&inode)? {
            if !model.is_hole(file, at, start) {
                return Err(Trouble::Wrong(format!(
                    "{file:?} is said to have a hole at {at} to {start}, where bytes are"
                )));
            }
            at = end;
        }
        if model.is_hole(file, at, inode.size()) || at == inode.size() {
            return Ok(());
        }
        Err(Trouble::Wrong(format!("{file:?} is said to have a hole from {at} to its end, where bytes are")))
    }

    /// Start and end of each run of data of a file.
    ///
    /// # Errors
    /// What seeking met, or ranges that make no sense.
    pub fn data_ranges(&self, inode: &Arc<Inode>) -> Result<Vec<(u64, u64)>, Trouble> {
        let _operation = inode.operation.read();
        let (mut at, mut ranges) = (0, Vec::new());
        loop {
            let seek = |what, from| data::seek(&self.filesystem, inode, &self.cache, from, what);
            let start = match seek(Seek::Data, at) {
                Err(error) if error.errno() == Errno::NXIO => return Ok(ranges),
                other => other?,
            };
            let end = seek(Seek::Hole, start)?;
            if start < at || end <= start {
                return Err(Trouble::Wrong(format!(
                    "from {at} on, seeking gives data from {start} to {end}"
                )));
            }
            ranges.push((start, end));
            at = end;
        }
    }
}

fn file_of(inode: &Inode) -> FileId {
    FileId { root: inode.id().root.0, number: inode.number().0 }
}
