//! What a request of the kernel is and how it is answered, whatever carries it.
//!
//! A *transport* reads requests from the kernel in threads of its own, calls a [`Service`] for each, and
//! sends what that returns. A *notifier* sends the kernel what it did not ask for. There is one transport,
//! [`fuser`]; another has to bring the same two things and nothing above changes.

mod attendance;
mod bystander;
pub mod fuser;
mod locality;
mod requests;

use std::io;
use std::time::Duration;

use rustix::io::Errno;

/// What the kernel calls a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct NodeNumber(pub u64);

impl NodeNumber {
    /// The root of the mount.
    pub const ROOT: Self = Self(1);
}

/// What we call an open file or directory.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct HandleNumber(pub u64);

/// How a request ends: an answer, or what the system call returns.
pub type Reply<T> = Result<T, Errno>;

/// Who asks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Requester {
    /// The user (`fsuid`).
    pub user: u32,
    /// The group (`fsgid`).
    pub group: u32,
    /// The thread.
    pub process: u32,
}

/// A point in time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Time {
    /// Since 1970.
    pub seconds: i64,
    /// And so many nanoseconds, below 10^9.
    pub nanoseconds: u32,
}

/// What stat(2) shows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NodeAttributes {
    /// The inode number.
    pub number: u64,
    /// Type and permissions.
    pub mode: u32,
    /// Names.
    pub links: u32,
    /// The owner.
    pub user: u32,
    /// The owning group.
    pub group: u32,
    /// Of a device node: the device, as `major << 8 & 0xfff00 | minor & 0xff | minor << 12 & 0xfff00000`.
    pub device: u32,
    /// Bytes.
    pub size_bytes: u64,
    /// What they occupy, in units of 512 bytes.
    pub blocks: u64,
    /// The preferred size of requests, in bytes.
    pub block_size: u32,
    /// Last access.
    pub access_time: Time,
    /// Last change of the data.
    pub modification_time: Time,
    /// Last change of the inode.
    pub change_time: Time,
    /// The kernel asks for them each time, because they may change without a request.
    pub is_volatile: bool,
}

/// A file that the kernel learns of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Entry {
    /// What it is called from now on.
    pub node: NodeNumber,
    /// Tells one use of the number from the next.
    pub generation: u64,
    /// What stat(2) shows.
    pub attributes: NodeAttributes,
}

/// A time to set.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SetTime {
    /// The present.
    Now,
    /// Another.
    At(Time),
}

/// What is to be changed; `None` stays.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct AttributeChanges {
    /// Permissions; a type in it means nothing.
    pub mode: Option<u32>,
    /// The owner.
    pub user: Option<u32>,
    /// The owning group.
    pub group: Option<u32>,
    /// Bytes.
    pub size_bytes: Option<u64>,
    /// Last access.
    pub access_time: Option<SetTime>,
    /// Last change of the data.
    pub modification_time: Option<SetTime>,
    /// Last change of the inode, which the kernel keeps itself under the writeback cache.
    pub change_time: Option<Time>,
    /// The open file through which the size is changed.
    pub handle: Option<HandleNumber>,
}

impl AttributeChanges {
    /// Whether these are but the times that the kernel keeps itself under the writeback cache.
    #[must_use]
    pub fn is_only_times(&self) -> bool {
        let others = [self.mode, self.user, self.group];
        self.change_time.is_some() && others.iter().all(Option::is_none) && self.size_bytes.is_none()
    }

    /// Whether this is chown(2) of neither owner nor group under the writeback cache.
    #[must_use]
    pub fn is_change_time_alone(&self) -> bool {
        self.is_only_times() && self.access_time.is_none() && self.modification_time.is_none()
    }

    /// Whether the kernel hands over times that it kept: both of them and nothing else (`fuse_flush_times`,
    /// fs/fuse/dir.c). A user who gives a time of modification alone looks the same.
    #[must_use]
    pub fn is_handed_over(&self) -> bool {
        self.is_only_times() && self.access_time.is_none() && self.modification_time.is_some()
    }

