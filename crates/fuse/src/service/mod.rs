//! Answers the kernel's requests from a [`Filesystem`].

mod aside;
mod blocks;
mod by_call;
mod change_times;
mod convert;
mod deletions;
mod directories;
mod exported;
mod files;
mod flags;
mod gate;
mod handles;
mod kept_pages;
mod known;
mod privileges;
mod unplaced;

use rustix::io::Errno;
use vlinder_base::sync::{Arc, OnceLock, Weak};
use vlinder_control::by_call::{Call, ExpectedCalls};
use vlinder_device::MOUNT_NAME_COMMAND;
use vlinder_fs::{
    AttributeMode, Filesystem, FsError, Inode, InodeId, OpenInode, Refusal, RenameMode, Standing, Uuid,
};

use self::aside::Aside;
use self::blocks::Blocks;
use self::change_times::ChangeTimes;
use self::convert::{decode_device, errno, file_type_of, judged, remover, timestamp_of};
use self::files::is_synchronous;
use self::gate::Gate;
use self::handles::Handles;
use self::kept_pages::KeptPages;
use self::known::Known;
use self::privileges::judged_by_process;
use self::unplaced::UnplacedBytes;
use crate::numbers::Numbers;
use crate::transport::{
    AttributeChanges, AttributeService, Deferred, DirectoryService, Entry, EntrySink,
    ExtendedAttributeService, FilePosition, FileService, HandleNumber, NameService, NameSink, NodeAttributes,
    NodeNumber, Notifier, Opened, OpenedDirectory, Reply, Requester, SeekFor, Service, SetTime, Settings,
    Statistics, WriteOrigin,
};

/// How often what found no space is tried again while removed files are being deleted.
const MOST_ATTEMPTS: usize = 64;

const RENAME_NOREPLACE: u32 = 1;
const RENAME_EXCHANGE: u32 = 2;
const RENAME_WHITEOUT: u32 = 4;
const XATTR_CREATE: i32 = 1;
const XATTR_REPLACE: i32 = 2;
const XATTR_BOTH: i32 = XATTR_CREATE | XATTR_REPLACE;

/// Answers the requests of one mount.
pub struct MountService {
    filesystem: Filesystem,
    uuid: Uuid,
    numbers: Numbers,
    handles: Handles,
    known: Known,
    kept_pages: Arc<KeptPages>,
    writeback: bool,
    kernel_kills_privileges: bool,
    notifier: OnceLock<Arc<dyn Notifier>>,
    gate: Gate,
    blocks: Blocks,
    change_times: ChangeTimes,
    unplaced: UnplacedBytes,
    /// For jobs that outlive a call.
    this: OnceLock<Weak<Self>>,
    aside: Aside,
    calls: OnceLock<Arc<ExpectedCalls>>,
    told_name: OnceLock<Vec<u8>>,
}

impl MountService {
    /// For a file system that is mounted; `settings` are the transport's.
    ///
    /// # Errors
    /// The system's, where it gives no more threads.
    pub fn new(filesystem: Filesystem, settings: Settings) -> std::io::Result<Self> {
        Ok(Self {
            uuid: Standing::of(&filesystem).uuid(),
            numbers: Numbers::new(filesystem.root_id().root),
            known: Known::new(Arc::clone(&filesystem.options().clock))?,
            handles: Handles::default(),
            kept_pages: Arc::default(),
            gate: Gate::new(&filesystem.options().registry),
            blocks: Blocks::default(),
            change_times: ChangeTimes::default(),
            unplaced: UnplacedBytes::default(),
            this: OnceLock::new(),
            writeback: settings.writeback,
            kernel_kills_privileges: settings.kernel_kills_privileges,
            notifier: OnceLock::new(),
            aside: Aside::start()?,
            calls: OnceLock::new(),
            told_name: OnceLock::new(),
            filesystem,
        })
    }

    /// Says how to reach the kernel, once the transport is there.
    pub fn set_notifier(&self, notifier: Arc<dyn Notifier>) {
        // Said twice, the first stays; a mount has one connection.
        let _ = self.notifier.set(notifier);
    }

    /// What the kernel calls a file.
    pub(crate) fn node(&self, id: InodeId) -> NodeNumber {
        self.numbers.node(id)
    }

    /// The files of which the kernel may have dirty pages.
    pub(crate) fn written_files(&self) -> Vec<NodeNumber> {
        self.handles.written().into_iter().map(|id| self.node(id)).collect()
    }

