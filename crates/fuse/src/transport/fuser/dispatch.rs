//! The requests as fuser hands them over, each passed to its family of the service and answered with what
//! that returns.

use std::ffi::OsStr;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::time::SystemTime;

use ::fuser::{
    BsdFileFlags, CopyFileRangeFlags, Errno, FileHandle, FopenFlags, Generation, INodeNo, IoctlFlags,
    KernelConfig, LockOwner, OpenFlags, RenameFlags, ReplyAttr, ReplyCreate, ReplyData, ReplyDirectory,
    ReplyDirectoryPlus, ReplyEmpty, ReplyEntry, ReplyIoctl, ReplyLseek, ReplyOpen, ReplyStatfs, ReplyWrite,
    ReplyXattr, Request, TimeOrNow, WriteFlags,
};

use super::adapter::Adapter;
use super::answers::{
    self, absent, answer_attribute_value, answer_attributes, answer_empty, attributes_of, from_system_time,
    handle, node, open_flags, set_time, to_errno, unreadable, validity_of, write_origin,
};
use super::features;
use crate::transport::attendance::Work;
use crate::transport::requests::Opcode;
use crate::transport::{
    AttributeChanges, AttributeService, DirectoryService, ExtendedAttributeService, FilePosition,
    FileService, LARGEST_TRANSFER, NameService, Reply, Service,
};

impl<S: Service> ::fuser::Filesystem for Adapter<S> {
    fn init(&mut self, _request: &Request, config: &mut KernelConfig) -> io::Result<()> {
        features::ask_for(config, self.settings);
        Ok(())
    }

    fn lookup(&self, request: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEntry) {
        let _turn = self.turn(request, Work::Short);
        match self.answer(Opcode::Lookup, || {
            self.service.names().lookup(self.requester(request), node(parent), name.as_bytes())
        }) {
            Ok(Some(entry)) => self.answer_entry(reply, Ok(entry)),
            Ok(None) => reply.entry(&self.settings.validity, &absent(), Generation(0)),
            Err(errno) => reply.error(to_errno(errno)),
        }
    }

    fn forget(&self, _request: &Request, number: INodeNo, lookups: u64) {
        let _turn = self.unawaited_turn();
        // The kernel expects no answer.
        let _ = self.perform(Opcode::Forget, || self.service.names().forget(node(number), lookups));
    }

    fn getattr(&self, request: &Request, number: INodeNo, file: Option<FileHandle>, reply: ReplyAttr) {
        let _turn = self.turn(request, Work::Short);
        let node = node(number);
        let Some(file) = file else {
            return self.answer_attributes(
                reply,
                self.answer(Opcode::GetAttr, || self.service.attributes().attributes(node)),
            );
        };
        let validity = self.settings.validity;
        let answer = Box::new(move |result| answer_attributes(validity, reply, result));
        // With a handle, the kernel may be asking before a write(2): the answer may wait, and come from
        // another thread. If the work panics, the reply is dropped, and `fuser` answers with an I/O error.
        let _ = self.perform(Opcode::GetAttr, || {
            self.service.attributes().attributes_by_handle(node, handle(file), answer)
        });
    }

    fn setattr(
        &self,
        request: &Request,
        number: INodeNo,
        mode: Option<u32>,
        user: Option<u32>,
        group: Option<u32>,
        size_bytes: Option<u64>,
        access_time: Option<TimeOrNow>,
        modification_time: Option<TimeOrNow>,
        change_time: Option<SystemTime>,
        file_handle: Option<FileHandle>,
        _creation_time: Option<SystemTime>,
        _changed_time: Option<SystemTime>,
        _backup_time: Option<SystemTime>,
        _flags: Option<BsdFileFlags>,
        reply: ReplyAttr,
    ) {
        let _turn = self.turn(request, Work::Short);
        let changes = AttributeChanges {
            mode,
            user,
            group,
            size_bytes,
            access_time: access_time.map(set_time),
            modification_time: modification_time.map(set_time),
            change_time: change_time.map(from_system_time),
            handle: file_handle.map(handle),
        };
        let result = self.answer(Opcode::SetAttr, || {
            self.service.attributes().set_attributes(self.requester(request), node(number), &changes)
        });
        self.answer_attributes(reply, result);
    }

