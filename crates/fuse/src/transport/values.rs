//! The values in the kernel's requests and in the answers.

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

/// The process that asks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Requester {
    /// The user (`fsuid`).
    pub user: u32,
    /// The group (`fsgid`).
    pub group: u32,
    /// The thread.
    pub process: u32,
    /// It acts as root, whichever user it is of (`owners=root`): the kernel has judged nothing.
    pub acts_as_root: bool,
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