    /// The kernel is gone: ends what still waits for it and closes all that is open.
    pub(crate) fn finish(&self) {
        self.finish_gate();
        self.aside.finish();
        if let Err(errno) = self.place_all() {
            tracing::error!(%errno, "bytes that were written last found no room and are lost, as their writers were told");
        }
        self.handles.clear();
        self.known.finish();
    }

    fn inode(&self, node: NodeNumber) -> Reply<Arc<Inode>> {
        let id = self.numbers.file(node).ok_or(Errno::STALE)?;
        match self.filesystem.inode(id) {
            Ok(inode) => Ok(inode),
            // The root directory of a subvolume that was removed is nowhere but here.
            Err(error) if error.refusal() == Some(Refusal::NotFound) => {
                self.known.held(node).ok_or(Errno::STALE)
            }
            Err(error) => Err(errno(&error)),
        }
    }

    /// Tells the kernel of a file: counted before it can forget it.
    fn remember(&self, node: NodeNumber, directory: NodeNumber) {
        self.numbers.remember(node);
        self.known.remember(node, directory);
    }

    /// A name went; the file, where that was its last one, stays for as long as the kernel knows it.
    fn hold_nameless(&self, removed: Result<Option<OpenInode>, FsError>) -> Reply<()> {
        if let Some(open) = removed.map_err(|error| errno(&error))? {
            let node = self.numbers.node(open.inode().id());
            self.known.hold(node, open);
        }
        Ok(())
    }

    /// Tries what may find no space once more where files that were removed are deleted meanwhile.
    fn with_room<T>(&self, mut attempt: impl FnMut() -> Reply<T>) -> Reply<T> {
        for _ in 0..MOST_ATTEMPTS {
            let deleted = self.deletions();
            match attempt() {
                Err(Errno::NOSPC) if self.wait_for_deletions(deleted) => {}
                other => return other,
            }
        }
        attempt()
    }

    /// How many files without names were deleted so far.
    pub(crate) fn deletions(&self) -> u64 {
        self.known.deleter().deleted()
    }

    /// Waits for more deletions than `before`, where some are due; whether there are.
    pub(crate) fn wait_for_deletions(&self, before: u64) -> bool {
        self.known.deleter().wait_for_room(before)
    }

    /// The entry of a file that the kernel learns of in a directory, counted.
    fn entry(&self, inode: &Inode, directory: NodeNumber) -> Entry {
        let entry = self.uncounted_entry(inode);
        self.remember(entry.node, directory);
        entry
    }

    fn uncounted_entry(&self, inode: &Inode) -> Entry {
        let attributes = self.filesystem.attributes(inode);
        let node = self.numbers.node(inode.id());
        self.keep_shut(inode.id(), attributes.flags);
        Entry {
            node,
            generation: self.told_generation(inode, node, attributes.generation.0),
            attributes: self.shown(attributes),
        }
    }

    fn attributes_now(&self, node: NodeNumber) -> Reply<NodeAttributes> {
        let inode = self.inode(node)?;
        Ok(self.uncounted_entry(&inode).attributes)
    }

    fn made(&self, made: Result<Arc<Inode>, FsError>, directory: NodeNumber) -> Reply<Entry> {
        made.map(|inode| self.entry(&inode, directory)).map_err(|error| errno(&error))
    }
}

fn done(result: Result<(), FsError>) -> Reply<()> {
    result.map_err(|error| errno(&error))
}

impl Service for MountService {
    type Names = Self;
    type Attributes = Self;
    type Files = Self;
    type Directories = Self;
    type ExtendedAttributes = Self;

    fn names(&self) -> &Self {
        self
    }

    fn attributes(&self) -> &Self {
        self
    }

    fn files(&self) -> &Self {
        self
    }

    fn directories(&self) -> &Self {
        self
    }

    fn extended_attributes(&self) -> &Self {
        self
    }
}

impl NameService for MountService {
    fn lookup(&self, requester: Requester, parent: NodeNumber, name: &[u8]) -> Reply<Option<Entry>> {
        if matches!(name, exported::SELF | exported::PARENT) {
            return self.lookup_number(parent, name).map(Some);
        }
        let directory = self.inode(parent)?;
        match self.filesystem.lookup(&judged(requester, 0), &directory, name) {
            Ok(inode) => Ok(Some(self.entry(&inode, parent))),
            Err(error) if error.refusal() == Some(Refusal::NotFound) => Ok(None),
            Err(error) => Err(errno(&error)),
        }
    }