    /// Whether the kernel has put its own present in the place of a user's: under the writeback cache it
    /// never says "now" of a time of modification, but does of a time of access (`iattr_to_fattr`,
    /// fs/fuse/dir.c).
    #[must_use]
    pub fn is_stamped_by_kernel(&self) -> bool {
        self.change_time.is_some() && !matches!(self.access_time, Some(SetTime::At(_)))
    }
}

impl NodeAttributes {
    /// Those of a file that has no name any more and is closed.
    #[must_use]
    pub fn of_deleted(number: u64) -> Self {
        Self {
            number,
            mode: 0o100_000,
            links: 0,
            user: 0,
            group: 0,
            device: 0,
            size_bytes: 0,
            blocks: 0,
            block_size: 4096,
            access_time: Time::default(),
            modification_time: Time::default(),
            change_time: Time::default(),
            is_volatile: false,
        }
    }
}

/// An open file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Opened {
    /// What it is called.
    pub handle: HandleNumber,
    /// The kernel's page cache is passed by.
    pub direct: bool,
}

/// An open directory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OpenedDirectory {
    /// What it is called.
    pub handle: HandleNumber,
    /// The kernel lacks attributes of the files in it: it had better ask for the names once more, which
    /// brings them, than answer from what it kept of the last listing and then ask for each file.
    pub attributes_wanted: bool,
}

/// Where written bytes come from.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct WriteOrigin {
    /// From the page cache, later than write(2): the kernel sees to times and privileges itself.
    pub cache: bool,
    /// By a program, past the page cache: with `O_DIRECT`, or through a file that was opened past the cache.
    pub past_cache: bool,
    /// Set-id bits go.
    pub kills_privileges: bool,
    /// Through a file that is open with `O_DIRECT`: the bytes are on the devices when the answer goes.
    pub direct: bool,
    /// Through a file that is open with `O_SYNC` or `O_DSYNC`: they are durable then.
    pub synchronous: bool,
}

/// One name of a listing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ListedName<'a> {
    /// The name.
    pub name: &'a [u8],
    /// The inode number.
    pub number: u64,
    /// The type, as in a mode.
    pub mode: u32,
    /// Where the listing goes on behind it.
    pub next: u64,
}

/// Takes the names of a listing; false where one does not fit any more, which then was not taken.
pub type NameSink<'a> = dyn FnMut(&ListedName<'_>) -> bool + 'a;
/// As [`NameSink`], with the file (none where its inode can't be read).
pub type EntrySink<'a> = dyn FnMut(&ListedName<'_>, Option<&Entry>) -> bool + 'a;

/// How full a file system is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Statistics {
    /// Unit of the numbers of blocks, in bytes.
    pub block_size: u32,
    /// All blocks.
    pub blocks: u64,
    /// Free ones.
    pub free_blocks: u64,
    /// Free ones for data.
    pub available_blocks: u64,
    /// Bytes of the longest name.
    pub longest_name: u32,
}

/// What lseek(2) looks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SeekFor {
    /// Data.
    Data,
    /// A hole.
    Hole,
}

/// Sends the answer of a request that is answered from another thread.
pub type Deferred<T> = Box<dyn FnOnce(Reply<T>) + Send>;

/// Part of a file, for a copy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FilePosition {
    /// The file.
    pub node: NodeNumber,
    /// Where in it.
    pub offset: u64,
}