    fn readlink(&self, request: &Request, number: INodeNo, reply: ReplyData) {
        let _turn = self.turn(request, Work::Short);
        match self.answer(Opcode::ReadLink, || self.service.names().read_link(node(number))) {
            Ok(target) => reply.data(&target),
            Err(errno) => reply.error(to_errno(errno)),
        }
    }

    fn mknod(
        &self,
        request: &Request,
        parent: INodeNo,
        name: &OsStr,
        mode: u32,
        umask: u32,
        device: u32,
        reply: ReplyEntry,
    ) {
        let _turn = self.turn(request, Work::Short);
        let (who, parent) = (self.requester(request), node(parent));
        self.answer_entry(
            reply,
            self.answer(Opcode::MkNod, || {
                self.service.names().make_node(who, parent, name.as_bytes(), mode, umask, device)
            }),
        );
    }

    fn mkdir(
        &self,
        request: &Request,
        parent: INodeNo,
        name: &OsStr,
        mode: u32,
        umask: u32,
        reply: ReplyEntry,
    ) {
        let _turn = self.turn(request, Work::Short);
        let (who, parent) = (self.requester(request), node(parent));
        self.answer_entry(
            reply,
            self.answer(Opcode::MkDir, || {
                self.service.names().make_directory(who, parent, name.as_bytes(), mode, umask)
            }),
        );
    }

    fn unlink(&self, request: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEmpty) {
        let _turn = self.turn(request, Work::Short);
        let (who, parent) = (self.requester(request), node(parent));
        answer_empty(
            reply,
            self.answer(Opcode::Unlink, || self.service.names().unlink(who, parent, name.as_bytes())),
        );
    }

    fn rmdir(&self, request: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEmpty) {
        let _turn = self.turn(request, Work::Short);
        let (who, parent) = (self.requester(request), node(parent));
        answer_empty(
            reply,
            self.answer(Opcode::RmDir, || {
                self.service.names().remove_directory(who, parent, name.as_bytes())
            }),
        );
    }

    fn symlink(&self, request: &Request, parent: INodeNo, name: &OsStr, target: &Path, reply: ReplyEntry) {
        let _turn = self.turn(request, Work::Short);
        let (who, parent, target) = (self.requester(request), node(parent), target.as_os_str().as_bytes());
        self.answer_entry(
            reply,
            self.answer(Opcode::Symlink, || {
                self.service.names().make_symbolic_link(who, parent, name.as_bytes(), target)
            }),
        );
    }

    fn rename(
        &self,
        request: &Request,
        parent: INodeNo,
        name: &OsStr,
        new_parent: INodeNo,
        new_name: &OsStr,
        flags: RenameFlags,
        reply: ReplyEmpty,
    ) {
        let _turn = self.turn(request, Work::Short);
        let (who, parent, new_parent) = (self.requester(request), node(parent), node(new_parent));
        let (name, new_name) = (name.as_bytes(), new_name.as_bytes());
        let result = self.answer(Opcode::Rename, || {
            self.service.names().rename(who, parent, name, new_parent, new_name, flags.bits())
        });
        answer_empty(reply, result);
    }

    fn link(&self, request: &Request, number: INodeNo, new_parent: INodeNo, name: &OsStr, reply: ReplyEntry) {
        let _turn = self.turn(request, Work::Short);
        let (who, new_parent) = (self.requester(request), node(new_parent));
        self.answer_entry(
            reply,
            self.answer(Opcode::Link, || {
                self.service.names().link(who, node(number), new_parent, name.as_bytes())
            }),
        );
    }

    fn open(&self, request: &Request, number: INodeNo, flags: OpenFlags, reply: ReplyOpen) {
        let _turn = self.turn(request, Work::Short);
        match self.answer(Opcode::Open, || {
            self.service.files().open(self.requester(request), node(number), flags.0)
        }) {
            Ok(opened) => reply.opened(FileHandle(opened.handle.0), open_flags(opened.direct)),
            Err(errno) => reply.error(to_errno(errno)),
        }
    }