    fn forget(&self, node: NodeNumber, lookups: u64) {
        self.known.forget(node, lookups);
        self.numbers.forget(node, lookups);
    }

    fn read_link(&self, node: NodeNumber) -> Reply<Vec<u8>> {
        let inode = self.inode(node)?;
        let target = self.filesystem.read_link(&inode).map_err(|error| errno(&error))?;
        self.filesystem.note_access(&inode);
        Ok(target)
    }

    fn make_node(
        &self,
        requester: Requester,
        parent: NodeNumber,
        name: &[u8],
        mode: u32,
        umask: u32,
        device: u32,
    ) -> Reply<Entry> {
        let (caller, directory) = (judged(requester, umask), self.inode(parent)?);
        let file_type = file_type_of(mode).ok_or(Errno::INVAL)?;
        let device = decode_device(device);
        self.with_room(|| {
            let permissions = mode & 0o7777;
            let made = self.filesystem.create_node(&caller, &directory, name, file_type, permissions, device);
            self.made(made, parent)
        })
    }

    fn make_directory(
        &self,
        requester: Requester,
        parent: NodeNumber,
        name: &[u8],
        mode: u32,
        umask: u32,
    ) -> Reply<Entry> {
        let (caller, directory) = (judged(requester, umask), self.inode(parent)?);
        if let Some(call) = self.expected_call(requester, Call::MakeDirectory, &directory, name) {
            return self.make_subvolume(&call, &directory, parent, name);
        }
        self.with_room(|| {
            self.made(self.filesystem.create_directory(&caller, &directory, name, mode & 0o7777), parent)
        })
    }

    fn make_symbolic_link(
        &self,
        requester: Requester,
        parent: NodeNumber,
        name: &[u8],
        target: &[u8],
    ) -> Reply<Entry> {
        let (caller, directory) = (judged(requester, 0), self.inode(parent)?);
        self.with_room(|| {
            self.made(self.filesystem.create_symbolic_link(&caller, &directory, name, target), parent)
        })
    }

    fn unlink(&self, requester: Requester, parent: NodeNumber, name: &[u8]) -> Reply<()> {
        let directory = self.inode(parent)?;
        let caller = judged(requester, 0);
        if !self.known.may_hold() {
            return done(self.filesystem.unlink(&caller, &directory, name));
        }
        self.hold_nameless(self.filesystem.unlink_and_hold(&caller, &directory, name))
    }

    fn remove_directory(&self, requester: Requester, parent: NodeNumber, name: &[u8]) -> Reply<()> {
        let directory = self.inode(parent)?;
        if let Some(call) = self.expected_call(requester, Call::RemoveDirectory, &directory, name) {
            return call.perform();
        }
        let caller = remover(requester);
        if !self.known.may_hold() {
            return done(self.filesystem.remove_directory(&caller, &directory, name));
        }
        self.hold_nameless(self.filesystem.remove_directory_and_hold(&caller, &directory, name))
    }

    fn rename(
        &self,
        requester: Requester,
        parent: NodeNumber,
        name: &[u8],
        new_parent: NodeNumber,
        new_name: &[u8],
        flags: u32,
    ) -> Reply<()> {
        let mode = match flags {
            0 => RenameMode::Replace,
            RENAME_NOREPLACE => RenameMode::NoReplace,
            RENAME_EXCHANGE => RenameMode::Exchange,
            RENAME_WHITEOUT => RenameMode::Whiteout,
            _ => return Err(Errno::INVAL),
        };
        let (from, to) = (self.inode(parent)?, self.inode(new_parent)?);
        let caller = remover(requester);
        if !self.known.may_hold() {
            return done(self.filesystem.rename(&caller, &from, name, &to, new_name, mode));
        }
        self.hold_nameless(self.filesystem.rename_and_hold(&caller, &from, name, &to, new_name, mode))
    }

    fn link(
        &self,
        requester: Requester,
        node: NodeNumber,
        new_parent: NodeNumber,
        name: &[u8],
    ) -> Reply<Entry> {
        let (inode, directory) = (self.inode(node)?, self.inode(new_parent)?);
        let caller = judged(requester, 0);
        self.with_room(|| {
            let linked = self.filesystem.link(&caller, &inode, &directory, name);
            self.shut_after_reply(&inode);
            self.made(linked.map(|()| Arc::clone(&inode)), new_parent)
        })
    }
}