/// Answers requests. Each method may be called from several threads at once and may wait for the disk, but
/// never for the kernel to send something else, since these threads are the ones to take it. What fails is
/// answered with the errno that the system call in the kernel returns.
#[allow(clippy::missing_errors_doc)]
pub trait Service: Send + Sync + 'static {
    /// The kernel forgets a file so many of the times that it was told of it.
    fn forget(&self, node: NodeNumber, lookups: u64);
    /// The file behind a name; none where there is no such name, which the kernel then remembers.
    fn lookup(&self, requester: Requester, parent: NodeNumber, name: &[u8]) -> Reply<Option<Entry>>;
    /// What stat(2) shows.
    fn attributes(&self, node: NodeNumber) -> Reply<NodeAttributes>;
    /// As [`attributes`](Self::attributes), asked through an open file, which the kernel does on its own
    /// account: before it takes bytes of a write(2) whose file's attributes are not valid. An error is that
    /// of write(2). The answer may come from another thread, since the kernel may have to write what it took
    /// before.
    fn attributes_by_handle(
        &self,
        node: NodeNumber,
        _handle: HandleNumber,
        answer: Deferred<NodeAttributes>,
    ) {
        answer(self.attributes(node));
    }
    /// Changes attributes.
    fn set_attributes(
        &self,
        requester: Requester,
        node: NodeNumber,
        changes: &AttributeChanges,
    ) -> Reply<NodeAttributes>;
    /// A symbolic link's target.
    fn read_link(&self, node: NodeNumber) -> Reply<Vec<u8>>;
    /// mknod(2). `device` is encoded as [`NodeAttributes::device`].
    fn make_node(
        &self,
        requester: Requester,
        parent: NodeNumber,
        name: &[u8],
        mode: u32,
        umask: u32,
        device: u32,
    ) -> Reply<Entry>;
    /// mkdir(2).
    fn make_directory(
        &self,
        requester: Requester,
        parent: NodeNumber,
        name: &[u8],
        mode: u32,
        umask: u32,
    ) -> Reply<Entry>;
    /// symlink(2).
    fn make_symbolic_link(
        &self,
        requester: Requester,
        parent: NodeNumber,
        name: &[u8],
        target: &[u8],
    ) -> Reply<Entry>;
    /// unlink(2).
    fn unlink(&self, requester: Requester, parent: NodeNumber, name: &[u8]) -> Reply<()>;
    /// rmdir(2).
    fn remove_directory(&self, requester: Requester, parent: NodeNumber, name: &[u8]) -> Reply<()>;
    /// renameat2(2), with its flags.
    fn rename(
        &self,
        requester: Requester,
        parent: NodeNumber,
        name: &[u8],
        new_parent: NodeNumber,
        new_name: &[u8],
        flags: u32,
    ) -> Reply<()>;
    /// link(2).
    fn link(
        &self,
        requester: Requester,
        node: NodeNumber,
        new_parent: NodeNumber,
        name: &[u8],
    ) -> Reply<Entry>;
    /// open(2), with its flags but `O_CREAT`, `O_EXCL` and `O_TRUNC`.
    fn open(&self, requester: Requester, node: NodeNumber, flags: i32) -> Reply<Opened>;
    /// open(2) with `O_CREAT` of a name that is not there.
    fn create(
        &self,
        requester: Requester,
        parent: NodeNumber,
        name: &[u8],
        mode: u32,
        umask: u32,
        flags: i32,
    ) -> Reply<(Entry, Opened)>;
    /// Reads into `target`; gives how many bytes, fewer only at the end of the file.
    fn read(&self, handle: HandleNumber, offset: u64, target: &mut [u8]) -> Reply<usize>;
    /// Writes all of `data`.
    fn write(
        &self,
        requester: Requester,
        handle: HandleNumber,
        offset: u64,
        data: &[u8],
        origin: WriteOrigin,
    ) -> Reply<()>;
    /// As [`write`](Self::write), past the page cache. The answer may come from another thread, since the
    /// kernel has to drop the pages that it keeps first.
    fn write_past_cache(
        &self,
        requester: Requester,
        handle: HandleNumber,
        offset: u64,
        data: &[u8],
        origin: WriteOrigin,
        answer: Deferred<()>,
    ) {
        answer(self.write(requester, handle, offset, data, origin));
    }
    /// The next read of an open file fills pages of the kernel's cache.
    fn note_page_read(&self, _handle: HandleNumber) {}
    /// The last user of an open file is gone.
    fn release(&self, handle: HandleNumber);
    /// fsync(2) of a file.
    fn sync(&self, handle: HandleNumber) -> Reply<()>;
    /// fsync(2) of a directory.
    fn sync_directory(&self, handle: HandleNumber) -> Reply<()>;
    /// opendir(3).
    fn open_directory(&self, requester: Requester, node: NodeNumber) -> Reply<OpenedDirectory>;
    /// Lists from an offset on; `room_bytes` is what the answer may take.
    fn read_directory(
        &self,
        handle: HandleNumber,
        offset: u64,
        room_bytes: usize,
        sink: &mut NameSink<'_>,
    ) -> Reply<()>;
    /// As [`read_directory`](Self::read_directory), and the kernel learns of each file that the sink takes.
    fn read_directory_plus(
        &self,
        handle: HandleNumber,
        offset: u64,
        room_bytes: usize,
        sink: &mut EntrySink<'_>,
    ) -> Reply<()>;
    /// Sends the answer that one of these two gave, at once or from another thread, since the kernel may have
    /// to drop its copy of the listing first.
    fn answer_names(&self, _handle: HandleNumber, answer: Box<dyn FnOnce() + Send>) {
        answer();
    }
    /// closedir(3).
    fn release_directory(&self, handle: HandleNumber);
    /// statfs(2).
    fn statistics(&self) -> Reply<Statistics>;
    /// setxattr(2), with its flags.
    fn set_extended_attribute(
        &self,
        requester: Requester,
        node: NodeNumber,
        name: &[u8],
        value: &[u8],
        flags: i32,
    ) -> Reply<()>;
    /// getxattr(2).
    fn extended_attribute(&self, requester: Requester, node: NodeNumber, name: &[u8]) -> Reply<Vec<u8>>;
    /// listxattr(2): names, each with a zero behind it.
    fn extended_attributes(&self, node: NodeNumber) -> Reply<Vec<u8>>;
    /// removexattr(2).
    fn remove_extended_attribute(&self, requester: Requester, node: NodeNumber, name: &[u8]) -> Reply<()>;
    /// fallocate(2), with its mode.
    fn allocate(
        &self,
        requester: Requester,
        handle: HandleNumber,
        offset: u64,
        length: u64,
        mode: i32,
    ) -> Reply<()>;
    /// lseek(2) for data and holes. The answer may come from another thread, since the kernel may have to
    /// write first.
    fn seek(&self, handle: HandleNumber, offset: u64, what: SeekFor, answer: Deferred<u64>);
    /// copy_file_range(2); gives how many bytes.
    fn copy_range(
        &self,
        requester: Requester,
        from: FilePosition,
        to: FilePosition,
        length: u64,
    ) -> Reply<u64>;
    /// ioctl(2) of a command whose number says how many bytes it takes and gives: those given.
    fn control(&self, requester: Requester, node: NodeNumber, command: u32, data: &[u8]) -> Reply<Vec<u8>>;
}