    fn create(
        &self,
        request: &Request,
        parent: INodeNo,
        name: &OsStr,
        mode: u32,
        umask: u32,
        flags: i32,
        reply: ReplyCreate,
    ) {
        let _turn = self.turn(request, Work::Short);
        let (who, parent) = (self.requester(request), node(parent));
        match self.answer(Opcode::Create, || {
            self.service.files().create(who, parent, name.as_bytes(), mode, umask, flags)
        }) {
            Ok((entry, opened)) => reply.created(
                &self.settings.validity,
                &attributes_of(&entry.attributes, entry.node.0),
                Generation(entry.generation),
                FileHandle(opened.handle.0),
                open_flags(opened.direct),
            ),
            Err(errno) => reply.error(to_errno(errno)),
        }
    }

    fn read(
        &self,
        request: &Request,
        _number: INodeNo,
        file: FileHandle,
        offset: u64,
        size: u32,
        _flags: OpenFlags,
        lock_owner: Option<LockOwner>,
        reply: ReplyData,
    ) {
        let _turn = self.turn(request, Work::of_transfer(size as usize));
        answers::with_buffer(size as usize, |buffer| {
            let read = || {
                if !answers::is_past_cache(lock_owner) {
                    self.service.files().note_page_read(handle(file));
                }
                self.service.files().read(handle(file), offset, buffer)
            };
            match self.answer(Opcode::Read, read) {
                Ok(length) => reply.data(&buffer[..length]),
                Err(errno) => reply.error(to_errno(errno)),
            }
        });
    }

    fn write(
        &self,
        request: &Request,
        _number: INodeNo,
        file: FileHandle,
        offset: u64,
        data: &[u8],
        write_flags: WriteFlags,
        flags: OpenFlags,
        lock_owner: Option<LockOwner>,
        reply: ReplyWrite,
    ) {
        let _turn = self.turn(request, Work::of_transfer(data.len()));
        let origin = write_origin(write_flags, flags, lock_owner);
        let (who, file, length) = (self.requester(request), handle(file), data.len());
        let answer = move |result| match result {
            Ok(()) => reply.written(u32::try_from(length).unwrap_or(u32::MAX)),
            Err(errno) => reply.error(to_errno(errno)),
        };
        if origin.past_cache {
            let answer = Box::new(answer);
            // An answer that a panic dropped is an I/O error.
            let _ = self.perform(Opcode::Write, || {
                self.service.files().write_past_cache(who, file, offset, data, origin, answer);
            });
        } else {
            answer(
                self.answer(Opcode::Write, || self.service.files().write(who, file, offset, data, origin)),
            );
        }
    }

    /// The kernel has written its pages back before it asks, and there is nothing else to do when a file is
    /// closed: said once, it asks no more.
    fn flush(&self, request: &Request, _: INodeNo, _: FileHandle, _: LockOwner, reply: ReplyEmpty) {
        let _turn = self.turn(request, Work::Short);
        self.requests.count(Opcode::Flush);
        reply.error(Errno::ENOSYS);
    }

    fn release(
        &self,
        _request: &Request,
        _number: INodeNo,
        file: FileHandle,
        _flags: OpenFlags,
        _lock_owner: Option<LockOwner>,
        _flush: bool,
        reply: ReplyEmpty,
    ) {
        let _turn = self.unawaited_turn();
        answer_empty(reply, self.perform(Opcode::Release, || self.service.files().release(handle(file))));
    }

    fn fsync(
        &self,
        request: &Request,
        _number: INodeNo,
        file: FileHandle,
        _data_only: bool,
        reply: ReplyEmpty,
    ) {
        let _turn = self.turn(request, Work::Long);
        answer_empty(reply, self.answer(Opcode::Fsync, || self.service.files().sync(handle(file))));
    }

    fn opendir(&self, request: &Request, number: INodeNo, _flags: OpenFlags, reply: ReplyOpen) {
        let _turn = self.turn(request, Work::Short);
        match self.answer(Opcode::OpenDir, || {
            self.service.directories().open_directory(self.requester(request), node(number))
        }) {
            // The kernel keeps listings until the directory changes, which it always knows. Without the
            // second flag it drops the listing that it has, asks for the names once more, and keeps these.
            Ok(opened) => {
                let kept = FopenFlags::FOPEN_CACHE_DIR | FopenFlags::FOPEN_KEEP_CACHE;
                let flags = if opened.attributes_wanted { FopenFlags::FOPEN_CACHE_DIR } else { kept };
                reply.opened(FileHandle(opened.handle.0), flags);
            }
            Err(errno) => reply.error(to_errno(errno)),
        }
    }