impl AttributeService for MountService {
    fn attributes(&self, node: NodeNumber) -> Reply<NodeAttributes> {
        self.attributes_now(node)
    }

    fn attributes_by_handle(&self, node: NodeNumber, handle: HandleNumber, answer: Deferred<NodeAttributes>) {
        self.admit(node, handle, answer);
    }

    fn set_attributes(
        &self,
        requester: Requester,
        node: NodeNumber,
        changes: &AttributeChanges,
    ) -> Reply<NodeAttributes> {
        let inode = match self.inode(node) {
            // After the last name of a file went, the kernel still sends the times that it kept.
            Err(Errno::STALE) if changes.is_only_times() => return Ok(NodeAttributes::of_deleted(node.0)),
            other => other?,
        };
        let time = |set: SetTime| match set {
            SetTime::Now => vlinder_fs::SetTime::Now,
            SetTime::At(time) if changes.is_stamped_by_kernel() => {
                vlinder_fs::SetTime::Stamped(timestamp_of(time))
            }
            SetTime::At(time) => vlinder_fs::SetTime::At(timestamp_of(time)),
        };
        let mut set = vlinder_fs::SetAttributes {
            permissions: changes.mode.map(|mode| mode & 0o7777),
            user: changes.user.map(vlinder_fs::UserId),
            group: changes.group.map(vlinder_fs::GroupId),
            size: changes.size_bytes,
            opened_for_writing: changes.handle.is_some(),
            access_time: changes.access_time.map(time),
            modification_time: changes.modification_time.map(time),
            change_time: changes.change_time.map(timestamp_of),
            birth_time: None,
            handed_over: changes.is_handed_over(),
            keeps_set_id: self.kernel_kills_privileges,
            // It removes the attribute, where that has to go, before it asks for the change.
            keeps_capability: true,
        };
        let caller = self.attribute_changer(requester, &inode, changes, &mut set);
        let turn = set.size.and_then(|_| self.turn_with_unplaced());
        let attributes =
            self.filesystem.set_attributes(&caller, &inode, &set).map_err(|error| errno(&error))?;
        if let Some(size) = set.size {
            self.drop_unplaced(inode.id(), size, u64::MAX);
        }
        drop(turn);
        if set.handed_over && is_synchronous(&inode) {
            self.sync_inode(&inode)?;
        }
        self.shut_after_reply(&inode);
        Ok(self.shown(attributes))
    }

    fn control(&self, requester: Requester, node: NodeNumber, command: u32, data: &[u8]) -> Reply<Vec<u8>> {
        if command == MOUNT_NAME_COMMAND {
            return self.told_name.get().cloned().ok_or(Errno::NOTTY);
        }
        self.control_file(&judged(requester, 0), &self.inode(node)?, command, data)
    }

    fn statistics(&self) -> Reply<Statistics> {
        self.known.deleter().settle();
        let full = self.filesystem.statistics().map_err(|error| errno(&error))?;
        Ok(Statistics {
            block_size: full.block_size,
            blocks: full.blocks,
            free_blocks: full.free_blocks,
            available_blocks: full.available_blocks,
            longest_name: full.longest_name,
        })
    }
}

impl FileService for MountService {
    fn open(&self, _requester: Requester, node: NodeNumber, flags: i32) -> Reply<Opened> {
        let inode = self.inode(node)?;
        self.open_file(&inode, flags)
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
        let (caller, directory) = (judged(requester, umask), self.inode(parent)?);
        let inode = self.with_room(|| {
            let made = self.filesystem.create_file(&caller, &directory, name, mode & 0o7777);
            made.map_err(|error| errno(&error))
        })?;
        let opened = self.open_new_file(&inode, flags)?;
        self.shut_after_reply(&inode);
        Ok((self.entry(&inode, parent), opened))
    }

    fn read(&self, handle: HandleNumber, offset: u64, target: &mut [u8]) -> Reply<usize> {
        self.read_file(handle, offset, target)
    }

    fn write(
        &self,
        requester: Requester,
        handle: HandleNumber,
        offset: u64,
        data: &[u8],
        origin: WriteOrigin,
    ) -> Reply<()> {
        self.write_or_keep(requester, handle, offset, data, origin)
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
        let written = self.write_or_keep(requester, handle, offset, data, origin);
        self.answer_past_cache(handle, (offset, data.len() as u64), written, answer);
    }