/// Tells the kernel what it did not ask for. But for [`invalidate_attributes`](Self::invalidate_attributes),
/// each call may wait until other requests are answered, so never from a thread that answers them and never
/// with a lock held.
pub trait Notifier: Send + Sync {
    /// Writes dirty pages from `offset` to the end back, and forgets these pages and the attributes.
    ///
    /// # Errors
    /// The connection is broken. A file that the kernel does not know is no error.
    fn invalidate_data(&self, node: NodeNumber, offset: u64) -> io::Result<()>;
    /// As [`invalidate_data`](Self::invalidate_data), of so many bytes; 0 for all to the end.
    ///
    /// # Errors
    /// As there.
    fn invalidate_range(&self, node: NodeNumber, offset: u64, length: u64) -> io::Result<()>;
    /// Forgets the attributes and ACLs. Never waits.
    ///
    /// # Errors
    /// As there.
    fn invalidate_attributes(&self, node: NodeNumber) -> io::Result<()>;
    /// Forgets what a name stands for, or that it does not exist.
    ///
    /// # Errors
    /// As there.
    fn invalidate_entry(&self, parent: NodeNumber, name: &[u8]) -> io::Result<()>;
}

/// How a transport is set up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Settings {
    /// Threads that answer.
    pub threads: usize,
    /// The kernel keeps written pages for a while.
    pub writeback: bool,
    /// The kernel drops set-id bits of files that change itself.
    pub kernel_kills_privileges: bool,
    /// Permissions go by ACLs as well.
    pub acls: bool,
    /// How long the kernel may remember names and attributes. It hears of every change, so this is long.
    pub validity: Duration,
}

/// The largest write, and the largest read, in bytes.
pub const LARGEST_TRANSFER: u32 = 1 << 20;