    fn readdir(
        &self,
        request: &Request,
        _: INodeNo,
        directory: FileHandle,
        offset: u64,
        mut reply: ReplyDirectory,
    ) {
        let _turn = self.turn(request, Work::Short);
        let room = answers::DIRECTORY_ROOM;
        let result = self.answer(Opcode::ReadDir, || {
            self.service.directories().read_directory(handle(directory), offset, room, &mut |name| {
                let kind = answers::kind_of(name.mode);
                !reply.add(INodeNo(name.number), name.next, kind, OsStr::from_bytes(name.name))
            })
        });
        self.service.directories().answer_names(
            handle(directory),
            Box::new(move || match result {
                Ok(()) => reply.ok(),
                Err(errno) => reply.error(to_errno(errno)),
            }),
        );
    }

    fn readdirplus(
        &self,
        request: &Request,
        _: INodeNo,
        directory: FileHandle,
        offset: u64,
        mut reply: ReplyDirectoryPlus,
    ) {
        let _turn = self.turn(request, Work::Short);
        let validity = self.settings.validity;
        let result = self.answer(Opcode::ReadDirPlus, || {
            let room = answers::DIRECTORY_ROOM;
            self.service.directories().read_directory_plus(
                handle(directory),
                offset,
                room,
                &mut |name, entry| {
                    let attributes = entry.map_or_else(
                        || unreadable(name),
                        |entry| attributes_of(&entry.attributes, entry.node.0),
                    );
                    let generation = entry.map_or(0, |entry| entry.generation);
                    let validity = entry.map_or(validity, |entry| validity_of(validity, &entry.attributes));
                    let file = attributes.ino;
                    let bytes = OsStr::from_bytes(name.name);
                    !reply.add(file, name.next, bytes, &validity, &attributes, Generation(generation))
                },
            )
        });
        self.service.directories().answer_names(
            handle(directory),
            Box::new(move || match result {
                Ok(()) => reply.ok(),
                Err(errno) => reply.error(to_errno(errno)),
            }),
        );
    }

    fn releasedir(&self, _: &Request, _: INodeNo, directory: FileHandle, _: OpenFlags, reply: ReplyEmpty) {
        let _turn = self.unawaited_turn();
        let release = || self.service.directories().release_directory(handle(directory));
        answer_empty(reply, self.perform(Opcode::ReleaseDir, release));
    }

    fn fsyncdir(
        &self,
        request: &Request,
        _: INodeNo,
        directory: FileHandle,
        _data_only: bool,
        reply: ReplyEmpty,
    ) {
        let _turn = self.turn(request, Work::Long);
        answer_empty(
            reply,
            self.answer(Opcode::FsyncDir, || self.service.directories().sync_directory(handle(directory))),
        );
    }

    fn statfs(&self, request: &Request, _number: INodeNo, reply: ReplyStatfs) {
        let _turn = self.turn(request, Work::Short);
        match self.answer(Opcode::StatFs, || self.service.attributes().statistics()) {
            Ok(full) => reply.statfs(
                full.blocks,
                full.free_blocks,
                full.available_blocks,
                0,
                0,
                full.block_size,
                full.longest_name,
                full.block_size,
            ),
            Err(errno) => reply.error(to_errno(errno)),
        }
    }

    fn setxattr(
        &self,
        request: &Request,
        number: INodeNo,
        name: &OsStr,
        value: &[u8],
        flags: i32,
        _position: u32,
        reply: ReplyEmpty,
    ) {
        let _turn = self.turn(request, Work::Short);
        let (who, name) = (self.requester(request), name.as_bytes());
        let set = || {
            self.service.extended_attributes().set_extended_attribute(who, node(number), name, value, flags)
        };
        answer_empty(reply, self.answer(Opcode::SetXattr, set));
    }