    fn note_page_read(&self, handle: HandleNumber) {
        self.note_page_use(handle);
    }

    fn release(&self, handle: HandleNumber) {
        self.close(handle);
    }

    fn sync(&self, handle: HandleNumber) -> Reply<()> {
        self.sync_file(handle)
    }

    fn allocate(
        &self,
        requester: Requester,
        handle: HandleNumber,
        offset: u64,
        length: u64,
        mode: i32,
    ) -> Reply<()> {
        let allocated = self.with_room(|| self.allocate_range(requester, handle, offset, length, mode));
        self.note_taken(length, &allocated);
        allocated
    }

    fn seek(&self, handle: HandleNumber, offset: u64, what: SeekFor, answer: Deferred<u64>) {
        self.seek_file(handle, offset, what, answer);
    }

    fn copy_range(
        &self,
        requester: Requester,
        from: FilePosition,
        to: FilePosition,
        length: u64,
    ) -> Reply<u64> {
        let copied = self.copy_file_range(requester, from, to, length);
        self.note_taken(*copied.as_ref().unwrap_or(&0), &copied);
        copied
    }
}

impl DirectoryService for MountService {
    fn open_directory(&self, requester: Requester, node: NodeNumber) -> Reply<OpenedDirectory> {
        let inode = self.inode(node)?;
        let open =
            self.filesystem.open_directory(&judged(requester, 0), &inode).map_err(|error| errno(&error))?;
        let attributes_wanted = self.known.take_outdated(node);
        Ok(OpenedDirectory { handle: self.handles.insert_directory(open), attributes_wanted })
    }

    fn read_directory(
        &self,
        handle: HandleNumber,
        offset: u64,
        room_bytes: usize,
        sink: &mut NameSink<'_>,
    ) -> Reply<()> {
        self.list(handle, offset, room_bytes, sink)
    }

    fn read_directory_plus(
        &self,
        handle: HandleNumber,
        offset: u64,
        room_bytes: usize,
        sink: &mut EntrySink<'_>,
    ) -> Reply<()> {
        self.list_plus(handle, offset, room_bytes, sink)
    }

    fn answer_names(&self, handle: HandleNumber, answer: Box<dyn FnOnce() + Send>) {
        self.answer_listing(handle, answer);
    }

    fn sync_directory(&self, handle: HandleNumber) -> Reply<()> {
        let listing = self.handles.directory(handle)?;
        let inode = Arc::clone(listing.lock().open.inode());
        self.sync_inode(&inode)
    }

    fn release_directory(&self, handle: HandleNumber) {
        self.handles.remove(handle);
    }
}

impl ExtendedAttributeService for MountService {
    fn set_extended_attribute(
        &self,
        requester: Requester,
        node: NodeNumber,
        name: &[u8],
        value: &[u8],
        flags: i32,
    ) -> Reply<()> {
        let mode = match flags {
            0 => AttributeMode::Either,
            XATTR_CREATE => AttributeMode::Create,
            XATTR_REPLACE => AttributeMode::Replace,
            XATTR_BOTH => AttributeMode::CreateAndReplace,
            _ => return Err(Errno::INVAL),
        };
        let is_acl = name.starts_with(b"system.posix_acl_");
        let caller = if is_acl { judged_by_process(requester) } else { judged(requester, 0) };
        let inode = self.inode(node)?;
        self.with_room(|| done(self.filesystem.set_extended_attribute(&caller, &inode, name, value, mode)))
    }

    fn extended_attribute(&self, requester: Requester, node: NodeNumber, name: &[u8]) -> Reply<Vec<u8>> {
        let inode = self.inode(node)?;
        self.filesystem.extended_attribute(&judged(requester, 0), &inode, name).map_err(|error| errno(&error))
    }

    fn extended_attributes(&self, node: NodeNumber) -> Reply<Vec<u8>> {
        let inode = self.inode(node)?;
        let names = self.filesystem.extended_attributes(&inode).map_err(|error| errno(&error))?;
        Ok(names.into_iter().flat_map(|name| name.into_iter().chain([0])).collect())
    }

    fn remove_extended_attribute(&self, requester: Requester, node: NodeNumber, name: &[u8]) -> Reply<()> {
        let inode = self.inode(node)?;
        done(self.filesystem.remove_extended_attribute(&judged(requester, 0), &inode, name))
    }
}