    fn getxattr(&self, request: &Request, number: INodeNo, name: &OsStr, room: u32, reply: ReplyXattr) {
        let _turn = self.turn(request, Work::Short);
        let (who, name) = (self.requester(request), name.as_bytes());
        let result = self.answer(Opcode::GetXattr, || {
            self.service.extended_attributes().extended_attribute(who, node(number), name)
        });
        answer_attribute_value(reply, room, result);
    }

    fn listxattr(&self, request: &Request, number: INodeNo, room: u32, reply: ReplyXattr) {
        let _turn = self.turn(request, Work::Short);
        answer_attribute_value(
            reply,
            room,
            self.answer(Opcode::ListXattr, || {
                self.service.extended_attributes().extended_attributes(node(number))
            }),
        );
    }

    fn removexattr(&self, request: &Request, number: INodeNo, name: &OsStr, reply: ReplyEmpty) {
        let _turn = self.turn(request, Work::Short);
        let (who, name) = (self.requester(request), name.as_bytes());
        let remove = || self.service.extended_attributes().remove_extended_attribute(who, node(number), name);
        answer_empty(reply, self.answer(Opcode::RemoveXattr, remove));
    }

    fn fallocate(
        &self,
        request: &Request,
        _number: INodeNo,
        file: FileHandle,
        offset: u64,
        length: u64,
        mode: i32,
        reply: ReplyEmpty,
    ) {
        let _turn = self.turn(request, Work::Long);
        answer_empty(
            reply,
            self.answer(Opcode::Fallocate, || {
                self.service.files().allocate(self.requester(request), handle(file), offset, length, mode)
            }),
        );
    }

    fn lseek(
        &self,
        request: &Request,
        _: INodeNo,
        file: FileHandle,
        offset: i64,
        whence: i32,
        reply: ReplyLseek,
    ) {
        let _turn = self.turn(request, Work::Long);
        // The rest is the kernel's own.
        let Some(what) = answers::seek_for(whence) else { return reply.error(Errno::EINVAL) };
        let Ok(offset) = u64::try_from(offset) else { return reply.error(Errno::ENXIO) };
        let answer = Box::new(move |result: Reply<u64>| match result {
            Ok(found) => reply.offset(i64::try_from(found).unwrap_or(i64::MAX)),
            Err(errno) => reply.error(to_errno(errno)),
        });
        // An answer that a panic dropped is an I/O error.
        let _ = self.perform(Opcode::Lseek, || self.service.files().seek(handle(file), offset, what, answer));
    }

    fn copy_file_range(
        &self,
        request: &Request,
        from: INodeNo,
        _from_handle: FileHandle,
        from_offset: u64,
        to: INodeNo,
        _to_handle: FileHandle,
        to_offset: u64,
        length: u64,
        _flags: CopyFileRangeFlags,
        reply: ReplyWrite,
    ) {
        let _turn = self.turn(request, Work::Long);
        // The answer has 32 bits; the kernel asks again for the rest.
        let length = length.min(u64::from(u32::MAX) / 2 + 1 - u64::from(LARGEST_TRANSFER));
        let from = FilePosition { node: node(from), offset: from_offset };
        let to = FilePosition { node: node(to), offset: to_offset };
        match self.answer(Opcode::CopyFileRange, || {
            self.service.files().copy_range(self.requester(request), from, to, length)
        }) {
            Ok(copied) => reply.written(u32::try_from(copied).unwrap_or(u32::MAX)),
            Err(errno) => reply.error(to_errno(errno)),
        }
    }

    fn ioctl(
        &self,
        request: &Request,
        number: INodeNo,
        _file: FileHandle,
        _flags: IoctlFlags,
        command: u32,
        data: &[u8],
        room: u32,
        reply: ReplyIoctl,
    ) {
        let _turn = self.turn(request, Work::Long);
        let who = self.requester(request);
        match self
            .answer(Opcode::Ioctl, || self.service.attributes().control(who, node(number), command, data))
        {
            Ok(answer) if answer.len() <= room as usize => reply.ioctl(0, &answer),
            Ok(_) => reply.error(Errno::EINVAL),
            Err(errno) => reply.error(to_errno(errno)),
        }
    }
}
